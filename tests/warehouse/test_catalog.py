"""The tables by name: what they are called, what is refused, and what a user of SQL sees in a real metastore."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from halfop.frame.errors import UsageError
from halfop.frame.summary import Summary
from halfop.settings import model as s
from halfop.warehouse.by_spark import SparkWarehouse
from halfop.warehouse.catalog import Catalog, topic_names
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.schema import comment, table
from halfop.warehouse.tables import Marker
from support import rows as r
from support.crash import ended, job, script_of
from support.messages import NOW
from support.places import DATA

SCHEMA = "halfop_by_name"


Store = KernelWarehouse | SparkWarehouse


def named(*directories: str) -> list[str]:
    rows = [{"run_id": n, "topic": name, "directory": name} for n, name in enumerate(directories)]
    return list(topic_names(reversed(rows)))


@pytest.mark.parametrize(
    ("directories", "names"),
    [
        (["orders"], ["topic_orders"]),
        (["Orders"], ["topic_orders"]),
        (["~RETRY~g", "a-b.0f"], ["topic__retry_g", "topic_a_b_0f"]),
        (["a-b", "a_b", "A-B"], ["topic_a_b", "topic_a_b_2", "topic_a_b_3"]),
        (["a_b_2", "a-b", "a_b"], ["topic_a_b_2", "topic_a_b", "topic_a_b_3"]),
        (["`; DROP TABLE x --"], ["topic____drop_table_x___"]),
    ],
)
def test_names_of_topics(directories: list[str], names: list[str]) -> None:
    """Names follow the order in which topics came, whatever comes later."""
    assert named(*directories) == names
    for upto in range(len(directories)):
        assert named(*directories[:upto]) == names[:upto]


@pytest.fixture
def schema(warehouse: Store) -> Iterator[str]:
    yield SCHEMA
    warehouse.spark.sql(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def published(warehouse: Store, schema: str) -> Summary:
    return Catalog(warehouse, schema).publish(Summary("reconcile"))


def described(warehouse: Store, name: str) -> str | None:
    return warehouse.spark.catalog.getTable(name).description


def commented(warehouse: Store, name: str) -> dict[str, str]:
    return {c.name: c.description or "" for c in warehouse.spark.catalog.listColumns(name)}


def made(warehouse: Store, run_id: int, **topics: str) -> None:
    """A run's first messages of these topics, as a catalog sees them."""
    rows = [{"topic": t, "directory": d, "run_id": run_id, "created_at": r.instant(NOW)} for d, t in topics.items()]
    warehouse.commit("topics_index", rows, Marker("tests", run_id))
    for directory, topic in topics.items():
        spec = replace(table("real_topic"), comment=comment(topic))
        make = warehouse.log.create if isinstance(warehouse, KernelWarehouse) else warehouse.log.complete
        make(warehouse.path(f"topics/{directory}"), spec)


def test_tables_get_their_names_once(warehouse: Store, schema: str) -> None:
    warehouse.make("half_messages", "decisions")
    made(warehouse, 1, **{"Orders": "Orders", "a-b": "a-b", "~RETRY~g": "%RETRY%g"})
    tables = {
        "half_messages": "half_messages",
        "decisions": "decisions",
        "topics_index": "topics_index",
        "topic_orders": "topics/Orders",
        "topic_a_b": "topics/a-b",
        "topic__retry_g": "topics/~RETRY~g",
    }
    before = {directory: warehouse.version(directory) for directory in tables.values()}
    first = published(warehouse, schema)
    assert (first.status, set(first.extra["named_tables"])) == (0, {f"{schema}.{name}" for name in tables})
    for name, directory in tables.items():
        by_path = warehouse.spark.read.format("delta").load(warehouse.path(directory))
        assert warehouse.spark.table(f"{schema}.{name}").inputFiles() == by_path.inputFiles()
        assert warehouse.version(directory) == before[directory], "no commit to a table's own log"
    for name in ("half_messages", "decisions"):
        assert commented(warehouse, f"{schema}.{name}") == {c.name: c.comment for c in table(name).columns}
        assert described(warehouse, f"{schema}.{name}") == table(name).comment
    assert described(warehouse, f"{schema}.topic__retry_g") == comment("%RETRY%g")
    assert published(warehouse, schema).extra == {}
    made(warehouse, 2, a_b="a_b")
    assert published(warehouse, schema).extra == {"named_tables": [f"{schema}.topic_a_b_2"]}


def test_a_name_that_is_taken_is_refused_and_the_others_are_given(warehouse: Store, schema: str) -> None:
    warehouse.make("half_messages", "decisions")
    warehouse.spark.sql(f"CREATE SCHEMA {schema}")
    warehouse.spark.sql(f"CREATE TABLE {schema}.decisions USING delta AS SELECT 1 AS mine")
    summary = published(warehouse, schema)
    assert summary.status == 1
    assert summary.extra["named_tables"] == [f"{schema}.half_messages"]
    ((name, problem),) = summary.extra["failed_catalog"].items()
    assert name == f"{schema}.decisions"
    assert "the name is taken by" in problem
    assert warehouse.spark.table(f"{schema}.decisions").collect() == [(1,)]


def test_a_temporary_view_of_that_name_is_another_thing(warehouse: Store, schema: str) -> None:
    warehouse.make("decisions")
    warehouse.spark.range(1).createOrReplaceTempView("decisions")
    try:
        assert published(warehouse, schema).extra == {"named_tables": [f"{schema}.decisions"]}
    finally:
        warehouse.spark.catalog.dropTempView("decisions")


def test_a_catalog_that_fails_loses_nothing(warehouse: Store) -> None:
    warehouse.make("decisions")
    summary = published(warehouse, "nowhere.halfop")
    assert summary.status == 1
    assert list(summary.extra["failed_catalog"]) == ["nowhere.halfop"]


def test_a_catalog_that_is_forgotten_is_refused(warehouse: Store) -> None:
    for schema in (SCHEMA, f"spark_catalog.{SCHEMA}"):
        with pytest.raises(UsageError, match="forgotten when the job ends"):
            Catalog.of(warehouse, s.Settings.model_validate({"catalog": {"schema": schema}}))
    assert Catalog.of(warehouse, s.Settings()).publish(Summary("land")) == Summary("land")


# ---- a real metastore ----

_LOOK = """
import json, sys
from halfop.warehouse.session import spark_session
spark = spark_session("look", **dict(each.split("=", 1) for each in sys.argv[1:]))
tables = {t.name: t.description for t in spark.catalog.listTables("halfop")}
columns = {c.name: c.description for c in spark.catalog.listColumns("halfop.op_messages")}
rows = spark.sql("SELECT decision, count(*) FROM halfop.decisions GROUP BY ALL ORDER BY 1").collect()
print(json.dumps({"tables": tables, "columns": columns, "rows": [tuple(row) for row in rows]}))
"""


def last(told: tuple[int, str]) -> Any:
    status, said = told
    assert status == 0, said
    return json.loads(next(line for line in reversed(said.splitlines()) if line.startswith("{")))


@pytest.mark.slow
def test_hives_metastore(tmp_path: Path) -> None:
    """Landed and reconciled by jobs as a user starts them, then looked at by name in another process."""
    data = DATA / "oracle" / "10000-5-24"
    metastore = [
        "spark.sql.catalogImplementation=hive",
        f"spark.hadoop.javax.jdo.option.ConnectionURL=jdbc:derby:;databaseName={tmp_path}/metastore;create=true",
        f"spark.sql.warehouse.dir={tmp_path}/elsewhere",
        f"spark.driver.extraJavaOptions=-Dderby.stream.error.file={tmp_path}/derby.log",
    ]
    options = [part for each in metastore for part in ("--conf", each)]
    common = ["--warehouse", f"{tmp_path}/ware house", "--set", "catalog.schema=halfop"]
    files = ["--half", str(data / "half.jsonl"), "--op", str(data / "op.jsonl")]
    landed = last(ended(job(*options, "land", "files", *files, *common)))
    assert "halfop.op_messages" in landed["named_tables"]
    run = last(ended(job(*options, "reconcile", *common)))
    assert "halfop.decisions" in run["named_tables"]
    compiled = "spark.sql.codegen.factoryMode=FALLBACK"  # listTables() can't do without
    seen = last(ended(script_of("python", "-c", _LOOK, *metastore[:3], compiled)))
    assert dict(seen["rows"]) == {decision: sum(reasons.values()) for decision, reasons in run["decisions"].items()}
    known = {name.removeprefix("halfop.") for name in [*landed["named_tables"], *run["named_tables"]]}
    assert seen["tables"].keys() == known
    assert seen["tables"]["decisions"] == table("decisions").comment
    assert seen["columns"] == {c.name: c.comment for c in table("op_messages").columns}
