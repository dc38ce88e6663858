"""Mutants of a Python module: each changes one thing that a rule may hang on."""

from __future__ import annotations

import ast
import copy
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

_COMPARED = {ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
_COMPARED |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
_JOINED = {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add}
_CALLED = {"isNull": "isNotNull", "isNotNull": "isNull", "least": "greatest", "greatest": "least", "min": "max"}
_CALLED |= {"max": "min", "any": "all", "all": "any", "max_by": "min_by", "min_by": "max_by", "exists": "forall"}
_CALLED |= {"forall": "exists"}


@dataclass(frozen=True)
class Mutant:
    """A module's source with one change in a function, "" outside of all; `line` and `what` say which."""

    module: str
    function: str
    line: int
    what: str
    source: str

    @property
    def key(self) -> str:
        """A name that stays as long as the function does."""
        return f"{self.module}.{self.function}: {self.what}"


@dataclass(frozen=True)
class _Place:
    """Where a node stands in its tree."""

    parent: ast.AST
    field: str
    number: int | None  # in a list of nodes
    function: str

    def put(self, node: ast.AST) -> None:
        if self.number is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.number] = node


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Each mutant of the functions and constants of a module; none twice, and none that says the same."""
    tree = ast.parse(source)
    seen, named = {ast.unparse(tree)}, Counter[str]()
    for place, node in list(_places(tree, "")):
        for what, change in _changes(node):
            place.put(change(copy.deepcopy(node)))
            changed = ast.unparse(ast.fix_missing_locations(tree))
            place.put(node)
            if changed in seen:
                continue
            seen.add(changed)
            text = f"{_short(node)}: {what}"
            named[f"{place.function}: {text}"] += 1
            number = named[f"{place.function}: {text}"]
            text += f" ({number})" if number > 1 else ""
            yield Mutant(module, place.function, getattr(node, "lineno", 0), text, changed)


def _places(parent: ast.AST, function: str) -> Iterator[tuple[_Place, ast.AST]]:
    """All nodes that a meaning may hang on, with their places."""
    inner = parent.name if isinstance(parent, ast.FunctionDef) else function
    for field, value in ast.iter_fields(parent):
        for number, node in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(node, ast.AST) and not _is_without_meaning(parent, field, node):
                yield _Place(parent, field, number if isinstance(value, list) else None, inner), node
                yield from _places(node, inner)


def _is_without_meaning(parent: ast.AST, field: str, node: ast.AST) -> bool:
    """Docstrings, types and imports."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign):
        names = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
        is_alias = isinstance(node.value, ast.Subscript) and "tuple" in names
        return is_alias or bool(names & {"Literal", "TypeVar"})
    is_type = field in ("annotation", "returns") or (isinstance(parent, ast.Call) and _called(parent) == "cast")
    return is_type or isinstance(node, (ast.Import, ast.ImportFrom))


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else f"{text[:67]}..."


def _changes(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """What may be changed of a node, and how."""
    yield from _other_operators(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Invert, ast.Not)):
        yield "without it", lambda n: n.operand
    if isinstance(node, ast.Constant):
        yield from _other_constants(node)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reason":
        other = "FRESH" if node.attr != "FRESH" else "EXPIRED"
        yield f"Reason.{other}", lambda n: _set(n, attr=other)
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
            self._replace(name, old, made.__dict__.get(name))

    def _replace(self, name: str, old: Any, new: Any) -> None:
        if isinstance(old, FunctionType):
            if old.__module__ == self._module.__name__:
                self._replace_function(old, new)
        elif isinstance(old, type):
            if old.__module__ == self._module.__name__:
                for method, function in _methods(old).items():
                    self._replace_function(function, _methods(new)[method])
        elif not name.startswith("__") and isinstance(old, (str, int, list, tuple, dict, set, frozenset)):
            self._replace_value(name, old, new)

    def _replace_function(self, old: FunctionType, new: FunctionType) -> None:
        code, defaults = old.__code__, old.__defaults__
        self._undo.append(lambda: _set(old, __code__=code, __defaults__=defaults))
        old.__code__, old.__defaults__ = new.__code__, new.__defaults__

    def _replace_value(self, name: str, old: Any, new: Any) -> None:
        for module in {self._module, *self._users}:
            if old != new and module.__dict__.get(name) is old:
                self._undo.append(lambda m=module: setattr(m, name, old))
                setattr(module, name, new)

    def __exit__(self, *_: object) -> None:
        for undo in reversed(self._undo):
            undo()


def _methods(of: type) -> dict[str, FunctionType]:
    """The functions that stand in a class; those that NamedTuple and dataclass make come from no file."""
    members = {name: each.fget if isinstance(each, property) else each for name, each in vars(of).items()}
    found = {name: each for name, each in members.items() if isinstance(each, FunctionType)}
    file = sys.modules[of.__module__].__file__
    return {name: each for name, each in found.items() if each.__code__.co_filename == file}
