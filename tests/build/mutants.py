"""Mutants of a Python module: each changes one thing that a rule may hang on."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

_COMPARED = {ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
_COMPARED |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
_JOINED = {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add}
_CALLED = {"isNull": "isNotNull", "isNotNull": "isNull", "least": "greatest", "greatest": "least", "min": "max"}
_CALLED |= {"max": "min", "any": "all", "all": "any", "max_by": "min_by", "min_by": "max_by", "exists": "forall"}


@dataclass(frozen=True)
class Mutant:
    """A module's source with one change; `line` and `what` say which."""

    module: str
    line: int
    what: str
    source: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.what}"


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Each mutant of the functions and constants of a module."""
    tree = ast.parse(source)
    texts = _texts_without_meaning(tree)
    number = sum(1 for _ in ast.walk(tree))
    for place in range(number):
        node = _node(tree, place)
        if id(node) in texts:
            continue
        for what, _ in _changes(node):
            changed = copy.deepcopy(tree)
            mine = _node(changed, place)
            change = dict(_changes(mine))[what]
            new = change(mine)
            if new is not mine:
                changed = _Replace(mine, new).visit(changed)
            fixed = ast.fix_missing_locations(changed)
            yield Mutant(module, getattr(node, "lineno", 0), f"{_short(node)}: {what}", ast.unparse(fixed))


def _node(tree: ast.AST, place: int) -> ast.AST:
    return next(node for n, node in enumerate(ast.walk(tree)) if n == place)


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else f"{text[:67]}..."


def _texts_without_meaning(tree: ast.AST) -> set[int]:
    """Docstrings, annotations, imports and what stands in them."""
    found: set[int] = set()
    for node in ast.walk(tree):
        left: Sequence[ast.AST] = ()
        if isinstance(node, (ast.Import, ast.ImportFrom)) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            left = [node]
        elif isinstance(node, ast.AnnAssign):
            left = [node.annotation]
        elif isinstance(node, ast.FunctionDef):
            left = [a.annotation for a in node.args.args if a.annotation] + ([node.returns] if node.returns else [])
        for each in left:
            found |= {id(inner) for inner in ast.walk(each)}
    return found


def _changes(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """What may be changed of a node, and how."""
    yield from _other_operators(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Invert, ast.Not)):
        yield "without it", lambda n: n.operand
    if isinstance(node, ast.Constant):
        yield from _other_constants(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield from _other_calls(node.func)
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        for n in range(len(node.elts) if len(node.elts) > 1 else 0):
            yield f"without its element {n}", lambda each, n=n: _set(each, elts=each.elts[:n] + each.elts[n + 1 :])


def _other_operators(node: ast.AST) -> Iterator[tuple[str, Any]]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARED:
        other = _COMPARED[type(node.ops[0])]
        yield other.__name__, lambda n: _set(n, ops=[other(), *n.ops[1:]])
    if isinstance(node, ast.BinOp) and type(node.op) in _JOINED:
        joined = _JOINED[type(node.op)]
        yield joined.__name__, lambda n: _set(n, op=joined())
    if isinstance(node, ast.BoolOp):
        turned = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield turned.__name__, lambda n: _set(n, op=turned())


def _other_calls(called: ast.Attribute) -> Iterator[tuple[str, Any]]:
    if called.attr in _CALLED:
        yield _CALLED[called.attr], lambda n: _set(n, func=_set(n.func, attr=_CALLED[called.attr]))
    if called.attr in ("when", "otherwise") and not isinstance(called.value, ast.Name):
        yield f"no {called.attr}", lambda n: n.func.value


def _other_constants(node: ast.Constant) -> Iterator[tuple[str, Any]]:
    value = node.value
    if isinstance(value, bool):
        yield f"{not value}", lambda n: _set(n, value=not value)
    elif isinstance(value, int):
        yield f"{value + 1}", lambda n: _set(n, value=value + 1)
    elif isinstance(value, str) and value.isupper():
        yield "another text", lambda n: _set(n, value=value + "X")


def _set(node: Any, **fields: Any) -> Any:
    for name, value in fields.items():
        setattr(node, name, value)
    return node


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._old else super().visit(node)


class Grafted:
    """A module with a mutant's functions and constants instead of its own, also for those that imported them."""

    def __init__(self, module: ModuleType, mutant: Mutant, users: list[ModuleType]) -> None:
        self._module, self._mutant, self._users = module, mutant, users
        self._undo: list[Any] = []

    def __enter__(self) -> None:
        made = ModuleType(self._module.__name__)
        made.__dict__.update({name: self._module.__dict__[name] for name in ("__name__", "__file__", "__package__")})
        exec(compile(self._mutant.source, self._module.__file__ or "", "exec"), made.__dict__)  # noqa: S102
        for name, old in list(self._module.__dict__.items()):
            new = made.__dict__.get(name)
            if isinstance(old, FunctionType) and isinstance(new, FunctionType) and old.__module__ == made.__name__:
                self._replace_function(old, new)
            elif not name.startswith("__") and isinstance(old, (str, int, list, tuple, dict, set, frozenset)):
                self._replace_value(old, new)

    def _replace_function(self, old: FunctionType, new: FunctionType) -> None:
        code, defaults = old.__code__, old.__defaults__
        self._undo.append(lambda: _set(old, __code__=code, __defaults__=defaults))
        old.__code__, old.__defaults__ = new.__code__, new.__defaults__

    def _replace_value(self, old: Any, new: Any) -> None:
        if old == new:
            return
        for module in {self._module, *self._users}:
            for name, value in list(module.__dict__.items()):
                if value is old and not name.startswith("__"):
                    self._undo.append(lambda m=module, n=name: setattr(m, n, old))
                    setattr(module, name, new)

    def __exit__(self, *_: object) -> None:
        for undo in reversed(self._undo):
            undo()
