"""Each method on a session of somebody else's: what it does, and that the session has its own settings after it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import halfop
import pytest
from halfop.frame.summary import Summary
from halfop.warehouse import given, session
from halfop.warehouse import sync as sync_module
from halfop.warehouse.lock import hold
from halfop.warehouse.sync import set_sync
from pyspark.sql import SparkSession
from support.brokers import store_writer as w
from support.brokers.played_broker import played
from support.json_lines import T0, half, lines, op
from support.sessions import as_before

NOW = datetime.fromtimestamp(T0 / 1000, timezone.utc) + timedelta(minutes=5)


@pytest.fixture
def wh(theirs: SparkSession, tmp_path: Path) -> halfop.Halfop:
    return halfop.open(theirs, tmp_path / "warehouse", {"rules": {"transaction_check_max": 3}})


@pytest.fixture
def decided(wh: halfop.Halfop, tmp_path: Path) -> halfop.Halfop:
    halves, ops = lines(tmp_path / "h.jsonl", half(1), half(2)), lines(tmp_path / "o.jsonl", op(1, "1"))
    wh.land_files(half=[Path(halves)], op=[Path(ops)], known_until=NOW)
    wh.reconcile(now=NOW)
    return wh


# ---- a call, and the settings ----


def _landed(wh: halfop.Halfop, folder: Path) -> object:
    return wh.land_files(half=[lines(folder / "new.jsonl", half(7))]).rows_written["half_messages"]


def _decided(wh: halfop.Halfop, folder: Path) -> object:
    return sorted(row["decision"] for row in wh.decisions(run=1).collect())


def _follow(wh: halfop.Halfop, folder: Path) -> object:
    new = lines(folder / "new.jsonl", half(9))
    cycle = wh.follow_once(lambda: wh.land_files(half=[new]))
    assert cycle.landing.summary is not None
    assert cycle.landing.summary.rows_written["half_messages"] == 1
    return cycle.status


def _explained(wh: halfop.Halfop, folder: Path) -> object:
    found = wh.explain("b/0/1")
    assert "COMMIT" in str(found)
    return found.summary.extra["messages"]


def _sql(wh: halfop.Halfop, folder: Path) -> object:
    wh.views()
    return [row[0] for row in wh.spark.sql("SELECT count(*) FROM half_messages").collect()]


def _reported(wh: halfop.Halfop, folder: Path) -> object:
    wh.report(folder / "report.html")
    return "</html>" in (folder / "report.html").read_text()


def _ended(wh: halfop.Halfop, folder: Path) -> object:
    """A plan by a condition, written, shortened by nobody, and carried out; the next run decides by its op rows."""
    allowed = halfop.open(wh.spark, wh.root, {"end.brokers": ["b"]})
    planned = allowed.plan_end("ROLLBACK", where="queue_offset = 2")
    planned.write(str(folder / "plan.jsonl"))
    assert planned.summary.extra["plan"] == str(folder / "plan.jsonl")
    states = {str(each.key): each.state for each in allowed.end(folder / "plan.jsonl").rows}
    return states, allowed.reconcile().decisions


def _erased(wh: halfop.Halfop, folder: Path) -> object:
    """A plan by a half key and one by its UNIQ_KEY are the same; it is written, and carried out."""
    planned = wh.plan_erase(["b/0/1"])
    planned.write(folder / "erase.jsonl")
    assert planned.plan.keys == wh.plan_erase(["k1"]).plan.keys
    return [tuple(each) for each in wh.erase(folder / "erase.jsonl").rows]


def _resolved(wh: halfop.Halfop, folder: Path) -> object:
    query = "SELECT 'k2' AS key, 'COMMIT' AS outcome"
    found = halfop.open(wh.spark, wh.root, {"resolve.groups": {"g": {"query": query}}}).resolve(["g"])
    return found.plan.rows.select(["kind", "queue_offset"]).to_pylist()


def _resumed(wh: halfop.Halfop, folder: Path) -> object:
    later = NOW + timedelta(days=4)
    wh.land_files(half=[lines(folder / "new.jsonl", half(7))], known_until=later)
    wh.reconcile(now=later)
    return [each.was for each in wh.resume(["b/0/2"]).rows], wh.resume(["b/0/2"]).summary.extra["left_alone"]


CALLS: dict[str, tuple[Callable[[halfop.Halfop, Path], object], object]] = {
    "land_files": (_landed, 1),
    "reconcile": (lambda wh, _: wh.reconcile(now=NOW + timedelta(minutes=1)).run_id, 2),
    "follow_once": (_follow, 0),
    "explain": (_explained, {"b/0/1": "COMMITTED"}),
    "topic": (lambda wh, _: [row["half_queue_offset"] for row in wh.topic("T").collect()], [1]),
    "decisions": (_decided, ["CHECK", "COMMIT"]),
    "decisions of a summary": (lambda wh, _: wh.decisions(Summary("reconcile", run_id=1)).count(), 2),
    "every decision": (lambda wh, _: wh.decisions().count(), 2),
    "hanging": (lambda wh, _: [row["queue_offset"] for row in wh.hanging().collect()], [2]),
    "views": (_sql, [2]),
    "preview": (
        lambda wh, _: wh.preview(now=NOW + timedelta(minutes=1)).summary.decisions,
        {"WAIT": {"CHECKED_RECENTLY": 1}},
    ),
    "verify": (lambda wh, _: wh.verify(1).summary.extra["differences"], 0),
    "maintain": (lambda wh, _: wh.maintain().summary.extra["files_removed"], {}),
    "examine": (lambda wh, _: wh.examine(deep=True).extra["remains"], []),
    "resume": (_resumed, (["DISCARD"], {"RESUMED": 1})),
    "plan_end, end": (_ended, ({"b/0/2": "SENT"}, {"ROLLBACK": {"CHECK": 1}})),
    "resolve": (_resolved, [{"kind": "COMMIT", "queue_offset": 2}]),
    "plan_erase, erase": (_erased, [("topics/T", 1), ("half_messages", 1)]),
    "audit": (lambda wh, _: wh.audit().extra["findings"]["DELIVERED_TWICE"], 0),
    "report": (_reported, True),
}


_LONG = ("verify", "resume", "plan_end, end", "plan_erase, erase", "audit")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough) if name in _LONG else name for name in CALLS]
)
def test_a_method_works_and_leaves_the_session_as_it_was(decided: halfop.Halfop, tmp_path: Path, name: str) -> None:
    call, expected = CALLS[name]
    with as_before(decided.spark):
        assert call(decided, tmp_path) == expected


def test_a_sink_that_is_none_is_refused(decided: halfop.Halfop) -> None:
    with pytest.raises(halfop.UsageError, match=r"is none of topics/TOPIC, "):
        decided.reconcile(park_sinks=["check_request"], now=NOW + timedelta(minutes=9))


def test_a_store_and_a_broker_land(wh: halfop.Halfop, tmp_path: Path) -> None:
    store = w.Store(tmp_path / "store")
    place = store.append(w.half(0))
    store.append(w.final(0, place))
    store.append(w.op("0,"))
    with as_before(wh.spark):
        assert wh.land_store(tmp_path / "store").rows_written["half_messages"] == 1
    with played(store) as address, as_before(wh.spark):
        assert wh.land_broker(broker=address, broker_name="broker-b").rows_written["half_messages"] == 1


def test_whether_commits_are_synced_is_given_back_too(
    wh: halfop.Halfop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hadoop: Any = wh.spark._jsc
    found = list[str]()

    def seen(session: SparkSession, sync: bool) -> None:
        set_sync(session, sync)
        found.append(hadoop.hadoopConfiguration().get("halfop.warehouse.sync"))

    monkeypatch.setattr(sync_module, "set_sync", seen)
    with as_before(wh.spark):
        _landed(wh, tmp_path)
    assert found == ["true"], "the tests' session has it off"
    held = sync_module.HeldSync()
    with as_before(wh.spark), ExitStack() as second:
        with held.held(wh.spark, sync=True):
            second.enter_context(held.held(wh.spark, sync=False))
        assert found[1:] == ["true", "true", "false"], "calls that overlap"


def test_times_are_instants_whatever_the_session_s_zone(decided: halfop.Halfop) -> None:
    found = decided.decisions(run=1).selectExpr("unix_millis(born_timestamp) AS born").distinct().collect()
    assert [row["born"] for row in found] == [T0]
    landed = decided.topic("T").selectExpr("unix_millis(born_timestamp) AS born").collect()
    assert [row["born"] for row in landed] == [T0]


def test_tables_are_made_alike_whatever_the_session_s_type_of_times(decided: halfop.Halfop, tmp_path: Path) -> None:
    for name in ("half_messages", "decisions", "runs"):
        types = decided.spark.read.format("delta").load(f"{tmp_path}/warehouse/{name}").schema
        assert "TimestampNTZType" not in str(types)
        assert "TimestampType" in str(types)


# ---- errors ----


def test_a_refused_file_is_an_error_with_its_place(wh: halfop.Halfop, tmp_path: Path) -> None:
    bad = lines(tmp_path / "bad.jsonl", half(1), "no json")
    with as_before(wh.spark), pytest.raises(halfop.InputRefused) as refused:
        wh.land_files(half=[bad])
    assert (refused.value.path.removeprefix("file:"), refused.value.line) == (bad, 2)
    assert refused.value.problem
    assert (refused.value.exit_status, refused.value.transient) == (3, False)
    assert isinstance(refused.value, halfop.HalfopError)


def test_another_that_holds_the_warehouse_is_a_transient_error(decided: halfop.Halfop) -> None:
    with hold(decided.warehouse, "run"), as_before(decided.spark), pytest.raises(halfop.WarehouseBusy) as busy:
        decided.reconcile()
    assert busy.value.transient


def test_a_sink_that_fails_is_an_error_by_name(decided: halfop.Halfop, tmp_path: Path) -> None:
    (tmp_path / "warehouse/topics/U").write_text("a file where the table's folder should be")
    of_u = {"UNIQ_KEY": "k7", "PGROUP": "g", "REAL_TOPIC": "U", "REAL_QID": "3"}
    halves, ops = lines(tmp_path / "n.jsonl", half(7, properties=of_u)), lines(tmp_path / "p.jsonl", op(3, "7"))
    decided.land_files(half=[halves], op=[ops])
    with as_before(decided.spark), pytest.raises(halfop.PartsFailed) as failed:
        decided.reconcile(now=NOW + timedelta(minutes=1))
    assert list(failed.value.failed) == ["topics/U"]
    assert failed.value.failed["topics/U"] in str(failed.value)
    assert failed.value.summary.run_id == 2


def test_a_cycle_that_fails_has_the_end_of_each_step(decided: halfop.Halfop, tmp_path: Path) -> None:
    with as_before(decided.spark), pytest.raises(halfop.CycleFailed) as failed:
        decided.follow_once(lambda: decided.land_files(half=[str(tmp_path / "nowhere.jsonl")]))
    cycle = failed.value.cycle
    assert (cycle.landing.status, cycle.status) == (3, 3)
    assert cycle.run is not None
    assert cycle.run.summary is not None, "the run took place"
    assert str(failed.value).startswith("the landing: ")


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda wh: wh.land_files(), "give at least one"),
        (lambda wh: wh.land_broker(), "which brokers"),
        (lambda wh: wh.land_broker("a:1", "b:1"), "which brokers"),
        (lambda wh: wh.land_broker("a:1", broker_name="broker-b"), "--broker-name is for --broker; brokers of"),
        (lambda wh: wh.land_broker(broker="a:1", broker_name="broker-a~2"), "give the broker's own name: broker-a"),
        (lambda wh: wh.land_store("/data", "broker-a~2"), "give the broker's own name: broker-a"),
        (lambda wh: wh.land_store("/data", ""), "--broker-name is empty"),
        (lambda wh: wh.land_broker(broker="a:1", topics=["RMQ_SYS_TRANS_HALF_TOPIC"]), "no message can be committed"),
        (lambda wh: wh.land_broker(broker="a:1", topics="orders"), r"expected a list, as topics=\['orders'\]"),
        (lambda wh: wh.land_files(half="/data/h.jsonl"), r"expected a list, as half=\['/data/h.jsonl'\]"),
        (lambda wh: wh.land_files(op=Path("/data/o.jsonl")), "expected a list, as op="),
        (lambda wh: wh.land_store("/data", again="a/0/1-2"), "expected a list, as again="),
        (lambda wh: wh.reconcile(park_sinks="orders"), "expected a list, as park_sinks="),
        (lambda wh: wh.simulate({"transaction_check_max": "15"}), "expected a list, as transaction_check_max="),
        (lambda wh: wh.reconcile(now=datetime(2025, 6, 15)), "now=.*: expected an instant with its zone"),
        (lambda wh: wh.reconcile(now="2025-06-15"), "now='2025-06-15': expected an instant with its zone, as datetime"),
        (lambda wh: wh.land_files(["h"], known_until="now"), "known_until='now': expected an instant"),
        (lambda wh: wh.simulate({}, until=NOW.date()), r"until=datetime.date\(.*: expected an instant"),
        (lambda wh: wh.simulate({"ask": ["true"]}), "always asks"),
        (lambda wh: wh.simulate({"transaction_check_max": [3]}, out="/nowhere/x.html"), "there is no folder /nowhere"),
        (lambda wh: wh.report("/nowhere/x.html"), "there is no folder /nowhere"),
        (lambda wh: wh.report("x.html", runs=0), "runs=0: expected a whole number of at least 1"),
        (lambda wh: wh.plot.decided_by_run(-5), "runs=-5: expected a whole number of at least 1"),
        (lambda wh: wh.simulate({}, max_steps=0), "max_steps=0: expected a whole number of at least 1"),
        (lambda wh: wh.simulate({}, every=timedelta(seconds=-1)), "every=.*: expected whole milliseconds above 0"),
        (lambda wh: wh.simulate({}, every=timedelta(0)), "every=.*: expected whole milliseconds above 0"),
        (lambda wh: wh.simulate({}, every=timedelta(microseconds=1500)), "every=.*: expected whole milliseconds"),
        (lambda wh: wh.simulate({}, every="30s"), r"every='30s': expected .* above 0, as timedelta\(seconds=30\)"),
        (lambda wh: wh.topic("T"), "no message was committed"),
        (lambda wh: wh.preview(now=datetime(2025, 6, 15)), "expected an instant with its zone"),
        (lambda wh: wh.topic(5), "5: no message was committed"),
        (lambda wh: wh.verify(7), "has no run 7"),
        (lambda wh: wh.decisions("1"), "run='1': expected the number of a run, or the Summary of a reconcile"),
        (lambda wh: wh.decisions(2**70), "expected the number of a run"),
        (lambda wh: wh.verify(Summary("reconcile")), "run=None: expected the number of a run"),
        (lambda wh: wh.plan_end("COMIT", ["b/0/1"]), "'COMIT': expected COMMIT or ROLLBACK"),
        (lambda wh: wh.plan_end("COMMIT"), "which messages"),
        (lambda wh: wh.plan_end("COMMIT", ["b/0/1"], where="true"), "which messages"),
        (lambda wh: wh.plan_end("COMMIT", "b/0/1"), "expected a list"),
        (lambda wh: wh.resume(["b/0"]), "'b/0': expected BROKER/QUEUE/OFFSET"),
        (lambda wh: wh.resume_at_brokers(["b/0/1"]), "which broker"),
        (lambda wh: wh.resume_at_brokers(["b/0/1"], namesrv="a:1", broker="b:1"), "not both"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_wrong_use_is_refused(wh: halfop.Halfop, call: Callable[[halfop.Halfop], object], why: str) -> None:
    with as_before(wh.spark), pytest.raises(halfop.UsageError, match=why):
        call(wh)


# ---- opening ----


def test_settings_win_over_the_environment(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALFOP_RULES__TRANSACTION_CHECK_MAX", "4")
    monkeypatch.setenv("HALFOP_LANDING__OP_LAG", "4s")
    found = halfop.open(spark, tmp_path, {"rules.transaction_check_max": 5, "run": {"max_rows": 7}}).settings
    assert (found.rules.transaction_check_max, found.run.max_rows) == (5, 7)
    assert found.landing.op_lag == timedelta(seconds=4)
    with pytest.raises(halfop.UsageError, match=r"rules.transaction_chek_max \(settings=\): unknown key"):
        halfop.open(spark, tmp_path, {"rules.transaction_chek_max": 5})
    with pytest.raises(halfop.UsageError, match=r"1 \(settings=\): the name 1 is no text: put it in quotes"):
        halfop.open(spark, tmp_path, dict[Any, Any]({1: 2}))


def test_a_catalog_s_schema_is_no_root(spark: SparkSession) -> None:
    with pytest.raises(halfop.UsageError, match=r'settings=\{"catalog.schema": "lake.halfop"\}'):
        halfop.open(spark, "lake.halfop")


def test_a_session_without_what_keeps_tables_safe_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(session.AT_START, "spark.delta.logStore.file.impl", "another.Store")
    with pytest.raises(halfop.UsageError, match=r"\n  spark\.delta\.logStore\.file\.impl=another\.Store\n"):
        halfop.open(spark, tmp_path)
    monkeypatch.setattr(given, "_CLASSES", ("halfop.NoSuch",))
    with pytest.raises(halfop.UsageError, match=r"lacks halfop's jars \(halfop.NoSuch\)"):
        halfop.open(spark, tmp_path)


def test_no_session_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(halfop.UsageError, match="Summary is no session of Spark's"):
        halfop.open(Summary("no session"), tmp_path)  # type: ignore[arg-type]


def test_the_running_session_is_taken_and_keeps_its_settings(theirs: SparkSession, tmp_path: Path) -> None:
    with as_before(theirs):
        halfop.open(root=tmp_path)
