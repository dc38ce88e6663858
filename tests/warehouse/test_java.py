"""Calls of Java: lists that travel in one call, and what is remembered of tables."""

from __future__ import annotations

import shutil
from collections import deque
from typing import Any, cast

import pytest
from halfop.warehouse.java import remember_names
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import NO_TABLE, Marker, Warehouse
from py4j.java_gateway import GatewayClient, java_import
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


@pytest.mark.parametrize("number", [0, 1, 15, 16, 17, 32, 33, 40])
def test_any_number_of_columns_comes_in_its_order(spark: SparkSession, number: int) -> None:
    columns = [F.lit(n).alias(f"c{n}") for n in range(number)]
    rows = spark.range(1).select(*columns)
    assert rows.columns == [f"c{n}" for n in range(number)]
    assert list(rows.collect()[0]) == list(range(number))
    assert rows.drop(*rows.columns[1:]).columns == rows.columns[:1]
    assert rows.dropDuplicates(deque(rows.columns)).count() == 1  # type: ignore[arg-type]


def test_few_calls_pass_many_columns(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, send = [F.col("id").alias(f"c{n}") for n in range(40)], GatewayClient.send_command
    calls: list[str] = []

    def counted(self: GatewayClient, command: str, *arguments: Any) -> Any:
        calls.append(command)
        return send(self, command, *arguments)

    monkeypatch.setattr(GatewayClient, "send_command", counted)
    spark.range(1).select(*columns)
    assert 3 <= sum(each.startswith("c") for each in calls) < 12


def test_a_constant_keeps_its_type_and_is_made_once(spark: SparkSession) -> None:
    values = (1, True, "1", 1.0, None, 0, False, 1)
    rows = spark.range(1).select(*[F.lit(value).alias(str(n)) for n, value in enumerate(values)])
    wanted = ["int", "boolean", "string", "double", "void", "int", "boolean", "int"]
    assert (tuple(rows.collect()[0]), [kind for _, kind in rows.dtypes]) == (values, wanted)
    assert F.lit(1)._jc is F.lit(1)._jc is cast(Any, spark._jvm).functions.lit(1)
    assert F.lit("long" * 100)._jc is not F.lit("long" * 100)._jc
    assert F.col("a")._jc is F.col("a")._jc
    assert [str(F.col(name)) for name in ("a", "A", "a.b")] == ["Column<'a'>", "Column<'A'>", "Column<'a.b'>"]


@pytest.mark.parametrize("columns", [True, False])
def test_columns_are_shared_only_if_that_is_asked_for(spark: SparkSession, columns: bool) -> None:
    """A column that shows who made it must not be another's."""
    gateway = cast(Any, spark.sparkContext)._gateway
    view = gateway.new_jvm_view()
    for name in ("org.apache.spark.sql.*", "org.apache.spark.sql.api.python.*", "org.apache.spark.api.python.*"):
        java_import(view, name)
    for _ in range(2):
        remember_names(view, columns=columns)
    assert (view.functions.lit(1) is view.functions.lit(1)) == columns
    assert view.functions.col("a").toString() == "a"


def test_what_another_commits_and_removes_is_seen(warehouse: Warehouse) -> None:
    other = KernelWarehouse(warehouse.spark, warehouse.root)
    row = {"topic": "T", "directory": "T", "run_id": 1}
    for run_id in (1, 2):
        other.commit("topics_index", [row | {"run_id": run_id}], Marker("halfop.test", run_id))
        assert (warehouse.version("topics_index"), warehouse.marker("topics_index", "halfop.test")) == (
            run_id - 1,
            run_id,
        )
    assert [each["run_id"] for each in warehouse.rows("topics_index", 0)] == [1]
    shutil.rmtree(warehouse.path("topics_index"))
    assert warehouse.version("topics_index") == NO_TABLE
    other.commit("topics_index", [row | {"run_id": 3}], Marker("halfop.test", 3))
    assert [each["run_id"] for each in warehouse.rows("topics_index", 0)] == [3]
