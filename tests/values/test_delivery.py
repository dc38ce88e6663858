"""Topics with values: every way of writing gives the same, tables grow, what does not fit is counted, runs verify."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from halfop.frame.errors import UsageError
from halfop.frame.people import told
from halfop.frame.summary import Summary
from halfop.report.report import report
from halfop.runs.reconcile import Request, reconcile
from halfop.runs.verify import UNLIKE, verify
from halfop.settings.load import load_settings
from halfop.settings.model import Settings
from halfop.sinks import staging
from halfop.sinks.topics import TopicTables
from halfop.sql.query import queried
from halfop.upkeep.values import make_values
from halfop.warehouse import reading
from halfop.warehouse.by_spark import SparkWarehouse
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.upkeep import TableUpkeep
from pyspark.sql import SparkSession
from support import rows as r
from support.messages import NOW, QUEUE, half, ops
from support.reader_version import needs_more
from support.ways import BY_SPARK, by_connector

ORDERS = "id BIGINT, at TIMESTAMP, items ARRAY<STRUCT<sku: STRING, n: INT>>, counts MAP<STRING, INT>"
MORE = "note STRING, id BIGINT, items ARRAY<STRUCT<n: INT, price: DECIMAL(9,2)>>"
BODIES = {
    "orders": [
        b'{"id":1,"at":"2026-01-31T09:30:00Z","items":[{"sku":"a","n":1},null],"counts":{"b":2,"a":1},"x":[]}',
        b'{"id":"jane"}',
        b'{"items":[],"note":"n"}',
        b"?",
        b'{"id":5,"items":[{"price":1.5}]}',
    ],
    "notes": ["né".encode(), b"\xff"],
    "plain": [b"as it is"],
}


def given(*more: str, orders: str = ORDERS) -> list[str]:
    typed = [
        "topics.orders.value.format=json",
        f"topics.orders.value.schema={orders}",
        "topics.notes.value.format=text",
    ]
    return [*typed, "topics.layout=per_topic", *more]


def land(warehouse: Warehouse, first: int = 0, at: int = NOW) -> None:
    halves = [
        half(first + n, topic, body=body)
        for n, (topic, body) in enumerate((topic, body) for topic, bodies in BODIES.items() for body in bodies)
    ]
    # one lands twice, so that another way than the workers' writes it
    r.land(warehouse, [*halves, halves[0]], ops("COMMIT", *(each.offset for each in halves)), at, {QUEUE: at})


def run(warehouse: Warehouse, at: int, *settings: str) -> Summary:
    return reconcile(warehouse, Request(load_settings(None, settings, {}), r.instant(at), allow_future=True))


def values(warehouse: Warehouse, topic: str, run_id: int = 1) -> list[tuple[Any, ...]]:
    rows = TopicTables.of(warehouse).rows(topic).where(f"run_id = {run_id}").orderBy("half_queue_offset").collect()
    return [(row["value"].asDict(True) if topic == "orders" and row["value"] else row["value"], row["value_error"])
            for row in rows]  # fmt: skip


def one_way(monkeypatch: pytest.MonkeyPatch, way: str, spark: SparkSession, root: str) -> Warehouse:
    if way != "here":
        monkeypatch.setattr(reading, "FEW", BY_SPARK)
        monkeypatch.setattr(staging, "FEW", BY_SPARK)
    if way == "connector":
        by_connector(monkeypatch)
    if way == "spark":
        monkeypatch.setattr(staging, "written_by_workers", lambda *_: None)
    return SparkWarehouse(spark, root) if way == "public" else KernelWarehouse(spark, root)


FIRST: list[tuple[Any, ...]] = [
    (
        {
            "id": 1,
            "at": r.instant(1_769_851_800_000).replace(tzinfo=None),
            "items": [{"sku": "a", "n": 1}, None],
            "counts": {"a": 1, "b": 2},
        },
        None,
    ),
    (None, "Expected `int`, got `str` - at `$.id`"),
    ({"id": None, "at": None, "items": [], "counts": None}, None),
    (None, "no JSON: invalid character (byte 0)"),
    ({"id": 5, "at": None, "items": [{"sku": None, "n": None}], "counts": None}, None),
]


OTHER_WAYS = ("workers", "spark", "connector", "public")


@pytest.mark.parametrize("way", ["here", *(pytest.param(way, marks=pytest.mark.thorough) for way in OTHER_WAYS)])
def test_every_way_writes_the_same(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    warehouse = one_way(monkeypatch, way, spark, str(tmp_path_factory.mktemp("values") / "warehouse"))
    land(warehouse)
    summary = run(warehouse, NOW, *given())
    assert (summary.status, summary.extra["value_errors"]) == (0, {"orders": 2, "notes": 1})
    assert summary.rows_written["topics"] == 8
    assert values(warehouse, "orders") == FIRST
    assert values(warehouse, "notes") == [("né", None), (None, "no UTF-8 from byte 0 on")]
    assert "value" not in TopicTables.of(warehouse).rows("plain").columns
    land(warehouse, first=20, at=NOW + 1)
    summary = run(warehouse, NOW + 1, *given(orders=MORE))
    assert (summary.status, summary.extra["value_errors"]) == (0, {"orders": 2, "notes": 1})
    assert [value and (value["note"], value["items"]) for value, _ in values(warehouse, "orders", 2)] == [
        (None, [{"sku": None, "n": 1, "price": None}, None]),
        None,
        ("n", []),
        None,
        (None, [{"sku": None, "n": None, "price": Decimal("1.50")}]),
    ]
    assert [value and value["note"] for value, _ in values(warehouse, "orders", 1)] == [None] * 5
    assert values(warehouse, "orders", 1)[0][0]["items"] == [{"sku": "a", "n": 1, "price": None}, None]
    for run_id in (1, 2):
        assert verify(warehouse, run_id)[1] == []


@pytest.mark.parametrize("made_again", [False, True])
def test_the_command_to_look_at_names_the_table_as_sql_does(warehouse: KernelWarehouse, made_again: bool) -> None:
    """A topic with the name of a table, or of an older topic but for its case, is `topics/…` there."""
    topics = ["orders", "Orders", "decisions", "a-b"]
    settings = [f"topics.{topic}.value.{name}" for topic in topics for name in ("format=json", "schema=id BIGINT")]
    r.land(
        warehouse,
        [half(n, each, body=b"?") for n, each in enumerate(topics)],
        ops("COMMIT", *range(4)),
        NOW,
        {QUEUE: NOW},
    )
    ended = run(warehouse, NOW, *settings)
    given = load_settings(None, settings, {})
    ends = [make_values(warehouse, given, topic, None) for topic in topics] if made_again else [ended]
    shown = [line for each in ends for line in told(each, given).splitlines() if "value_error IS" in line]
    statements = [shlex.split(line)[2] for line in shown]
    found = [row["topic"] for each in statements for row in queried(warehouse, each).to_pylist()]
    assert sorted(found) == sorted(topics)


@pytest.mark.thorough
def test_values_are_made_again(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a setting that changes a type: refused before, and the way out leaves rows and runs as they were."""
    warehouse = KernelWarehouse(spark, str(tmp_path / "warehouse"))
    land(warehouse)
    run(warehouse, NOW, *given("topics.decompress=false"))
    text = given(orders="id STRING")
    with pytest.raises(UsageError, match=r"value.id is BIGINT there.*maintain --values orders"):
        run(warehouse, NOW + 1, *text)
    assert warehouse.marker("runs", "halfop.runs.open") == 1, "no run has opened"
    before = other_columns(warehouse)
    monkeypatch.setattr(TableUpkeep, "rewrite", dying(TableUpkeep.rewrite))
    with pytest.raises(KeyboardInterrupt):
        make_values(warehouse, load_settings(None, text, {}), "orders", None)
    monkeypatch.undo()
    assert values(warehouse, "orders") == FIRST
    assert verify(warehouse, 1)[1] == []
    summary = make_values(warehouse, load_settings(None, text, {}), "orders", None)
    assert (summary.rows_written, summary.extra["value_errors"]) == ({"topics": 5}, {"orders": 3})
    assert [value and value["id"] for value, _ in values(warehouse, "orders")] == [None, "jane", None, None, None]
    assert other_columns(warehouse) == before
    assert warehouse.properties("topics/orders")["delta.appendOnly"] == "true"
    assert needs_more(warehouse.root) == set()
    land(warehouse, first=20, at=NOW + 1)
    assert run(warehouse, NOW + 1, *text).status == 0
    for run_id in (1, 2):
        assert verify(warehouse, run_id)[1] == []
    orders = f"delta.`{warehouse.path('topics/orders')}`"
    spark.sql(f"ALTER TABLE {orders} SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    spark.sql(f"UPDATE {orders} SET value = NULL WHERE run_id = 2 AND value IS NOT NULL")  # noqa: S608
    assert {(each.what, each.columns) for each in verify(warehouse, 2)[1]} == {(UNLIKE, "value")}


@pytest.mark.thorough
def test_columns_of_your_own_stay_when_values_are_made_again(warehouse: KernelWarehouse) -> None:
    land(warehouse)
    run(warehouse, NOW, *given())
    orders = f"delta.`{warehouse.path('topics/orders')}`"
    own = "reviewed STRUCT<`by`: STRING COMMENT 'who', `at`: TIMESTAMP> COMMENT 'ours', n TINYINT"
    warehouse.spark.sql(f"ALTER TABLE {orders} ADD COLUMNS ({own})")
    warehouse.spark.sql(f"ALTER TABLE {orders} SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    one = "named_struct('by', 'me', 'at', TIMESTAMP'2026-01-31 09:30:00')"
    warehouse.spark.sql(f"UPDATE {orders} SET reviewed = {one}, n = 3 WHERE half_queue_offset = 1")  # noqa: S608
    before = warehouse.connector.read_as_it_is(warehouse.path("topics/orders"))
    rows, fields = sorted(map(str, before.drop("value", "value_error").collect())), {f.name: f for f in before.schema}
    make_values(warehouse, load_settings(None, given(orders="id STRING"), {}), "orders", None)
    now = warehouse.connector.read_as_it_is(warehouse.path("topics/orders"))
    assert sorted(map(str, now.drop("value", "value_error").collect())) == rows
    assert {*now.columns} == {*fields}
    assert [f.name for f in now.schema if f != fields[f.name]] == ["value"]
    assert [value and value["id"] for value, _ in values(warehouse, "orders")] == [None, "jane", None, None, None]
    land(warehouse, first=20, at=NOW + 1)
    assert run(warehouse, NOW + 1, *given(orders="id STRING")).status == 0
    assert [verify(warehouse, run_id)[1] for run_id in (1, 2)] == [[], []]


def other_columns(warehouse: Warehouse) -> list[Any]:
    rows = TopicTables.of(warehouse).rows("orders").drop("value", "value_error")
    return sorted(map(str, rows.collect()))


def dying(step: Callable[..., None]) -> Callable[..., None]:
    """The step up to the commit, which does not come."""

    def died(self: TableUpkeep, rows: Any, marker: Any, recorded: dict[str, str]) -> None:
        self.set(recorded | {"delta.appendOnly": "false"})
        raise KeyboardInterrupt

    return died


@pytest.mark.thorough
def test_a_sink_that_does_not_fit_stops_no_other(
    warehouse: KernelWarehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table's type may change after a run has opened."""
    land(warehouse)
    run(warehouse, NOW, *given())
    land(warehouse, first=20, at=NOW + 1)
    monkeypatch.setattr("halfop.runs.reconcile.refuse_unfit", lambda *_: None)
    summary = run(warehouse, NOW + 1, *given(orders="id STRING"))
    assert summary.status == 1
    assert [*summary.extra["failed_sinks"]] == ["topics/orders"]
    assert summary.extra["value_errors"] == {"notes": 1}
    make_values(warehouse, load_settings(None, given(orders="id STRING"), {}), "orders", None)
    assert run(warehouse, NOW + 2, *given(orders="id STRING")).status == 0
    assert len(values(warehouse, "orders", 2)) == 5
    report(warehouse, Settings(), page := tmp_path / "report.html", 200)
    assert "6 messages of orders without a value: value_error says why." in page.read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("parked", [(), ("topics/orders",)])
def test_values_are_not_made_again_before_a_run_has_written_its_own(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch, parked: tuple[str, ...]
) -> None:
    """The run would never end; one that stands so already shows the way out, which leads out."""
    land(warehouse)
    run(warehouse, NOW, *given())
    land(warehouse, first=20, at=NOW + 1)
    if parked:
        request = Request(load_settings(None, given(), {}), r.instant(NOW + 1), None, True, frozenset(parked))
        assert reconcile(warehouse, request).status == 0
    else:
        monkeypatch.setattr("halfop.sinks.write.write_messages", killing)
        with pytest.raises(KeyboardInterrupt):
            run(warehouse, NOW + 1, *given())
        monkeypatch.undo()
    text = load_settings(None, given(orders="id STRING"), {})
    with pytest.raises(UsageError, match=r"--values orders: run 2 still writes there.*: reconcile first"):
        make_values(warehouse, text, "orders", None)
    monkeypatch.setattr("halfop.upkeep.values.still_writing", lambda *_: [])
    make_values(warehouse, text, "orders", None)
    monkeypatch.undo()
    failed = run(warehouse, NOW + 2, *given(orders="id STRING")).extra["failed_sinks"]["topics/orders"]
    assert "value.id is STRING there, and BIGINT by the setting of run 2. The run keeps that" in failed
    make_values(warehouse, load_settings(None, given(), {}), "orders", None)
    assert run(warehouse, NOW + 2, *given()).status == 0
    make_values(warehouse, text, "orders", None)
    assert [value and value["id"] for value, _ in values(warehouse, "orders", 2)] == [None, "jane", None, None, None]
    assert [verify(warehouse, run_id)[1] for run_id in (1, 2)] == [[], []]


def killing(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_run_without_the_settings_of_values_says_so(warehouse: KernelWarehouse) -> None:
    land(warehouse)
    assert run(warehouse, NOW, *given()).notes == []
    land(warehouse, first=20, at=NOW + 1)
    (note, *others) = run(warehouse, NOW + 1).notes
    assert note == (
        "notes was delivered without values, because topics.notes.value is not set, by which its table had values: "
        "set it, then maintain --values notes"
    )
    assert [each.split(" ", 1)[0] for each in others] == ["orders"]


def test_a_schema_is_inferred_and_written_for_review(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    config = tmp_path / "halfop.yaml"
    config.write_text("topics:\n  orders:\n    value:\n      format: json  # ours\n      schema: infer # to do\n")
    land(warehouse)
    summary = run(warehouse, NOW, *given(orders="infer"))
    assert any("maintain --values orders" in note for note in summary.notes)
    assert "value" not in TopicTables.of(warehouse).rows("orders").columns
    summary = make_values(warehouse, load_settings(config, (), {}), "orders", config)
    assert config.read_text() == (
        "topics:\n  orders:\n    value:\n      format: json  # ours\n      schema: "
        '"`at` TIMESTAMP, `items` ARRAY<STRUCT<`sku` STRING, `n` BIGINT, `price` DOUBLE>>, '
        '`counts` STRUCT<`b` BIGINT, `a` BIGINT>, `note` STRING" # to do\n'
    )
    left_out = (
        "left out, because no type fits all: value.id (BIGINT, STRING), value.x; to have one, add it to the schema"
    )
    assert any(note.startswith(left_out) for note in summary.notes)
    summary = make_values(warehouse, load_settings(config, (), {}), "orders", config)
    assert summary.rows_written == {"topics": 5}
    assert values(warehouse, "orders")[4][0]["items"] == [{"sku": None, "n": None, "price": 1.5}]


@pytest.mark.parametrize(("most", "seen"), [(0, "`c` BIGINT"), (100, "`c` BIGINT, `d` BIGINT, `e` BIGINT")])
def test_a_schema_is_inferred_from_as_many_bytes_as_fit(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch, most: int, seen: str
) -> None:
    """The newest bodies, and at least one: all of a topic's could be more than a driver takes."""
    monkeypatch.setattr("halfop.upkeep.values._SAMPLE_BYTES", most)
    for first, names in ((0, "ab"), (2, "cdef")):
        bodies = [b'{"%s": 1, "text": "%s"}' % (name.encode(), b"x" * 10) for name in names]
        halves = [half(first + n, "orders", body=body) for n, body in enumerate(bodies)]
        offsets = [each.offset for each in halves]
        r.land(warehouse, halves, ops("COMMIT", *offsets), NOW + first, {QUEUE: NOW + first})
        run(warehouse, NOW + first, *given(orders="infer"))
    summary = make_values(warehouse, load_settings(None, given(orders="infer"), {}), "orders", None)
    assert summary.notes[0].replace(", `text` STRING", "") == f"orders: {seen}"
