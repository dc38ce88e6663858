"""Other jobs and a broker that lost the end of its log: the audit, simulate, maintain, explain, and so on."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from halfop.audit.audit import audit
from halfop.columns.lives import all_lost
from halfop.explain.explain import timeline
from halfop.explain.look_up import find
from halfop.frame.cli import main
from halfop.frame.errors import InputRefused
from halfop.frame.summary import Summary
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.landing.progress import FILE
from halfop.report.report import report
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.runs.verify import verify
from halfop.settings.model import RetentionSettings, Settings
from halfop.simulation.replay import Schedule, StagedHistory
from halfop.simulation.simulate import Period, simulate
from halfop.upkeep.maintain import maintain
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.upkeep import TableUpkeep
from model import reference as m
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from support import rows as r
from support.brokers import store_writer as w
from support.brokers.played_broker import About, played
from support.brokers.rewinds import BROKER, LIFE, SECOND, at, kept, land
from support.entry_points import job_of

NOW = w.BORN_MS + 3_600 * SECOND
RULES = m.Settings()
FOLLOW = job_of("follow")
LOST_OPEN = range(7, 13)  # as many as show something to the audit


def first_life(path: Path) -> w.Store:
    """0 to 3 stand, the end of 1 is lost; of what is lost whole 4 was committed, 5 delivered only, 6 rolled back."""
    store = w.Store(path)
    places = [store.append(w.half(n)) for n in range(4)]
    store.append(w.final(0, places[0], **at(2)))
    store.append(w.op("0,", **at(2)))
    places += [store.append(w.half(n, **at(3))) for n in range(4, LOST_OPEN.stop)]
    for n in (1, 4, 5):
        store.append(w.final(n, places[n], **at(4)))
    store.append(w.op("1,4,6,", **at(4)))
    return store


STANDING = 6  # records


def second_life(path: Path, before: w.Store) -> w.Store:
    """1 ends again. 4 is sent again, and 20 is new. 2 is put back and ends, 3 is put back and discarded."""
    store = kept(path, before, STANDING)
    born = {"born_ms": w.BORN_MS + 60 * SECOND}
    four, new = store.append(w.half(4, **born, **at(60))), store.append(w.half(20, **at(60)))
    copies = [replace(w.half(n, **at(70)), properties=marked(n, "1")) for n in (2, 3)]
    two, _ = [store.append(copy) for copy in copies]
    for n, place in ((1, store.places("half")[1]), (4, four), (20, new), (2, two)):
        store.append(w.final(n, place, **at(71)))
    store.append(w.op("1,4,5,6,", **at(71)))
    store.append(w.discard(3, **at(140)))
    store.extend(
        [w.Record(store_ms=w.BORN_MS + (900 + n) * SECOND) for n in range(40)]
    )  # the broker lives on, and its log is longer than it was
    return store


def marked(n: int, times: str) -> dict[str, str]:
    properties = w.half(n).properties
    assert isinstance(properties, dict)
    return properties | {"TRANSACTION_CHECK_TIMES": times}


@pytest.fixture(scope="module")
def two(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> KernelWarehouse:
    """A warehouse with two lives, and a run after each. The broker's check has come to offset 4 in both."""
    folder = tmp_path_factory.mktemp("lives")
    warehouse = KernelWarehouse(spark, str(folder / "warehouse"))
    first = first_life(folder / "first")
    second = second_life(folder / "second", first)
    for number, store in enumerate((first, second)):
        (store.root / FILE).parent.mkdir()
        (store.root / FILE).write_text('{"offsetTable":{"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:4}}}')
        land(warehouse, store, accept=number == 1)
        r.run(warehouse, RULES, NOW + number * SECOND)
    return warehouse


def decided(warehouse: KernelWarehouse) -> dict[tuple[str, int], tuple[str, str | None]]:
    rows = warehouse.read("decisions").where("decision <> 'EARLY_OP'")
    last = F.max_by(F.struct("decision", "reason"), "run_id").alias("last")
    found = rows.groupBy("broker_name", "queue_offset").agg(last).collect()
    return {(row["broker_name"], row["queue_offset"]): tuple(row["last"]) for row in found}


DECIDED = {
    (BROKER, 0): ("COMMIT", "PRODUCER"),
    (BROKER, 1): ("COMMIT", "PRODUCER"),
    (BROKER, 2): ("SUPERSEDED", None),
    (BROKER, 3): ("SUPERSEDED", None),
    (BROKER, 4): ("COMMIT", "PRODUCER"),
    (BROKER, 5): ("COMMIT", "FINAL"),
    (BROKER, 6): ("ROLLBACK", "PRODUCER"),
    **{(BROKER, n): ("DISCARD", "LOST_BY_BROKER") for n in LOST_OPEN},
    (LIFE, 4): ("COMMIT", "PRODUCER"),
    (LIFE, 5): ("COMMIT", "PRODUCER"),
    (LIFE, 6): ("COMMIT", "PRODUCER"),
    (LIFE, 7): ("DISCARD", "BROKER_DISCARDED"),
}


def test_what_is_decided(two: KernelWarehouse) -> None:
    assert decided(two) == DECIDED
    delivered = sorted((d.key[0], d.key[2]) for d in r.delivered(two).elements())
    assert delivered == [*((BROKER, n) for n in (0, 1, 4, 5)), *((LIFE, n) for n in (4, 5, 6))]


@pytest.mark.slow
def test_the_audit_finds_no_fault_in_what_was_lost(two: KernelWarehouse) -> None:
    summary = audit(two, Settings())
    assert {name: n for name, n in summary.extra["findings"].items() if n} == {}
    assert summary.extra["lost_by_broker"] == {"half_messages": 9, "committed": 1, "committed_again": 1}
    fates = {name: n for name, n in summary.extra["transactions"].items() if n}
    assert fates == {"COMMITTED_AND_DELIVERED": 5, "DISCARDED": 1}
    assert list(summary.extra["brokers"]) == [BROKER]


def test_a_replay_knows_a_loss_only_when_it_was_accepted() -> None:
    row = {"broker_name": LIFE, "topic": HALF_TOPIC, "queue_id": 0, "life_of": BROKER, "life": 2, "cut_offset": 4}
    row |= {"cut_log_offset": 9, "begun_at": r.instant(NOW), "known_until": None}
    schedule = Schedule([r.instant(NOW - 1), r.instant(NOW)])
    none: Any = None
    staged = StagedHistory({}, {}, {}, [row], schedule, none, False, none)
    assert [len(all_lost(staged.clocks(step))) for step in schedule.steps] == [0, 1]


@pytest.mark.slow
def test_simulate_ends_what_the_runs_ended(two: KernelWarehouse) -> None:
    rules = r.settings(RULES).rules
    (found,) = simulate(two, {"now": rules}, Period(every=timedelta(seconds=100)))
    assert (found.commits, found.rollbacks) == (7, 1)


@pytest.mark.slow
def test_a_run_of_each_life_can_be_verified(two: KernelWarehouse) -> None:
    assert [verify(two, run)[0].status for run in (1, 2)] == [0, 0]


def test_explain_shows_one_transaction_over_two_lives(two: KernelWarehouse) -> None:
    (life,), _ = find(two, f"{BROKER}/0/2")
    assert list(map(str, life.keys)) == [f"{BROKER}/0/2", f"{LIFE}/0/6"]
    told = "\n".join(timeline(life))
    assert "escaped" not in told
    (lost,), _ = find(two, f"{BROKER}/0/7")
    assert "LOST_BY_BROKER" in "\n".join(timeline(lost))
    (ended,), _ = find(two, f"{BROKER}/0/1")
    assert len(ended.ops) == 2


@pytest.mark.thorough
def test_follow_leaves_a_rewind_to_the_user(warehouse: KernelWarehouse, tmp_path: Path, capsys: Any) -> None:
    first = first_life(tmp_path / "first")
    land(warehouse, first)
    second = second_life(tmp_path / "second", first)
    options = ["store", "--path", str(second.root), "--once", "--warehouse", warehouse.root]
    assert main(FOLLOW, options) == 3
    said = capsys.readouterr()
    assert "land … --accept-rewind" in said.err
    assert json.loads(said.out.splitlines()[-1])["landing"]["status"] == 3
    assert main(FOLLOW, [*options, "--accept-rewind"]) == 2


def test_the_report_shows_what_was_lost(two: KernelWarehouse, tmp_path: Path) -> None:
    report(two, Settings(), tmp_path / "report.html", newest=100)
    assert "LOST_BY_BROKER" in (tmp_path / "report.html").read_text()


# ---- what a landing compares ----


def cuts(warehouse: KernelWarehouse, name: str = LIFE) -> dict[str, int | None]:
    """The beginning of a life, by topic."""
    rows = [row for row in progress_rows(warehouse) if row["broker_name"] == name]
    return {row["topic"]: row["cut_offset"] for row in rows if row["cut_offset"] is not None}


def ranges(warehouse: KernelWarehouse) -> set[tuple[Any, ...]]:
    columns = ("broker_name", "range_topic", "range_from", "range_to")
    return {tuple(row[c] for c in columns) for row in warehouse.rows("rejected") if row["reason"] == "LOST_BY_BROKER"}


def test_a_third_life_lists_what_each_earlier_one_lost(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    first = first_life(tmp_path / "first")
    land(warehouse, first)
    land(warehouse, second_life(tmp_path / "second", first), accept=True)
    third = kept(tmp_path / "third", first, 2)
    third.append(w.half(30, **at(2_000)))
    third.append(w.op("2,", **at(2_000)))
    land(warehouse, third, accept=True)
    last = LOST_OPEN.stop
    halves = {(BROKER, HALF_TOPIC, 4, last), (BROKER, HALF_TOPIC, 2, 4), (LIFE, HALF_TOPIC, 4, 8)}
    ops = {(BROKER, OP_TOPIC, 1, 2), (BROKER, OP_TOPIC, 0, 1), (LIFE, OP_TOPIC, 1, 2)}
    assert ranges(warehouse) == halves | ops
    assert cuts(warehouse, "broker-a~3") == {HALF_TOPIC: 2, OP_TOPIC: 0}


@pytest.mark.thorough
def test_a_cut_is_found_though_all_rows_were_trimmed(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    """Decisions show half messages; ops land again from the last one that stands."""
    first = first_life(tmp_path / "first")
    land(warehouse, first)
    r.run(warehouse, RULES, NOW)
    for name in ("half_messages", "op_messages"):
        TableUpkeep(warehouse, name).delete("true", {})
    land(warehouse, second_life(tmp_path / "second", first), accept=True)
    assert cuts(warehouse) == {HALF_TOPIC: 4, OP_TOPIC: 0}


@pytest.mark.slow
def test_maintain_keeps_what_a_later_cut_needs(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    first = first_life(tmp_path / "first")
    land(warehouse, first)
    r.run(warehouse, RULES, NOW)
    at_once = RetentionSettings(verify=timedelta(0), files=timedelta(0), waits=timedelta(0), landed=timedelta(0))
    maintain(warehouse, Settings(retention=at_once))
    second = second_life(tmp_path / "second", first)
    with pytest.raises(InputRefused, match="--accept-rewind"):
        land(warehouse, second)
    land(warehouse, second, accept=True)
    maintain(warehouse, Settings(retention=at_once))
    r.run(warehouse, RULES, NOW + SECOND)
    maintain(warehouse, Settings(retention=at_once))
    assert decided(warehouse)[BROKER, 7] == ("DISCARD", "LOST_BY_BROKER")
    assert land(warehouse, second, accept=True).rows_written == {}, "it is the one that has landed"


def test_what_a_killed_landing_wrote_is_compared_too(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    """Its half messages stand above the progress, which it has not moved."""
    first = first_life(tmp_path / "first")
    land(warehouse, kept(tmp_path / "early", first, STANDING))
    progress_before = warehouse.version("landing_progress")
    land(warehouse, first)
    rows = warehouse.rows("landing_progress", progress_before)
    warehouse.replace_rows("landing_progress", warehouse.version("landing_progress"), rows)
    second = second_life(tmp_path / "second", first)
    with pytest.raises(InputRefused, match="KEY_REUSED"):
        land(warehouse, second)
    land(warehouse, second, accept=True)
    assert cuts(warehouse) == {HALF_TOPIC: 4, OP_TOPIC: 1}


# ---- a store's landing and a running broker's, of one broker ----


def landed_live(warehouse: KernelWarehouse, store: w.Store, accept: bool = False) -> Summary:
    with played(store, about=About(at=NOW)) as address:
        request = BrokerRequest(RemotingSettings(), timedelta(0), broker=address, accept_rewind=accept)
        summary = land_broker(warehouse, request, logging.getLogger("halfop.test"))
    if summary.status:
        raise InputRefused(address, None, str(summary.extra["failed_brokers"]))
    return summary


ONE, OTHER = land, landed_live


@pytest.mark.slow
@pytest.mark.parametrize("ways", [(ONE, OTHER, ONE), (OTHER, ONE, OTHER)], ids=["store", "broker"])
def test_a_life_may_land_another_way(warehouse: KernelWarehouse, tmp_path: Path, ways: tuple[Any, ...]) -> None:
    first = first_life(tmp_path / "first")
    ways[0](warehouse, first)
    r.run(warehouse, RULES, NOW)
    second = second_life(tmp_path / "second", first)
    with pytest.raises(InputRefused, match="--accept-rewind"):
        ways[1](warehouse, second)
    ways[1](warehouse, second, True)
    second.append(w.half(40, **at(1_000)))
    second.append(w.op("8,", **at(1_000)))
    ways[2](warehouse, second)
    r.run(warehouse, RULES, NOW + SECOND)
    assert decided(warehouse) == DECIDED | {(LIFE, 8): ("ROLLBACK", "PRODUCER")}
    assert {name: n for name, n in audit(warehouse, Settings()).extra["findings"].items() if n} == {}
