"""The examples of what `import halfop` gives, in the docstrings and in docs/python.md, in their order."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType

import halfop
import pytest
from halfop.api import ends, lands, opening
from halfop.api import halfop as methods
from halfop.warehouse import given
from pyspark.sql import SparkSession
from support.json_lines import half, lines, op
from support.places import ROOT
from support.sessions import as_before

_MODULES = (given, opening, lands, methods, ends)
# Their examples would need a broker; docs/python.md shows one.
_WITHOUT = {"land_store", "land_broker", "resume_at_brokers", "resolve", "decisions", "views", "audit", "report"}


def examples() -> Iterator[doctest.DocTest]:
    for module in _MODULES:
        found = doctest.DocTestFinder().find(module, globs={}, extraglobs={})
        yield from sorted((each for each in found if each.examples), key=lambda each: each.lineno or 0)


@pytest.fixture
def globs(theirs: SparkSession, tmp_path: Path) -> dict[str, object]:
    """The names that examples use: a session, files and an empty warehouse."""
    born = int((datetime.now(timezone.utc) - timedelta(minutes=1)).timestamp() * 1000)
    at = {"broker_name": "broker-a", "born_timestamp": born, "store_timestamp": born}
    of_topic = {"PGROUP": "g", "REAL_TOPIC": "orders", "REAL_QID": "3"}
    rows = [half(n, **at, properties=of_topic | {"UNIQ_KEY": f"u{n}", "KEYS": f"k{n}"}) for n in (1, 2)]
    root = str(tmp_path / "warehouse")
    return {
        "halfop": halfop,
        "SparkSession": SparkSession,
        "spark": theirs,
        "root": root,
        "wh": halfop.open(theirs, root),
        "halves": lines(tmp_path / "h.jsonl", *rows),
        "ops": lines(tmp_path / "o.jsonl", op(1, "1", **at)),
        "now": datetime.now(timezone.utc),
        "timedelta": timedelta,
    }


@pytest.mark.thorough
def test_the_examples_are_true(theirs: SparkSession, globs: dict[str, object]) -> None:
    runner, said = doctest.DocTestRunner(), list[str]()
    for each in examples():
        each.globs = dict(globs)
        with as_before(theirs):
            runner.run(each, out=said.append)
    assert "".join(said) == ""
    assert runner.tries > 10


def test_those_of_the_page_are_true(theirs: SparkSession, globs: dict[str, object]) -> None:
    text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    page = doctest.DocTestParser().get_doctest(text, globs, "python.md", None, 0)
    runner, said = doctest.DocTestRunner(), list[str]()
    with as_before(theirs):
        runner.run(page, out=said.append)
    assert "".join(said) == ""
    assert runner.tries > 5


def test_every_method_has_a_docstring_and_most_have_examples() -> None:
    public = {name: each for name, each in inspect.getmembers(halfop.Halfop) if not name.startswith("_")}
    called = {name: each for name, each in public.items() if callable(each)}
    assert [name for name, each in public.items() if name != "spark" and not inspect.getdoc(each)] == []
    assert {name for name, each in called.items() if ">>>" not in (each.__doc__ or "")} == _WITHOUT


@pytest.mark.parametrize("module", _MODULES, ids=lambda module: module.__name__)
def test_each_module_has_some(module: ModuleType) -> None:
    assert [each for each in doctest.DocTestFinder().find(module) if each.examples]
