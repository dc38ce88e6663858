"""What a warehouse through Spark's public API refuses, and what several of its clients may do at once."""

from __future__ import annotations

import inspect
import socket
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from halfop.columns import keys
from halfop.frame.errors import InputRefused, TransientError, UsageError
from halfop.submit import command_line
from halfop.warehouse import by_spark
from halfop.warehouse.by_spark import SparkWarehouse
from halfop.warehouse.given import refuse_unfit_server
from halfop.warehouse.lock import UNFINISHED, hold
from halfop.warehouse.schema import delta_table
from halfop.warehouse.session import AT_START, session_settings, spark_session
from halfop.warehouse.spark_log import SparkLog
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession


@pytest.mark.parametrize("word", ["local", "localhost:15002", "sc://", "sc://h:x", "http://h:15002"])
def test_what_is_no_server_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="as sc://host:15002"):
        _ = command_line(["--remote", word, "reconcile"]).remote


@pytest.mark.parametrize("word", ["sc://h", "sc://h:15002", "sc://[::1]:15002", "sc://h:443/;token=a;use_ssl=true"])
def test_a_server_is_known(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command_line([f"--remote={word}", "reconcile"]).remote == word
    monkeypatch.setenv("SPARK_REMOTE", word)
    assert command_line(["reconcile"]).remote == word


def test_a_server_where_nobody_listens_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    monkeypatch.setenv("SPARK_REMOTE", f"sc://127.0.0.1:{port}")
    for proxy in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(proxy, raising=False)
    with pytest.raises(TransientError, match=f"no server of Spark Connect answers at 127.0.0.1:{port}"):
        spark_session("tests")


def test_a_server_whose_commits_are_not_safe_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "spark.delta.logStore.file.impl"
    with session_settings(spark, {key: "another.Store"}):  # a client's counts for nothing there
        refuse_unfit_server(spark, str(tmp_path))
        monkeypatch.setitem(AT_START, key, "another.Store")
        with pytest.raises(UsageError, match=f"was started without {key}=another.Store"):
            refuse_unfit_server(spark, str(tmp_path))
        assert spark.conf.get(key) == "another.Store"


@pytest.mark.parametrize("scheme", ["hdfs", "abfs", "abfss", "gs", "s3a"])
def test_stores_that_refuse_a_second_commit_are_known(spark: SparkSession, scheme: str) -> None:
    refuse_unfit_server(spark, f"{scheme}://host/warehouse")


@pytest.mark.parametrize("root", ["oss://b/w", "cosn://b/w", "obs://b/w", "s3://b/w", "s3n://b/w", "dbfs:/w"])
def test_stores_that_may_lose_a_commit_are_refused_through_a_server(spark: SparkSession, root: str) -> None:
    with pytest.raises(UsageError, match=r"nobody can try whether this store refuses .* by s3a://"):
        refuse_unfit_server(spark, root)


def test_a_table_is_where_the_server_says(spark: SparkSession, tmp_path: Path) -> None:
    """A catalog has that: a root may leave out what the server's file system adds."""
    warehouse = SparkWarehouse(spark, str(tmp_path))
    assert warehouse.uri("runs") == f"{tmp_path}/runs"
    warehouse.make("runs")
    assert warehouse.uri("runs") == f"file:{tmp_path}/runs"


def test_a_warehouse_that_is_half_repaired_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = SparkWarehouse(spark, str(tmp_path))
    with hold(warehouse, "run"):
        pass
    mark = tmp_path / UNFINISHED
    mark.parent.mkdir()
    mark.touch()
    with pytest.raises(InputRefused, match="stopped before it had finished"), hold(warehouse, "run"):
        pass


def test_who_makes_a_table_or_a_column_second_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = SparkWarehouse(spark, str(tmp_path))
    warehouse.make("runs")
    add = f"ALTER TABLE {delta_table(warehouse.path('runs'))} ADD COLUMNS (more INT)"
    for _ in range(2):
        warehouse.log._unless_overtaken(add)
    with pytest.raises(PySparkException):
        warehouse.log._unless_overtaken(f"{add} NOW")


def test_rows_of_any_number_go_to_spark_in_pieces(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, schema = SparkWarehouse(spark, str(tmp_path)), pa.schema([("n", pa.int64()), ("text", pa.string())])
    batches = [pa.RecordBatch.from_pylist([{"n": n, "text": "x" * 90} for n in range(10)], schema)] * 2
    few = warehouse.sent(schema, batches, "few")
    assert isinstance(few, pa.Table)
    assert len(few) == 20
    monkeypatch.setattr(by_spark, "_PIECE", 500)
    many = warehouse.sent(schema, batches, "many")
    assert isinstance(many, DataFrame)
    assert sorted(row["n"] for row in many.collect()) == sorted([*range(10)] * 2)
    assert len(list((tmp_path / "many").iterdir())) > 1
    large = [pa.RecordBatch.from_pylist([{"n": n, "text": "x" * 290}], schema) for n in range(5)]
    assert all(sum(part.nbytes for part in piece.to_batches()) <= 500 for piece in by_spark._pieces(schema, large))
    for folder in ("few", "many"):
        warehouse.forget(folder)
    assert not [file for file in tmp_path.rglob("*") if file.suffix == ".parquet"]


def test_a_known_version_takes_no_look_into_the_history(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, others = (SparkWarehouse(spark, str(tmp_path)) for _ in range(2))
    mine.commit("runs", [{"run_id": 1}])
    assert (mine.version("runs"), len(mine.rows("runs"))) == (1, 1)
    monkeypatch.setattr(SparkLog, "_described", None)
    others.commit("runs", [{"run_id": 2}])
    assert (mine.version("runs"), len(mine.rows("runs"))) == (2, 2)
    monkeypatch.setattr(SparkWarehouse, "_at", None)
    assert len(mine.rows("runs")) == 2


def test_what_makes_rows_has_a_signature() -> None:
    """Spark Connect's client looks at it, and `map` has none."""
    assert inspect.getfullargspec(partial(keys._each, list)).args == ["batches"]
