"""The layers of the house: each room imports only rooms below it, without a cycle, in modules of bearable length."""

from __future__ import annotations

import ast
from functools import cache

import pytest
from support.places import ROOT

pytestmark = pytest.mark.long

LIB = ROOT / "lib"
BASE = (
    "frame.errors frame.log frame.nearest frame.openlineage frame.output frame.summary frame.trouble frame.units "
    "rules.reasons"
)

# From top to bottom: the rooms that each room may import, besides itself and BASE. A room's name is the longest that
# fits: `landing` means the modules of landing that are in none of its sources.
LAYERS = {
    "command": "jobs frame.cli settings start submit versions spark_setup completion",
    "completion": "frame.cli settings submit",
    "spark_setup": "start submit settings warehouse",
    "versions": "settings",
    "jobs": "*",
    "api": "opened follow sql sql.views charts simulation audit explain report html ending examine upkeep erasure runs "
    "sinks landing landing.files landing.store landing.broker columns settings warehouse frame.cli",
    "opened": "settings warehouse",
    "demo": "frame.commands runs landing.store rocketmq.store settings warehouse",
    "gateway_demo": "landing.broker runs gateway rocketmq.wire settings warehouse",
    "project": "settings",
    "training": "start jobs demo frame.cli settings",
    "start": "",
    "submit": "",
    "frame.cli": "frame.metrics frame.arguments frame.people settings",
    "follow": "frame.metrics planning settings warehouse",
    "frame.arguments": "columns settings",
    # readers
    "charts": "simulation explain wording planning columns warehouse",
    "simulation": "html wording runs planning rules columns rocketmq settings warehouse",
    "audit": "wording landing planning rules columns rocketmq settings warehouse",
    "explain": "sql.views wording frame.commands landing runs planning rules columns rocketmq settings warehouse",
    "sql": "sql.views wording sinks warehouse",
    "report": "html wording frame.commands runs planning columns settings warehouse",
    "html": "",
    # answers to brokers
    "ending": "frame.plan_file landing runs planning columns rocketmq rocketmq.wire settings warehouse",
    "examine": "landing landing.files frame.commands runs sinks planning rules columns rocketmq settings warehouse",
    # a run
    "upkeep": "erasure runs sql.views sinks values planning columns rocketmq settings warehouse",
    "erasure": "frame.plan_file runs planning rules columns settings warehouse",
    "runs": "wording sql.views sinks planning rules columns settings warehouse",
    "sql.views": "sinks warehouse",
    "sinks": "values planning rules columns rocketmq settings warehouse",
    "values": "settings warehouse",
    "planning": "rules columns rocketmq settings warehouse",
    "rules": "columns rocketmq settings",
    # landing
    "landing.files": "wording landing columns rocketmq warehouse",
    "landing.store": "landing columns rocketmq rocketmq.store warehouse",
    "landing.broker": "landing columns rocketmq rocketmq.wire warehouse",
    "landing": "wording columns rocketmq rocketmq.store rocketmq.wire warehouse",
    "wording": "settings warehouse",
    # the broker's place for producers
    "gateway": "gateway.core gateway.log rocketmq rocketmq.wire settings warehouse",
    "gateway.log": "gateway.core rocketmq rocketmq.store",
    "gateway.core": "rocketmq rocketmq.store settings",
    # what all of them stand on
    "frame.people": "frame.commands settings",
    "frame.plan_file": "columns",
    "frame.commands": "settings",
    "frame.metrics": "settings",
    "warehouse": "settings",
    "settings": "rocketmq",
    "columns": "rocketmq",
    "rocketmq.store": "rocketmq",
    "rocketmq.wire": "rocketmq",
    "rocketmq": "",
    **dict.fromkeys(BASE.split(), ""),
}
# Libraries that a room must not import.
FOREIGN = {
    "rocketmq": "pyspark delta py4j",
    "gateway": "pyspark delta py4j",
    "settings": "pyspark delta py4j",
    "columns": "delta py4j os pathlib time random",
    "rules": "delta py4j os pathlib time random",
    "html": "pyspark delta py4j",
    "command": "pyspark delta py4j",
    **dict.fromkeys(
        ("start", "submit", "versions"), "pyspark delta py4j pydantic yaml numpy"
    ),  # they run before each job, and so take milliseconds
}
# The codec and the gateway's core do no I/O: whoever has a connection, a file or a clock feeds them.
SANS_IO = "socket ssl select selectors asyncio threading concurrent time os pathlib secrets"
# Rules are pure: no session, no I/O, no clock.
IMPURE = (
    "SparkSession sparkSession collect toArrow toLocalIterator write persist localCheckpoint current_timestamp open"
)
MOST_LINES = 299


@cache
def modules() -> dict[str, ast.Module]:
    """All modules of halfop by name, without the package's own: `landing.files.land`."""
    files = {path.relative_to(LIB / "halfop").with_suffix(""): path for path in (LIB / "halfop").rglob("*.py")}
    names = {".".join(part for part in file.parts if part != "__init__"): path for file, path in files.items()}
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in names.items() if name}


def imported(tree: ast.Module) -> set[str]:
    """Whole names of what a module imports, also inside of functions."""
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@cache
def edges() -> dict[str, set[str]]:
    """The modules of halfop that each module imports."""
    return {name: {_module(each) for each in imported(tree)} & set(modules()) for name, tree in modules().items()}


def _module(imported_name: str) -> str:
    """The module that a name is imported from; the package halfop itself has only its version."""
    name = imported_name.removeprefix("halfop.") if imported_name.startswith("halfop.") else ""
    return name if name in modules() else name.rpartition(".")[0]


def room(module: str) -> str:
    parts = module.split(".")
    prefixes = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((prefix for prefix in prefixes if prefix in LAYERS), module)


def allowed(module: str, target: str) -> bool:
    own = room(module)
    rooms = LAYERS[own]
    return rooms == "*" or room(target) in {own, *rooms.split(), *BASE.split()}


def test_every_module_has_a_room() -> None:
    assert [name for name in modules() if room(name) not in LAYERS and name != "frame"] == []


def test_imports_go_down_only() -> None:
    named = [name for name in edges() if room(name) in LAYERS]
    wrong = {f"{name} -> {target}" for name in named for target in edges()[name] if not allowed(name, target)}
    assert wrong == set()


def test_a_class_name_means_one_class() -> None:
    found: dict[str, list[str]] = {}
    for module, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(module)
    assert {name: named for name, named in found.items() if len(named) > 1} == {}


def test_no_module_imports_itself_in_a_circle() -> None:
    assert circles() == []


def circles() -> list[set[str]]:
    """Sets of modules that all reach each other by their imports."""
    reached = {name: _reach(name) for name in edges()}
    found = {frozenset(other for other in reach if name in reached[other]) for name, reach in reached.items()}
    return sorted((set(each) for each in found if each), key=sorted)


def _reach(name: str) -> set[str]:
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        following = edges()[waiting.pop()] - reached
        reached |= following
        waiting += following
    return reached


@pytest.mark.parametrize("name", FOREIGN)
def test_libraries_that_a_room_does_not_know(name: str) -> None:
    foreign = set(FOREIGN[name].split())
    mine = {module: tree for module, tree in modules().items() if module.split(".")[0] == name}
    assert {f"{m} -> {each}" for m, tree in mine.items() for each in imported(tree) if _top(each) in foreign} == set()


def _top(imported_name: str) -> str:
    return imported_name.partition(".")[0]


@pytest.mark.parametrize(
    ("name", "some"),
    [("rocketmq", {"rocketmq.frames", "rocketmq.record"}), ("gateway.core", {"gateway.core.core"})],
    ids=["codec", "core"],
)
def test_what_does_no_io(name: str, some: set[str]) -> None:
    mine = {module: tree for module, tree in modules().items() if room(module) == name}
    assert some <= mine.keys()
    wrong = {f"{m} -> {each}" for m, tree in mine.items() for each in imported(tree) if _top(each) in SANS_IO.split()}
    assert wrong == set()


def test_rules_are_pure() -> None:
    rules = {module: tree for module, tree in modules().items() if room(module) == "rules"}
    assert rules
    assert {f"{m}: {each}" for m, tree in rules.items() for each in _names(tree) & set(IMPURE.split())} == set()


def _names(tree: ast.Module) -> set[str]:
    """Names and attributes that the code uses."""
    nodes = list(ast.walk(tree))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return attributes | {node.id for node in nodes if isinstance(node, ast.Name)}


def test_modules_are_short() -> None:
    files = {name: LIB.joinpath("halfop", *name.split(".")).with_suffix(".py") for name in modules()}
    long = {name for name, file in files.items() if file.is_file() and len(file.read_text().split("\n")) > MOST_LINES}
    assert long == set()
