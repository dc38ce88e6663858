"""Every table by readers that know no halfop: Spark 3.5 with Delta 3.3, DuckDB, polars and deltalake see one truth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import SparkSession
from support.fetched import fetched_jars, packages
from support.places import ROOT
from support.reader_version import needs_more

from systems.readers.read import READERS, lines
from systems.readers.readable import OLD, readable

pytestmark = [pytest.mark.sparks, pytest.mark.timeout(3600)]
_LOCK = ROOT / "requirements" / "readers.lock"
_SECONDS = 900
Read = Mapping[str, list[str]]


def read(reader: str, tables: Sequence[str]) -> Read:
    """The rows of each table as that reader gives them, in a process of its own."""
    java = os.environ["HALFOP_JAVA"]
    ours = ("SPARK", "PYSPARK", "PYTHON", "HALFOP_", "LOG4J", "JDK_JAVA")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environ |= {
        "PYTHONPATH": f"{packages('readers', 'packages', _LOCK)}:{ROOT}/tests",
        "PYSPARK_PYTHON": sys.executable,
    }
    environ |= {"TZ": "UTC", "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": str(Path(java).parents[1])}
    command = [sys.executable, "-m", "systems.readers.read", reader, str(fetched_jars("readers")), *tables]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=_SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    found: Read = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def ours(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """The rows of every table as Spark 4.2 reads them, by the table's path."""
    warehouse = KernelWarehouse(spark, str(tmp_path_factory.mktemp("readers") / "warehouse"))
    with pytest.MonkeyPatch.context() as patch:
        readable(warehouse, patch)
    assert needs_more(warehouse.root) == set()
    folders = sorted(str(log.parent) for log in Path(warehouse.root).rglob("_delta_log"))
    frames = {folder: spark.read.format("delta").load(folder) for folder in folders}
    return {folder: lines(frame.toArrow().to_pylist()) for folder, frame in frames.items()}


def test_there_is_something_to_read(ours: Read) -> None:
    rows = {folder.partition("/warehouse/")[2]: found for folder, found in ours.items()}
    of_topics = {name.partition("/")[2]: len(found) for name, found in rows.items() if name.startswith("topics/")}
    assert of_topics == {"T": 3, OLD: 3, "U": 0, "orders": 4, "~RETRY~g": 1}
    assert all(rows[name] for name in ("half_messages", "op_messages", "decisions", "runs", "rejected", "erasures"))
    whole = "\n".join(rows["topics/orders"])
    assert all(word in whole for word in ("订单 😀", '"price", "-1.50"', "Expected `int`", '[["a", 1], ["b", 2]]'))


@pytest.mark.parametrize("reader", READERS)
def test_each_reads_all_rows_of_every_table(ours: Read, reader: str) -> None:
    found = read(reader, list(ours))
    known = ours if reader != "trino" else {table: _in_milliseconds(rows) for table, rows in ours.items()}
    assert [table for table in ours if found[table] != known[table]] == []


def _in_milliseconds(rows: list[str]) -> list[str]:
    """Trino knows times of Delta to the millisecond; only a column `at` has more."""
    found = [dict(json.loads(row)) for row in rows]
    rounded = [{**row, "at": (row["at"] + 500) // 1000 * 1000} if "at" in row else row for row in found]
    return sorted(json.dumps([*row.items()], ensure_ascii=False) for row in rounded)
