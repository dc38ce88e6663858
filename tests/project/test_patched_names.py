"""Names that tests patch by a text, and that notebooks import, exist: else only a marked suite meets a renamed one."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from support.places import ROOT

FILES = sorted(file for file in (ROOT / "tests").rglob("*.py") if "setattr(" in file.read_text(encoding="utf-8"))


def patched(tree: ast.Module) -> Iterator[tuple[object, str]]:
    """The objects of halfop that calls of `setattr` change, and the names that they change there."""
    known = dict(_imports(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            match node.args:
                case [ast.Constant(value=str(path)), _] if path.startswith("halfop."):
                    owner, _, name = path.rpartition(".")
                    yield _named(owner), name
                case [ast.Name(id=owner), ast.Constant(value=str(name)), *_] if owner in known:
                    yield known[owner], name


def _imports(tree: ast.Module) -> Iterator[tuple[str, object]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("halfop"):
            for alias in node.names:
                yield alias.asname or alias.name, _named(f"{node.module}.{alias.name}")


def _named(path: str) -> Any:
    """The module, or what has that name in one."""
    owner, _, name = path.rpartition(".")
    found = import_module(owner) if owner else None
    return getattr(found, name) if hasattr(found, name) else import_module(path)


@pytest.mark.long
def test_they_are_there() -> None:
    named = [(file, owner, name) for file in FILES for owner, name in patched(ast.parse(file.read_text("utf-8")))]
    assert len(named) > 100
    assert [(str(file), owner, name) for file, owner, name in named if not hasattr(owner, name)] == []


@pytest.mark.long
def test_what_notebooks_import_is_there() -> None:
    named = []
    for file in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = [cell for cell in json.loads(file.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
        named += [name for cell in cells for name, _ in _imports(ast.parse("".join(cell["source"])))]
    assert len(named) > 5
