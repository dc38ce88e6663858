"""What the package gives by name, to programs, to type checkers and in the docs; and a program with its own session."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import halfop
import pytest
from support.json_lines import half, lines, op
from support.places import ROOT


def test_all_names_are_there_and_no_other() -> None:
    assert [name for name in halfop.__all__ if getattr(halfop, name).__name__ != name] == []
    assert set(halfop.__all__) <= set(dir(halfop))
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        getattr(halfop, "opne")  # noqa: B009 - mypy would find it


def test_a_type_checker_sees_the_same_names() -> None:
    tree = ast.parse(Path(halfop.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    seen = {
        alias.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == {name: f"halfop.{module}" for name, module in halfop._PLACES.items()}


def test_the_page_names_all() -> None:
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    assert [name for name in halfop.__all__ if name not in page] == []


@pytest.mark.process
def test_the_import_brings_no_spark() -> None:
    program = "import sys, halfop; halfop.UsageError; assert 'pyspark' not in sys.modules; print(halfop.__version__)"
    assert called(program).stdout.strip() == halfop.__version__


PLAIN = """
import halfop
from pyspark.sql import SparkSession
try:
    halfop.open(SparkSession.builder.master("local[1]").getOrCreate(), "warehouse")
except halfop.UsageError as error:
    print(error)
"""
NONE = """
import halfop
wh = halfop.open(root="warehouse")
print(wh.decisions().count(), wh.spark.sparkContext.master)
"""
OWN = """
import sys, json, halfop
from pyspark.sql import SparkSession
own = {"spark.sql.shuffle.partitions": "1", "spark.sql.session.timeZone": "Asia/Tokyo"}
spark = SparkSession.builder.master("local[1]").config(map=halfop.spark_conf() | own).getOrCreate()
wh = halfop.open(spark, "warehouse")
wh.land_files(half=[sys.argv[1]], op=[sys.argv[2]])
print(json.dumps(wh.reconcile().decisions), wh.topic("T").count(), spark.conf.get("spark.sql.session.timeZone"))
"""
STOPPED = """
import sys, halfop
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config(map=halfop.spark_conf()).getOrCreate()
wh = halfop.open(spark, "warehouse")
wh.land_files(half=[sys.argv[1]])
wh.reconcile()
wh.land_files(half=[sys.argv[2]])
spark.stop()
for call in (wh.reconcile, lambda: wh.land_files(half=[sys.argv[1]]), lambda: wh.follow_once(wh.reconcile)):
    try:
        call()
    except halfop.HalfopError as error:
        print(error)
"""


@pytest.mark.process
def test_a_plain_session_is_refused_with_the_way_out(tmp_path: Path) -> None:
    said = called(PLAIN, folder=tmp_path).stdout
    assert "this session lacks halfop's jars" in said
    assert "SparkSession.builder.config(map=halfop.spark_conf())" in said
    assert not (tmp_path / "warehouse").exists()


@pytest.mark.thorough
@pytest.mark.process
def test_without_a_session_there_is_a_new_one(tmp_path: Path) -> None:
    done = called(NONE, folder=tmp_path)
    assert (done.stdout.split()[0], "WARN" in done.stderr) == ("0", False)


@pytest.mark.thorough
@pytest.mark.process
def test_a_session_of_ones_own(tmp_path: Path) -> None:
    halves, ops = lines(tmp_path / "h.jsonl", half(1)), lines(tmp_path / "o.jsonl", op(1, "1"))
    said = called(OWN, halves, ops, folder=tmp_path).stdout.strip().splitlines()[-1]
    assert said == json.dumps({"COMMIT": {"PRODUCER": 1}}) + " 1 Asia/Tokyo"


@pytest.mark.thorough
@pytest.mark.process
def test_a_stopped_session_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    first, second = lines(tmp_path / "h.jsonl", half(1)), lines(tmp_path / "i.jsonl", half(2))
    said = called(STOPPED, first, second, folder=tmp_path).stdout
    assert said.count("session of this warehouse was stopped, so this call did nothing: open the warehouse again") == 3
    commits = list((tmp_path / "warehouse/runs/_delta_log").glob("*.json"))
    assert len(commits) == 3, "the table, and run 1: OPENED, CLOSED"


def called(program: str, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a program as a user's Python would, with nothing of the launcher but where the jars and Java are."""
    kept = ("PATH", "JAVA_HOME", "HALFOP_JAVA", "HALFOP_JARS", "SPARK_LOCAL_IP")
    environ = {name: os.environ[name] for name in kept if name in os.environ} | {"PYTHONPATH": str(ROOT / "lib")}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done
