"""SQL over tables and topics by their names: what is found, what is refused, and how rows are written."""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import halfop
import pyarrow as pa
import pytest
from halfop.command import job_of
from halfop.frame.cli import main
from halfop.frame.errors import UsageError
from halfop.sinks.topics import TopicTables
from halfop.sql.forms import cells, csv_text, json_text
from halfop.sql.views import as_name, views_of
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from support.json_lines import T0, half, lines, op

NOW = datetime.fromtimestamp(T0 / 1000, timezone.utc) + timedelta(minutes=5)
TOPICS = ["T", "orders-eu", "%RETRY%g", "decisions", "Paid", "paid"]
OLD = "订单.新"  # as an older version may have taken it


@pytest.fixture(scope="module")
def wh(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[halfop.Halfop]:
    """A committed message for each topic; one more of T and of S, in the table of all topics."""
    folder = tmp_path_factory.mktemp("sql")
    for number, (topics, layout) in enumerate([(TOPICS, "per_topic"), (["T", "S"], "single")]):
        found = halfop.open(spark, folder / "w", {"topics.layout": layout})
        first = number * len(TOPICS)
        rows = [half(first + n, properties=_about(first + n, topic)) for n, topic in enumerate(topics)]
        named = ",".join(str(row["queue_offset"]) for row in rows)
        halves = lines(folder / f"h{number}.jsonl", *rows)
        found.land_files(half=[halves], op=[lines(folder / f"o{number}.jsonl", op(number, named))], known_until=NOW)
        found.reconcile(now=NOW + timedelta(seconds=number))
    found.warehouse.commit("topics_index", [{"topic": OLD, "directory": "old.1", "run_id": 1, "created_at": NOW}])
    changed = {"topic": F.lit(OLD), "keys": F.lit("=1+1"), "body": F.lit(b"\x00\xff")}
    found.topic("S").withColumns(changed).write.format("delta").save(f"{found.root}/topics/old.1")
    yield found
    for view in spark.sql("SHOW VIEWS").collect():
        spark.catalog.dropTempView(as_name(view["viewName"]))


def _about(offset: int, topic: str) -> dict[str, str]:
    return {"UNIQ_KEY": f"k{offset}", "PGROUP": "g", "REAL_TOPIC": topic, "REAL_QID": "3"}


@pytest.fixture
def at(wh: halfop.Halfop) -> list[str]:
    return ["--warehouse", wh.root]


def counted(wh: halfop.Halfop, name: str) -> int:
    return int(wh.sql(f"SELECT count(*) AS n FROM {name}")["n"][0].as_py())  # noqa: S608


# ---- names ----


def test_a_topic_that_has_no_message_in_the_table_of_all_is_refused(wh: halfop.Halfop) -> None:
    with pytest.raises(UsageError, match="orders-au: no message was committed to that topic; did you mean orders-eu"):
        wh.topic("orders-au")


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("half_messages", 8),
        ("HALF_MESSAGES", 8),
        ("`orders-eu`", 1),
        ("`%RETRY%g`", 1),
        (f"`{OLD}`", 1),
        ("t", 2),
        ("S", 1),
        ("real_topics", 2),
        ("Paid", 1),
    ],
)
def test_every_table_and_topic_has_its_own_name(wh: halfop.Halfop, name: str, rows: int) -> None:
    assert counted(wh, name) == rows


def test_a_topic_with_a_name_that_is_taken_is_said(wh: halfop.Halfop, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "halfop.sql"):
        assert counted(wh, "decisions") == 8
    said = [record.getMessage() for record in caplog.records]
    assert [text.split()[1] for text in said] == ["decisions", "paid"]
    names = [text.rpartition("query it as ")[2] for text in said]
    assert names[0] == "`topics/decisions`"
    assert names[1].startswith("`topics/paid.")
    found = [wh.sql(f"TABLE {name}")["topic"].to_pylist() for name in names]
    assert found == [["decisions"], ["paid"]]


def test_a_view_for_each_topic_whatever_it_is_called() -> None:
    found = views_of({"a`b": "1", "A": "2", "a": "a.9", "RUNS": "runs.8", "select": "3"})
    assert found == {"A": "A", "RUNS": "topics/runs.8", "a": "topics/a.9", "a`b": "a`b", "select": "select"}
    newer = views_of({"Orders": "Orders.1f", "orders": "orders"})
    assert newer == {"orders": "orders", "Orders": "topics/Orders.1f"}, "a topic by a slip of the pen takes no name"
    assert [as_name(name) for name in ("a_1", "1a", "a`b", "ä")] == ["a_1", "`1a`", "`a``b`", "`ä`"]


def test_the_older_topic_keeps_the_name_also_in_the_table_of_all_topics(warehouse: Warehouse) -> None:
    for run_id, topic in ((1, "orders"), (2, "Orders"), (3, "orders")):
        warehouse.commit("real_topics", [{"topic": topic, "run_id": run_id}])
    found = views_of(TopicTables.of(warehouse).names())
    assert (found["orders"], found["Orders"].startswith("topics/Orders.")) == ("orders", True)


def test_all_are_views_of_the_session(wh: halfop.Halfop) -> None:
    wh.views()
    assert wh.spark.table(as_name(OLD)).count() == 1
    shown = {row["viewName"] for row in wh.sql("SHOW VIEWS").to_pylist()}
    assert {"t", "s", OLD, "decisions", "topics/decisions", "runs"} <= shown


# ---- what is refused ----


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO runs SELECT * FROM runs",
        "WITH x AS (SELECT * FROM runs) INSERT INTO runs SELECT * FROM x",
        "FROM runs INSERT INTO runs SELECT *",
        "DROP VIEW runs",
        "-- SELECT\nDROP VIEW runs",
        "/* /* */ SELECT 1 */ DROP VIEW runs",
        "/* /* */ SHOW VIEWS */ DROP VIEW runs",
        "-- \\\nSELECT 1\nDROP VIEW runs",
        "CREATE TABLE x AS SELECT 1",
        "CREATE TEMP VIEW x AS SELECT 1",
        "SET spark.sql.ansi.enabled=false",
        "(DROP VIEW runs)",
        "SELECT 1; DROP VIEW runs",
        "SELECT 1) UNION SELECT * FROM (SELECT 1; DROP VIEW runs",
        "USE x",
        "DELETE FROM runs",
        "BEGIN SELECT 1; END",
        "EXECUTE IMMEDIATE 'DROP VIEW runs'",
        "",
        "-- nothing",
    ],
)
def test_what_does_more_than_read_is_not_started(wh: halfop.Halfop, statement: str) -> None:
    wh.views()
    ansi = wh.spark.conf.get("spark.sql.ansi.enabled")
    with pytest.raises(UsageError) as refused:
        wh.sql(statement)
    assert "\n" not in str(refused.value)
    assert wh.spark.catalog.tableExists("runs")
    assert not wh.spark.catalog.tableExists("x")
    assert wh.spark.conf.get("spark.sql.ansi.enabled") == ansi
    assert wh.warehouse.read("runs").count() == 4


def test_the_refusal_says_what_may_be_asked(wh: halfop.Halfop) -> None:
    for statement in ("INSERT INTO runs VALUES (1)", "WITH x AS (SELECT 1) INSERT INTO runs SELECT * FROM x"):
        with pytest.raises(
            UsageError, match=r"a query \(SELECT, WITH, FROM, VALUES, TABLE\), DESCRIBE, EXPLAIN or SHOW"
        ):
            wh.sql(statement)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SELECT * FROM decsions", "no table or topic decsions; did you mean decisions?"),
        ("SELECT * FROM nothing_like_it", "no table or topic nothing_like_it"),
        ("SELECT * FROM orders-eu", "back quoted"),
        ("SELECT * FROM (SELECT * FROM `orders_eu`)", "no table or topic orders_eu; did you mean orders-eu?"),
        ("SELECT decison FROM decisions", "no column decison; did you mean decision?"),
        ("SELECT d.reson FROM decisions d", "no column d.reson; did you mean d.reason?"),
        ("SELEC 1", "SELEC: this is no statement that only reads"),
        ("SELECT * FORM decisions", "Syntax error at or near 'decisions'"),
        ("SELECT nofunction(1)", "nofunction"),
        ("SELECT run_id / 0 FROM decisions", "DIVIDE_BY_ZERO"),
        ("SELECT CAST(uniq_key AS INT) FROM decisions", "CAST_INVALID_INPUT"),
    ],
)
def test_a_wrong_statement_is_a_sentence(wh: halfop.Halfop, statement: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        wh.sql(statement)
    text = str(refused.value)
    assert said in text
    assert "\n" not in text
    assert "SQLSTATE" not in text


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1 AS a",
        "  select 1 as a ; ",
        "-- a comment\nSELECT 1 AS a -- another",
        "/* a\ncomment */ WITH x AS (SELECT 1 AS a) SELECT * FROM x",
        "FROM decisions SELECT run_id ORDER BY run_id",
        "VALUES (1), (2)",
        "TABLE decisions",
        "(SELECT 1) UNION ALL (SELECT 2)",
        "DESCRIBE decisions",
        "EXPLAIN SELECT 1",
        "SHOW FUNCTIONS",
        "SELECT ';' AS a",
    ],
)
def test_what_reads_is_answered(wh: halfop.Halfop, statement: str) -> None:
    assert wh.sql(statement).num_rows > 0


def test_a_warehouse_without_tables_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(halfop.InputRefused, match="no table of halfop is there"):
        halfop.open(spark, tmp_path / "wrong").sql("SELECT * FROM decisions")


def test_an_order_is_kept_and_a_bound_too(wh: halfop.Halfop) -> None:
    statement = "SELECT id FROM range(0, 1000, 1, 8) ORDER BY id DESC"
    assert wh.sql(statement)["id"].to_pylist() == list(range(999, -1, -1))
    assert wh.sql(statement, most=3)["id"].to_pylist() == [999, 998, 997]


def test_a_part_of_a_longer_word_is_no_name(wh: halfop.Halfop) -> None:
    wh.spark.range(1).createOrReplaceTempView("endings")
    wh.sql("SELECT 'spendings' AS what, count(*) FROM decisions")
    assert wh.spark.sql("SELECT * FROM endings").columns == ["id"], "a view of the caller's own"
    wh.spark.catalog.dropTempView("endings")


def test_a_query_leaves_no_view(wh: halfop.Halfop, tmp_path: Path) -> None:
    """Another warehouse in the session would answer with this one's rows."""
    session = wh.spark.newSession()
    here, other = halfop.open(session, wh.root), halfop.open(session, tmp_path / "other")
    other.land_files(half=[lines(tmp_path / "half.jsonl", half())])
    found = here.sql(f"SELECT keys FROM `{OLD}` CROSS JOIN (SELECT count(*) FROM S)")  # noqa: S608
    assert found["keys"].to_pylist() == ["=1+1"]
    for name in ("S", f"`{OLD}`"):
        with pytest.raises(UsageError, match="no table or topic"):
            other.sql(f"SELECT * FROM {name}")  # noqa: S608
    with pytest.raises(UsageError, match="DIVIDE_BY_ZERO"):
        here.sql("SELECT 1 / 0 FROM half_messages")
    assert session.sql("SHOW VIEWS").count() == 0
    here.views()
    assert counted(other, "half_messages") == 1
    assert session.table("half_messages").count() == 8, "views that were asked for stay"
    session.range(1).createOrReplaceTempView("decisions")
    assert counted(here, "decisions") == 8
    names = {row["viewName"] for row in session.sql("SHOW VIEWS").collect()}
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: counted(here, "decisions"), range(8))) == [8] * 8
    assert session.table("decisions").columns == ["id"], "a view of the caller's own"
    assert {row["viewName"] for row in session.sql("SHOW VIEWS").collect()} == names


# ---- forms ----


ROWS = pa.table(
    {
        "text": ["=1+1", "-2", "+3", "@x", "\tx", "\rx", "a\nb", "", None, 'q"'],
        "number": [-1, 2, 3, 4, 5, 6, 7, 8, 9, None],
        "at": pa.array([T0 * 1000 + 123_456] * 10, pa.timestamp("us", "UTC")),
        "body": [b"\x00\xff"] * 10,
        "real": [float("nan"), float("inf"), 0.5, *[None] * 7],
        "parts": [{"a": [1, None], "b": b"x"}] * 10,
        "sum": pa.array([Decimal("-1.50"), Decimal(0), *[None] * 8], pa.decimal128(38, 18)),
        "yes": [True] * 10,
        "bytes": [b"\xfb\xff\xff"] * 10,  # in base64 it begins with +
    }
)


def test_csv_holds_no_formula_and_is_read_again() -> None:
    text = "".join(csv_text(ROWS))
    head, *rows = list(csv.reader(io.StringIO(text, newline="")))
    assert head == ROWS.column_names
    assert [row[0] for row in rows[:6]] == ["'=1+1", "'-2", "'+3", "'@x", "'\tx", "'\rx"]
    assert [row[1] for row in rows[:2]] == ["-1", "2"], "numbers stay numbers"
    assert rows[0][2:6] == ["2025-06-15T15:06:40.123456Z", "AP8=", "nan", '{"a": [1, null], "b": "eA=="}']
    assert [row[6] for row in rows[:3]] == ["-1.500000000000000000", "0.000000000000000000", ""]
    assert rows[0][7:] == ["true", "+///"], "only texts are formulas"
    assert next(csv.reader(csv_text(pa.table({"=cmd()": [1]})))) == ["'=cmd()"]


def test_json_is_an_object_a_row_as_it_is() -> None:
    rows = [json.loads(line) for line in "".join(json_text(ROWS)).splitlines()]
    assert [row["text"] for row in rows] == ROWS["text"].to_pylist()
    assert rows[0]["real"] == "nan"
    assert rows[0]["parts"] == {"a": [1, None], "b": "eA=="}
    with pytest.raises(UsageError, match="two columns have the name a"):
        list(json_text(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])))


def test_cells_for_people() -> None:
    assert cells(ROWS.slice(0, 1)) == [
        [
            *("=1+1", -1, "2025-06-15T15:06:40.123456Z", "AP8=", "nan", '{"a": [1, null], "b": "eA=="}'),
            *("-1.500000000000000000", "true", "+///"),
        ]
    ]


def test_an_instant_outside_of_the_calendar_is_words() -> None:
    """As a producer's clock gives it; the cells beside it stay what they are."""
    far = 253_402_300_800_005
    at = pa.array([far * 1000, T0 * 1000, None, -(2**63)], pa.timestamp("us", "UTC"))
    words = ["253,402,300,800,005 ms after 1970", "2025-06-15T15:06:40Z", None, "-9,223,372,036,854,776 ms after 1970"]
    table = pa.table({"at": at})
    assert [cell for (cell,) in cells(table)] == words
    assert [json.loads(line)["at"] for line in "".join(json_text(table)).splitlines()] == words
    assert "".join(csv_text(table)).splitlines()[1] == f'"{words[0]}"'
    nested = pa.table({"parts": pa.array([{"at": far * 1000}], pa.struct([("at", pa.timestamp("us", "UTC"))]))})
    with pytest.raises(UsageError, match=r"column parts: .* outside of the years 1 to 9999; cast it to STRING"):
        cells(nested)


# ---- the job ----


@pytest.mark.usefixtures("logging_as_before")
def test_the_job_prints_a_table_and_says_where_it_ends(at: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    options = ["SELECT id FROM range(5) ORDER BY id", "--limit", "2", *at]
    assert main(job_of("sql"), options) == 0
    *table, last = capsys.readouterr().out.splitlines()
    assert table == ["id", "--", "0", "1"]
    assert json.loads(last)["notes"] == ["these are the first 2 rows: --limit N shows more, --format csv or json all"]
    for all_of_them in ("5", str(2**31 - 1)):
        assert main(job_of("sql"), [*options[:2], all_of_them, *at]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["notes"] == []
    assert main(job_of("sql"), ["SELECT 1 WHERE false", "--output", "text", *at]) == 0
    assert capsys.readouterr().out.splitlines() == ["sql: done", "  note       no rows"]


@pytest.mark.usefixtures("logging_as_before")
def test_rows_for_machines_are_alone_on_stdout(
    at: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = tmp_path / "query.sql"
    query.write_text(f"\ufeff-- of an older version\nSELECT keys, body FROM `{OLD}`;\n", encoding="utf-8")
    assert main(job_of("sql"), ["-f", str(query), "--format", "csv", *at]) == 0
    assert capsys.readouterr().out == "keys,body\n'=1+1,AP8=\n"
    assert main(job_of("sql"), ["-f", str(query), "--format", "json", *at]) == 0
    assert capsys.readouterr().out == '{"keys": "=1+1", "body": "AP8="}\n'
    assert main(job_of("sql"), ["SELECT * FROM nowhere", "--format", "json", *at]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("halfop sql: no table or topic nowhere\n")
    assert main(job_of("sql"), ["SELECT 1", "--format", "csv", "--set", "bogus=1", *at]) == 2
    captured = capsys.readouterr()
    assert (captured.out, "bogus" in captured.err) == ("", True)


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ([], 2, "give one"),
        (["SELECT 1", "-f", "x"], 2, "give one"),
        (["-f", "/no.sql"], 3, "/no.sql"),
    ],
)
def test_one_statement(
    at: list[str], capsys: pytest.CaptureFixture[str], options: list[str], status: int, said: str
) -> None:
    assert main(job_of("sql"), [*options, *at]) == status
    assert said in json.loads(capsys.readouterr().out)["error"]
