"""`resolve`: what business data says of open transactions, and when its silence says something."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from halfop.ending.resolve import Resolved, ResolveRequest, resolve
from halfop.frame.cli import main
from halfop.frame.errors import InputRefused, UsageError
from halfop.frame.summary import Summary
from halfop.landing.files.sources import InputFiles
from halfop.settings.business import Resolution
from halfop.warehouse.kernel import KernelWarehouse
from pydantic import ValidationError
from pyspark.sql import SparkSession
from support import rows as r
from support.entry_points import job_of
from support.messages import KNOWN, NOW, RULES, half
from support.places import ROOT

BORN = r.instant(NOW - 10_000)
MINUTE = timedelta(minutes=1)
DAY = 24 * 3_600_000  # milliseconds
EVER = "1970-01-01T00:00:00Z"
COMMITTED, ROLLED_BACK, NOT_KNOWN, BOTH, ABSENT, OTHER_GROUP, BROKEN, NO_KEYS = range(8)
ORDERS = """SELECT id AS key, state,
    CASE state WHEN 'PAID' THEN 'COMMIT' WHEN 'CANCELLED' THEN 'ROLLBACK' END AS outcome FROM orders"""
BOTH_STATES = [("k0", "PAID"), ("k1", "CANCELLED"), ("k2", "NEW"), ("k3", "PAID"), ("k3", "CANCELLED"), ("k5", "PAID")]


def landed(offset: int, body: bytes, **cells: Any) -> dict[str, Any]:
    made = half(offset, body=body, group="other" if offset == OTHER_GROUP else "g")
    return r.half_cells(made, NOW) | {"keys": f"x{offset} K-{offset}"} | cells


def body(offset: int) -> bytes:
    return b'{"order": {"id": %d}, "text": "\xc3\xa4"}' % (1000 + offset)


@pytest.fixture(scope="module")
def hanging(new_warehouse: Callable[[str], KernelWarehouse]) -> KernelWarehouse:
    """One open message for each of the names above; BROKEN has a compressed body that is none."""
    made = new_warehouse("hanging")
    r.land(made, [], [], NOW, KNOWN)
    rows = [landed(n, body(n)) for n in range(BROKEN)]
    rows[COMMITTED] |= {"body": zlib.compress(body(COMMITTED)), "sys_flag": 1}
    rows.append(landed(BROKEN, b"no stream", sys_flag=1))
    rows.append(landed(NO_KEYS, b"no JSON", keys=None))
    r.append(made, "half_messages", rows)
    assert r.run(made, RULES, NOW).decisions == {"CHECK": {"TIMEOUT": 8}}
    return made


@pytest.fixture
def orders(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Writes a table of orders; returns the settings that name it."""

    def write(rows: list[tuple[Any, str]], at: datetime | None = None, of: pa.DataType | None = None) -> dict[str, Any]:
        ids, states = ([row[n] for row in rows] for n in (0, 1))
        times = pa.array([at] * len(rows), pa.timestamp("us", "UTC"))
        table = pa.table({"id": pa.array(ids, of or pa.string()), "state": pa.array(states, pa.string()), "at": times})
        pq.write_table(table, tmp_path / "orders.parquet")
        return {"orders": {"path": str(tmp_path / "orders.parquet"), "format": "parquet"}}

    return write


def resolved(warehouse: KernelWarehouse, how: dict[str, Any], **given: Any) -> tuple[Summary, Resolved]:
    settings = Resolution.model_validate({"query": ORDERS, **how})
    return resolve(warehouse, ResolveRequest({"g": settings}, **given))


def kinds(found: Resolved) -> dict[int, str]:
    rows = found.plan.rows.to_pylist()
    return {row["queue_offset"]: row["kind"] for row in rows}


def test_outcomes_and_evidence(hanging: KernelWarehouse, orders: Callable[..., Any]) -> None:
    summary, found = resolved(hanging, {"tables": orders(BOTH_STATES), "evidence": ["state"]})
    assert kinds(found) == {COMMITTED: "COMMIT", ROLLED_BACK: "ROLLBACK"}
    first = found.plan.rows.to_pylist()[0]
    assert (first["origin"], first["evidence"], first["commit_log_offset"]) == ("RESOLVE", '{"state":"PAID"}', 0)
    left_out = {"BOTH_OUTCOMES": 1, "NOT_FOUND": 3, "UNDECIDED": 1}
    assert summary.extra["left_out"] == left_out
    assert summary.extra["groups"] == {"g": {"transactions": 7, "COMMIT": 1, "ROLLBACK": 1, **left_out}}


def test_both_outcomes_are_refused_and_listed(
    hanging: KernelWarehouse, orders: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    _, found = resolved(hanging, {"tables": orders(BOTH_STATES), "evidence": ["state"]})
    (row,) = found.refused.to_pylist()
    assert (row["queue_offset"], row["uniq_key"]) == (BOTH, "k3")
    assert (row["commit_evidence"], row["rollback_evidence"]) == ('{"state":"PAID"}', '{"state":"CANCELLED"}')
    assert "b/0/3 of g: business data says both" in caplog.text


def absent(after: str = "30m", watermark: str = "SELECT max(at) FROM orders", since: str = EVER) -> dict[str, Any]:
    return {"absent_after": timedelta(minutes=int(after[:-1])), "watermark": watermark, "complete_since": since}


def test_what_is_absent_from_fresh_data_is_rolled_back(hanging: KernelWarehouse, orders: Callable[..., Any]) -> None:
    fresh = BORN + 30 * MINUTE + timedelta(microseconds=1)
    summary, found = resolved(hanging, {"tables": orders(BOTH_STATES, fresh), **absent()})
    assert kinds(found) == {
        COMMITTED: "COMMIT",
        **dict.fromkeys((ROLLED_BACK, ABSENT, BROKEN, NO_KEYS), "ROLLBACK"),
    }, "but not what is there without an outcome"
    evidence = next(row for row in found.plan.rows.to_pylist() if row["queue_offset"] == ABSENT)["evidence"]
    told = {"absent_after": "30m", "watermark": fresh.isoformat(), "complete_since": "1970-01-01T00:00:00+00:00"}
    assert json.loads(evidence) == told
    group = summary.extra["groups"]["g"]
    assert (group["watermark"], group["rolled back as absent"]) == (fresh, 3)
    assert group["complete since"] == datetime(1970, 1, 1, tzinfo=timezone.utc)


def test_a_key_that_fits_no_message_is_warned_of(
    hanging: KernelWarehouse, orders: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    resolved(hanging, {"by": "uniq_key", "tables": orders([("K0", "PAID")], BORN + 60 * MINUTE), **absent()})
    assert "nothing was found of any transaction" in caplog.text


@pytest.mark.parametrize(
    ("rows", "at"),
    [
        (BOTH_STATES, BORN + 30 * MINUTE),
        (BOTH_STATES, None),
        (BOTH_STATES, datetime.now(timezone.utc) + 60 * MINUTE),
        ([], None),
    ],
    ids=["stale", "null", "in the future", "empty"],
)
def test_a_business_table_that_is_not_fresh_ends_nothing_by_absence(
    hanging: KernelWarehouse, orders: Callable[..., Any], rows: list[Any], at: datetime | None
) -> None:
    summary, found = resolved(hanging, {"tables": orders(rows, at), **absent()})
    assert kinds(found) == ({COMMITTED: "COMMIT", ROLLED_BACK: "ROLLBACK"} if rows else {})
    assert summary.extra["left_out"]["NOT_FRESH"] == (3 if rows else 7)


@pytest.mark.parametrize(
    ("since", "covered"),
    [
        (BORN.isoformat(), True),
        ((BORN + timedelta(microseconds=1)).isoformat(), False),
        (f"SELECT TIMESTAMP '{BORN.isoformat()}'", True),
        ("SELECT min(at) FROM orders", False),
        ("SELECT CAST(NULL AS TIMESTAMP)", False),
        ("SELECT at FROM orders WHERE false", False),
    ],
    ids=["born then", "born before", "a query", "a later query", "null", "no row"],
)
def test_what_the_business_data_does_not_reach_back_to_is_not_absent(
    hanging: KernelWarehouse, orders: Callable[..., Any], since: str, covered: bool
) -> None:
    fresh = BORN + 60 * MINUTE
    summary, found = resolved(hanging, {"tables": orders(BOTH_STATES, fresh), **absent(since=since)})
    by_absence = dict.fromkeys((ABSENT, BROKEN, NO_KEYS), "ROLLBACK") if covered else {}
    assert kinds(found) == {COMMITTED: "COMMIT", ROLLED_BACK: "ROLLBACK"} | by_absence
    assert summary.extra["left_out"].get("NOT_COVERED") == (None if covered else 3)
    assert summary.extra["groups"]["g"]["rolled back as absent"] == len(by_absence)


def test_a_key_that_nobody_has_named_does_not_roll_everything_back(
    hanging: KernelWarehouse, orders: Callable[..., Any]
) -> None:
    """The orders' own ids are in the bodies; without `by` they are compared with the UNIQ_KEYs."""
    how = {"tables": orders([("1000", "PAID"), ("1001", "PAID")], BORN + 60 * MINUTE), **absent()}
    said = r"resolve\.groups\.g: nothing was found of any of 7 transactions by uniq_key, .* Set `by`"
    with pytest.raises(UsageError, match=said):
        resolved(hanging, how)
    assert "ROLLBACK" not in kinds(resolved(hanging, {**how, "absent_after": None})[1]).values()
    assert set(kinds(resolved(hanging, {**how, "by": "uniq_key"})[1]).values()) == {"ROLLBACK"}


def test_a_store_without_its_client_is_refused_with_the_package(hanging: KernelWarehouse) -> None:
    package = (
        r"Spark has no client of s3a:// here\. Add it .*: --packages org\.apache\.hadoop:hadoop-aws:\d+\.\d+\.\d+ "
    )
    with pytest.raises(InputRefused, match=package):
        resolved(hanging, {"tables": {"orders": {"path": "s3a://lake/orders"}}})
    with pytest.raises(InputRefused, match=package):
        InputFiles(hanging.spark).find("half", ["s3a://lake/half.jsonl"])


def test_what_is_neither_fresh_nor_covered_counts_once(hanging: KernelWarehouse, orders: Callable[..., Any]) -> None:
    summary, _ = resolved(hanging, {"tables": orders(BOTH_STATES, BORN), **absent(since="2100-01-01T00:00:00Z")})
    assert summary.extra["left_out"] == {"BOTH_OUTCOMES": 1, "UNDECIDED": 1, "NOT_FRESH": 3}


def test_one_of_several_keys(hanging: KernelWarehouse, orders: Callable[..., Any]) -> None:
    rows = [("K-0  ", "PAID"), ("K-3", "PAID"), ("x3", "CANCELLED"), ("K-7", "PAID")]
    summary, found = resolved(hanging, {"by": "keys", "tables": orders(rows, BORN + 60 * MINUTE), **absent()})
    assert kinds(found) == {COMMITTED: "COMMIT", **dict.fromkeys((ROLLED_BACK, NOT_KNOWN, ABSENT, BROKEN), "ROLLBACK")}
    assert summary.extra["left_out"] == {"BOTH_OUTCOMES": 1, "NO_JOIN_KEY": 1}, "without keys nothing can be absent"


def test_a_field_of_the_body(hanging: KernelWarehouse, orders: Callable[..., Any]) -> None:
    """COMMITTED's is compressed; what cannot be decompressed, or is no JSON, is not absent."""
    tables = orders([(1000, "PAID"), (1001, "CANCELLED"), (1002, "PAID")], BORN + 60 * MINUTE, pa.int64())
    summary, found = resolved(hanging, {"by": "body.$.order.id", "tables": tables, **absent()})
    wanted = {COMMITTED: "COMMIT", ROLLED_BACK: "ROLLBACK", NOT_KNOWN: "COMMIT", BOTH: "ROLLBACK", ABSENT: "ROLLBACK"}
    assert kinds(found) == wanted
    assert summary.extra["left_out"] == {"NO_JOIN_KEY": 2}


def test_an_object_of_the_body_is_no_key(hanging: KernelWarehouse, orders: Callable[..., Any]) -> None:
    """Else it would be absent from all business data."""
    tables = orders([("1000", "PAID")], BORN + 60 * MINUTE)
    summary, found = resolved(hanging, {"by": "body.$.order", "tables": tables, **absent()})
    assert (kinds(found), summary.extra["left_out"]) == ({}, {"NO_JOIN_KEY": 7})


def test_a_path_to_several_values_is_refused() -> None:
    with pytest.raises(ValidationError, match="a JSON path to one value"):
        Resolution.model_validate({"query": ORDERS, "by": "body.$.items[*].id"})


def test_the_caller_s_own_views_come_back(hanging: KernelWarehouse, orders: Callable[..., Any]) -> None:
    spark = hanging.spark
    for name in ("orders", "open_transactions"):
        spark.createDataFrame([(name,)], "a string").createOrReplaceTempView(name)
    _, found = resolved(hanging, {"tables": orders(BOTH_STATES)})
    assert kinds(found) == {COMMITTED: "COMMIT", ROLLED_BACK: "ROLLBACK"}
    for name in ("orders", "open_transactions"):
        assert [row["a"] for row in spark.table(name).collect()] == [name]
        spark.catalog.dropTempView(name)


def test_the_query_may_name_the_open_transactions(hanging: KernelWarehouse) -> None:
    query = "SELECT key, 'ROLLBACK' AS outcome FROM open_transactions WHERE real_topic = 'T' AND queue_offset < 2;"
    _, found = resolved(hanging, {"query": query})
    assert kinds(found) == {COMMITTED: "ROLLBACK", ROLLED_BACK: "ROLLBACK"}
    assert not hanging.spark.catalog.tableExists("open_transactions"), "the view is removed"


def test_young_ones_are_left_out_and_many_refused(hanging: KernelWarehouse, orders: Callable[..., Any]) -> None:
    how = {"tables": orders(BOTH_STATES)}
    summary, found = resolved(hanging, how, min_age=timedelta(days=36_500))
    assert (len(found.plan), summary.extra["left_out"]) == (0, {"TOO_YOUNG": 7})
    with pytest.raises(UsageError, match=r"2 transactions .* end\.limit is 1"):
        resolved(hanging, how, limit=1)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            {"query": "SELECT id AS key, state AS outcome FROM orders"},
            "query: .*expected COMMIT, ROLLBACK or null; .*PAID",
        ),
        (
            {"query": "SELECT id AS kei, NULL AS outcome FROM orders"},
            "query: expected one column key; .*did you mean kei",
        ),
        ({"query": "SELECT 1.5D AS key, 'COMMIT' AS outcome"}, "query: key: expected a text or a whole number.*DOUBLE"),
        ({"query": "SELEC 1"}, "query: .*Syntax error"),
        ({"query": "DROP TABLE orders"}, "query: .*Syntax error"),
        ({"query": "SELECT * FROM order"}, r"query: .*order"),
        ({"evidence": ["stat"]}, "query: expected one column stat; .*did you mean state"),
        (absent(watermark="SELECT at FROM orders"), "watermark: expected one row"),
        (absent(watermark="SELECT max(state) FROM orders"), "watermark: max.state.: expected an instant.*STRING"),
        (absent(since="SELECT at FROM orders"), "complete_since: expected one row"),
        (absent(since="SELECT at, at FROM orders"), "complete_since: expected one column"),
    ],
)
def test_a_wrong_query_names_its_group(
    hanging: KernelWarehouse, orders: Callable[..., Any], how: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=rf"(?s)^resolve\.groups\.g\.{said}"):
        resolved(hanging, {"tables": orders(BOTH_STATES), **how})


def test_groups_and_tables_that_are_not_there(hanging: KernelWarehouse) -> None:
    with pytest.raises(InputRefused, match=r"resolve\.groups\.g\.tables\.orders: it cannot be read"):
        resolved(hanging, {"tables": {"orders": {"path": "/nowhere"}}})
    with pytest.raises(UsageError, match=r"--group G: .*did you mean g"):
        resolved(hanging, {}, groups=["G"])
    with pytest.raises(UsageError, match="no producer group is configured"):
        resolve(hanging, ResolveRequest({}))


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_a_table_of_the_catalog(hanging: KernelWarehouse, spark: SparkSession, tmp_path: Path, form: str) -> None:
    orders, how = spark.createDataFrame(BOTH_STATES, "id STRING, state STRING"), {"orders": {"table": "shop.orders"}}
    spark.sql("CREATE DATABASE shop")
    try:
        with pytest.raises(InputRefused, match=r"shop.*orders.*cannot be found"):
            resolved(hanging, {"tables": how})
        orders.write.format(form).option("path", str(tmp_path / form)).saveAsTable("shop.orders")
        _, found = resolved(hanging, {"tables": how})
        spark.sql("INSERT INTO shop.orders VALUES ('k2', 'PAID')")
        _, later = resolved(hanging, {"tables": how})
    finally:
        spark.sql("DROP DATABASE shop CASCADE")
    assert kinds(found) == {COMMITTED: "COMMIT", ROLLED_BACK: "ROLLBACK"}
    assert kinds(later) == kinds(found) | {NOT_KNOWN: "COMMIT"}, "as the table is now"


def test_a_database_by_jdbc(hanging: KernelWarehouse, spark: SparkSession, tmp_path: Path) -> None:
    """Derby comes with Spark."""
    url, driver = f"jdbc:derby:{tmp_path}/shop;create=true", "org.apache.derby.iapi.jdbc.AutoloadedDriver"
    rows = spark.createDataFrame(BOTH_STATES, "id STRING, state STRING")
    options = {"dbtable": "orders", "driver": driver, "createTableColumnTypes": "id CHAR(20), state CHAR(20)"}
    rows.write.format("jdbc").options(url=url, **options).save()
    trimmed = '(SELECT "id", trim("state") AS "state" FROM orders) o'
    table = {"url": url, "dbtable": trimmed, "properties": {"driver": driver}}
    _, found = resolved(hanging, {"tables": {"orders": table}})
    assert kinds(found) == {COMMITTED: "COMMIT", ROLLED_BACK: "ROLLBACK"}


def test_an_order_older_than_the_window_of_the_docs_stays_open(
    warehouse: KernelWarehouse, spark: SparkSession, tmp_path: Path
) -> None:
    """The page's example as it stands there, but by Derby, and with a fixed instant in place of now()."""
    page = (ROOT / "docs" / "ending.md").read_text()
    groups = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    how, database = groups[0]["resolve"]["groups"]["orders"], groups[1]
    days = [NOW - 4 * DAY, NOW - 2 * DAY, NOW - 2 * DAY]
    r.land(warehouse, [replace(half(n), born=born, store=born) for n, born in enumerate(days)], [], NOW, KNOWN)
    assert r.run(warehouse, replace(RULES, file_reserved_time=7 * DAY), NOW).decisions == {"CHECK": {"TIMEOUT": 3}}
    url, driver = f"jdbc:derby:{tmp_path}/shop;create=true", "org.apache.derby.iapi.jdbc.AutoloadedDriver"
    paid = [(f"k{n}", "PAID", r.instant(born), r.instant(NOW)) for n, born in enumerate(days[:2])]
    rows = spark.createDataFrame(paid, "ID STRING, STATE STRING, CREATED_AT TIMESTAMP, UPDATED_AT TIMESTAMP")
    options = {"driver": driver, "createTableColumnTypes": "ID CHAR(20), STATE CHAR(20)"}
    rows.write.format("jdbc").options(url=url, dbtable="ORDERS", **options).save()
    now = f"TIMESTAMP('{r.instant(NOW):%Y-%m-%d %H:%M:%S}')"
    table = database["tables"]["orders"] | {"url": url, "properties": {"driver": driver}, "password_env": None}
    window = f"{{fn TIMESTAMPADD(SQL_TSI_DAY, -3, {now})}}"
    table["dbtable"] = table["dbtable"].replace("now() - interval '3 days'", window)
    assert now in table["dbtable"], "the page shows a window of three days"
    summary, found = resolved(warehouse, how | database | {"by": "uniq_key", "tables": {"orders": table}})
    assert kinds(found) == {1: "COMMIT", 2: "ROLLBACK"}, "k0 is paid, and was created four days ago"
    assert summary.extra["left_out"] == {"NOT_COVERED": 1}


# ---- the job ----

CONFIG = """
resolve:
  groups:
    g:
      tables: {orders: {path: PATH, format: parquet}}
      query: >
        SELECT id AS key, state,
               CASE state WHEN 'PAID' THEN 'COMMIT' WHEN 'CANCELLED' THEN 'ROLLBACK' END AS outcome
        FROM orders LEFT SEMI JOIN open_transactions USING (key)
      evidence: [state]
""".replace(" USING (key)", " t ON t.key = id")


@pytest.mark.usefixtures("logging_as_before")
def test_from_business_data_to_decisions(
    warehouse: KernelWarehouse, orders: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def called(job: str, *options: str) -> tuple[int, dict[str, Any]]:
        status = main(job_of(job), ["--warehouse", warehouse.root, "--config", str(config), *options])
        return status, json.loads(capsys.readouterr().out.splitlines()[-1])

    config, plan = tmp_path / "halfop.yaml", tmp_path / "plan.jsonl"
    config.write_text(CONFIG.replace("PATH", orders(BOTH_STATES)["orders"]["path"]))
    r.land(warehouse, [half(n) for n in range(5)], [], NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    assert called("resolve", "--plan", str(plan), "--broker", "b:1")[0] == 2, "that is for --apply"
    status, said = called("resolve", "--plan", str(plan))
    assert (status, said["planned"], said["left_out"]) == (0, 2, {"BOTH_OUTCOMES": 1, "NOT_FOUND": 1, "UNDECIDED": 1})
    assert said["refused"] == str(tmp_path / "plan.refused.jsonl")
    (refused,) = map(json.loads, (tmp_path / "plan.refused.jsonl").read_text().splitlines())
    assert (refused["queue_offset"], refused["rollback_evidence"]) == (BOTH, '{"state":"CANCELLED"}')
    assert called("resolve", "--plan", str(plan))[0] == 2, "the file is there already"
    assert warehouse.version("endings") == -1, "a plan ends nothing"
    assert called("end", "--apply", str(plan), "--set", "end.brokers=b")[0] == 0
    endings = {(row["queue_offset"], row["origin"], row["evidence"]) for row in warehouse.read("endings").collect()}
    assert endings == {(0, "RESOLVE", '{"state":"PAID"}'), (1, "RESOLVE", '{"state":"CANCELLED"}')}
    r.run(warehouse, RULES, NOW + 1)
    last = {(d.key[2], d.decision, d.reason) for d in r.decisions(warehouse, 2)}
    assert {(0, "COMMIT", "CHECK"), (1, "ROLLBACK", "CHECK"), (2, "WAIT", "CHECKED_RECENTLY")} <= last
    status, said = called("resolve", "--apply", "--plan", str(tmp_path / "next.jsonl"))
    assert (status, said["planned"], said.get("plan")) == (0, 0, None), "nothing is left to end"


@pytest.mark.thorough
@pytest.mark.usefixtures("logging_as_before")
def test_at_once_with_apply(
    warehouse: KernelWarehouse, orders: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "halfop.yaml"
    config.write_text(CONFIG.replace("PATH", orders(BOTH_STATES)["orders"]["path"]))
    r.land(warehouse, [half(0), half(1)], [], NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    options = ["--warehouse", warehouse.root, "--config", str(config), "--apply", "--plan", str(tmp_path / "p.parquet")]
    assert main(job_of("resolve"), options) == 2, "nobody has allowed it"
    (tmp_path / "p.parquet").unlink()
    capsys.readouterr()
    assert main(job_of("resolve"), [*options, "--set", "end.brokers=b"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["endings"] == {"SENT": 2}
