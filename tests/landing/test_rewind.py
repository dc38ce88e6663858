"""Brokers that lost the end of their log, or were rebuilt: what --accept-rewind lands, and what becomes of the rest."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from halfop.columns.keys import Key
from halfop.columns.lives import Life, Lives, Lost, lives_of
from halfop.columns.lives import owners as owners_of
from halfop.ending.selection import Selection, decided_until, landed, owners, plan
from halfop.explain.look_up import find
from halfop.frame.errors import InputRefused
from halfop.frame.summary import Summary
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.landing.cuts import Cut
from halfop.landing.files.land import FilesRequest, land_files
from halfop.landing.rewind import Begun, begin, lives
from halfop.landing.staged import BesideTables
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq.names import HALF_TOPIC
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import progress_rows
from model import reference as m
from model.strategies import half_lines, op_lines, op_rows
from numpy import array
from support import rows as r
from support.brokers import store_writer as w
from support.brokers.played_broker import About, played
from support.brokers.rewinds import begun, land
from support.brokers.stores import transactions

LOG = logging.getLogger("halfop.test")
BROKER, SECOND, LIFE, THIRD = "broker-a", 1_000, "broker-a~2", "broker-a~3"
RULES = m.Settings()
NOW = w.BORN_MS + 600 * SECOND


def run(warehouse: KernelWarehouse, now: int) -> list[tuple[str, int, str, str | None]]:
    """The run's decisions by half key."""
    run_id = r.run(warehouse, RULES, now).run_id
    assert run_id is not None
    return sorted((d.key[0], d.key[2], d.decision, d.reason) for d in r.decisions(warehouse, run_id))


def first_life(path: Path) -> w.Store:
    """0 and 4 are committed, the others are open; a broker that loses its tail keeps the first four records."""
    store = w.Store(path)
    places = [store.append(w.half(n)) for n in range(2)]
    store.append(w.final(0, places[0]))
    store.append(w.op("0,"))
    places += [store.append(w.half(n)) for n in range(2, 5)]
    store.append(w.final(4, places[4]))
    store.append(w.op("4,"))
    return store


def second_life(path: Path, before: w.Store) -> w.Store:
    """1, which stands, and 10, which is new at offset 2, are committed by one op at the offset of a lost one."""
    store = begun(path, before.records[:4])
    later = {"store_ms": w.BORN_MS + 60 * SECOND}
    place = store.append(w.half(10, **later))
    store.append(w.half(11, **later))
    store.append(w.final(1, store.places("half")[1], **later))
    store.append(w.final(10, place, **later))
    store.append(w.op("1,2,", **later))
    store.extend([w.Record(store_ms=w.BORN_MS + 61 * SECOND)] * 20)  # the log is longer than it was
    return store


@pytest.fixture
def rewound(warehouse: KernelWarehouse, tmp_path: Path) -> w.Store:
    """The second life, which has landed after the first."""
    first = first_life(tmp_path / "first")
    land(warehouse, first)
    run(warehouse, NOW)
    second = second_life(tmp_path / "second", first)
    with pytest.raises(InputRefused, match=r"(?s)KEY_REUSED.*--accept-rewind"):
        land(warehouse, second)
    land(warehouse, second, accept=True)
    return second


def delivered(warehouse: KernelWarehouse) -> list[tuple[str, int, bytes]]:
    return sorted((d.key[0], d.key[2], d.body) for d in r.delivered(warehouse).elements())


@pytest.mark.slow
def test_a_lost_tail_is_given_up_and_what_stands_ends_once(warehouse: KernelWarehouse, rewound: w.Store) -> None:
    assert run(warehouse, NOW + SECOND) == [
        (BROKER, 1, "COMMIT", "PRODUCER"),
        (BROKER, 2, "DISCARD", "LOST_BY_BROKER"),
        (BROKER, 3, "DISCARD", "LOST_BY_BROKER"),
        (LIFE, 2, "COMMIT", "PRODUCER"),
        (LIFE, 3, "WAIT", "BROKER_ASKS"),
    ]
    expected = [(BROKER, 0, b"body 0"), (BROKER, 1, b"body 1"), (BROKER, 4, b"body 4"), (LIFE, 2, b"body 10")]
    assert delivered(warehouse) == expected
    (lost,) = (
        warehouse.read("rejected").where("reason = 'LOST_BY_BROKER' AND range_topic LIKE '%TRANS_HALF%'").collect()
    )
    assert (lost["broker_name"], lost["range_from"], lost["range_to"]) == (BROKER, 2, 5)


@pytest.mark.slow
def test_later_landings_go_on_in_the_new_life(warehouse: KernelWarehouse, rewound: w.Store) -> None:
    run(warehouse, NOW + SECOND)
    rewound.append(w.op("3,", store_ms=w.BORN_MS + 90 * SECOND))
    assert land(warehouse, rewound).rows_written == {"op_messages": 1}
    assert run(warehouse, NOW + 2 * SECOND) == [(LIFE, 3, "ROLLBACK", "PRODUCER")]
    assert land(warehouse, rewound, accept=True).rows_written == {}, "nothing is to be accepted"


@pytest.mark.thorough
def test_what_was_lost_can_be_resumed(warehouse: KernelWarehouse, rewound: w.Store) -> None:
    run(warehouse, NOW + SECOND)
    at = warehouse.read("landing_progress").selectExpr("unix_millis(max(landed_at))").collect()[0][0]
    r.resume(warehouse, [(BROKER, 0, 3)], at + SECOND)
    now = at + 2 * SECOND
    assert (BROKER, 3, "WAIT", "BROKER_ASKS") in run(warehouse, now)
    assert (BROKER, 3, "WAIT", "BROKER_ASKS") in run(warehouse, now + SECOND), "it is not lost once more"


@pytest.mark.slow
def test_a_broker_rebuilt_empty_is_a_third_life(warehouse: KernelWarehouse, rewound: w.Store, tmp_path: Path) -> None:
    run(warehouse, NOW + SECOND)
    third = w.Store(tmp_path / "third")
    later = {"store_ms": w.BORN_MS + 120 * SECOND}
    place = third.append(w.half(20, **later))
    third.append(w.final(20, place, **later))
    third.append(w.op("0,", **later))
    land(warehouse, third, accept=True)
    found = run(warehouse, NOW + 2 * SECOND)
    assert found == [(LIFE, 3, "DISCARD", "LOST_BY_BROKER"), (THIRD, 0, "COMMIT", "PRODUCER")]
    assert delivered(warehouse)[-1] == (THIRD, 0, b"body 20")


@pytest.mark.slow
def test_explain_shows_each_life(warehouse: KernelWarehouse, rewound: w.Store) -> None:
    run(warehouse, NOW + SECOND)
    (old,), _ = find(warehouse, f"{BROKER}/0/2")
    (new,), _ = find(warehouse, f"{LIFE}/0/2")
    assert [life.last and life.last["reason"] for life in (old, new)] == ["LOST_BY_BROKER", "PRODUCER"]


@pytest.mark.slow
def test_a_copy_put_back_across_the_cut_is_the_same_transaction(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    first = first_life(tmp_path / "first")
    land(warehouse, first)
    run(warehouse, NOW)
    second = begun(tmp_path / "second", first.records[:4])
    again = w.half(1, store_ms=w.BORN_MS + 60 * SECOND)
    again.properties["TRANSACTION_CHECK_TIMES"] = "1"  # type: ignore[index]
    second.append(again)
    second.append(w.op("2,", store_ms=w.BORN_MS + 61 * SECOND))
    land(warehouse, second, accept=True)
    assert run(warehouse, NOW + SECOND)[:1] == [(BROKER, 1, "SUPERSEDED", None)]
    assert [row for row in run(warehouse, NOW + SECOND) if row[0] == LIFE] == []


# ---- files ----


def written(path: Path, rows: Iterable[dict[str, Any]]) -> list[str]:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return [str(path)]


def files(path: Path, halves: Iterable[m.Half], ops: Iterable[m.Op]) -> FilesRequest:
    path.mkdir()
    return FilesRequest(written(path / "half.jsonl", half_lines(halves)), written(path / "op.jsonl", op_lines(ops)))


def half_row(offset: int, life: str = "") -> m.Half:
    key, store = f"k{offset}{life}", T0 + offset + (SECOND if life else 0)
    return m.Half("a", 0, offset, offset * 500, key, "g", "T", "1", T0, store, body=f"half {offset}{life}".encode())


def op_row(offset: int, *names: int) -> list[m.Op]:
    return op_rows(("a", 0), offset, ",".join(map(str, names)), ["COMMIT"] * len(names), T0 + offset)


T0 = w.BORN_MS
FIRST = ([half_row(n) for n in range(4)], op_row(0, 0))


@pytest.mark.slow
def test_files_of_a_broker_that_lost_its_tail(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    land_files(warehouse, files(tmp_path / "first", *FIRST), LOG)
    run(warehouse, NOW)
    halves = [*FIRST[0][:2], half_row(2, "'"), half_row(3, "'")]
    second = files(tmp_path / "second", halves, FIRST[1] + op_row(1, 1, 2))
    land_files(warehouse, replace(second, accept_rewind=True), LOG)
    assert run(warehouse, NOW + SECOND) == [
        ("a", 1, "COMMIT", "PRODUCER"),
        ("a", 2, "DISCARD", "LOST_BY_BROKER"),
        ("a", 3, "DISCARD", "LOST_BY_BROKER"),
        ("a~2", 2, "COMMIT", "PRODUCER"),
        ("a~2", 3, "WAIT", "FRESH"),
    ]
    assert [row[2] for row in delivered(warehouse)] == [b"half 0", b"half 1", b"half 2'"]
    land_files(warehouse, files(tmp_path / "third", [], op_row(2, 3, 1)), LOG)
    assert ("a~2", 3, "COMMIT", "PRODUCER") in run(warehouse, NOW + 2 * SECOND), "later landings need no option"


def test_a_bad_export_is_acknowledged_and_nothing_is_lost(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    land_files(warehouse, files(tmp_path / "first", *FIRST), LOG)
    land_files(warehouse, files(tmp_path / "bad", [half_row(1, "?")], []), LOG)
    run(warehouse, NOW)
    good = files(tmp_path / "good", [half_row(4)], op_row(1, 1, 4))
    with pytest.raises(InputRefused, match="--accept-rewind"):
        land_files(warehouse, good, LOG)
    land_files(warehouse, replace(good, accept_rewind=True), LOG)
    found = run(warehouse, NOW + SECOND)
    assert [row for row in found if row[2] == "COMMIT"] == [
        ("a", 1, "COMMIT", "PRODUCER"),
        ("a~2", 4, "COMMIT", "PRODUCER"),
    ]
    assert "LOST_BY_BROKER" not in {row[3] for row in found}
    again = files(tmp_path / "again", [*FIRST[0], half_row(5)], [])
    assert land_files(warehouse, again, LOG).rows_written["half_messages"] == 5, "what stands may land again"


@pytest.mark.slow
def test_a_life_begins_for_brokers_of_the_files_alone(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    for name in "ax":
        for part, row in (("first", half_row(1)), ("bad", half_row(1, "?"))):
            land_files(warehouse, files(tmp_path / f"{part} {name}", [replace(row, broker=name)], []), LOG)
    run(warehouse, NOW)
    good = files(tmp_path / "good", [half_row(4)], [])
    land_files(warehouse, replace(good, accept_rewind=True), LOG)
    names = [lives_of(progress_rows(warehouse), name).names for name in "ax"]
    assert names == [["a", "a~2"], ["x"]]


@pytest.mark.thorough
def test_an_export_with_bad_rows_in_its_middle_begins_no_life(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    """What follows the bad row is what has landed: it would land, and be delivered, once more under another name."""
    land_files(warehouse, files(tmp_path / "first", FIRST[0], op_row(0, 0, 2)), LOG)
    run(warehouse, NOW)
    halves = [half_row(0), half_row(1, "?"), half_row(2), half_row(3)]
    bad = replace(files(tmp_path / "bad", halves, op_row(0, 0, 2) + op_row(1, 2)), accept_rewind=True)
    with pytest.raises(InputRefused, match="a/0: half row 1 differs from what has landed, but row 3 after it does not"):
        land_files(warehouse, bad, LOG)
    good = files(tmp_path / "good", FIRST[0], op_row(0, 0, 2) + op_row(1, 2))
    land_files(warehouse, replace(good, accept_rewind=True), LOG)
    run(warehouse, NOW + SECOND)
    assert [row[:2] for row in delivered(warehouse)] == [("a", 0), ("a", 2)]


@pytest.mark.parametrize("skip_bad", [False, True])
def test_no_life_begins_after_a_bad_row(warehouse: KernelWarehouse, tmp_path: Path, skip_bad: bool) -> None:
    """The bad row may be the first that differs: corrected, it would be of the old life."""
    land_files(warehouse, files(tmp_path / "first", *FIRST), LOG)
    second = files(tmp_path / "second", [*FIRST[0][:2], half_row(2, "'"), half_row(3, "'")], FIRST[1])
    good = Path(second.halves[0]).read_text()
    accepting = replace(second, accept_rewind=True, skip_bad=skip_bad)
    Path(second.halves[0]).write_text(good.replace('"queue_offset": 2,', '"queue_offset": "2?",'))
    before = len(warehouse.rows("landing_progress"))
    with pytest.raises(
        InputRefused, match=r"(?s)half.jsonl:3.*WRONG_TYPE.*1 bad of 4 rows; nothing has landed, --accept"
    ):
        land_files(warehouse, accepting, LOG)
    assert len(warehouse.rows("landing_progress")) == before, "no life has begun"
    Path(second.halves[0]).write_text(good)
    land_files(warehouse, accepting, LOG)
    assert {row[1] for row in content(warehouse) if row[0] == "a~2"} == {2, 3}


@pytest.mark.thorough
def test_older_files_begin_no_further_life(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    """What stood in an earlier life is what the broker has lost: it does not differ from the new one."""
    old = files(tmp_path / "old", [half_row(n) for n in range(3)], op_row(0, 0))
    new = files(tmp_path / "new", [half_row(1, "'"), half_row(2, "'")], op_row(1, 1))
    both = FilesRequest([*old.halves, *new.halves], [*old.ops, *new.ops], accept_rewind=True)
    for request in (old, new, both):
        land_files(warehouse, request, LOG)
    landed = content(warehouse)
    assert {"a", "a~2"} == {name for name, _, _ in landed}
    for again in (both, old):
        assert land_files(warehouse, replace(again, accept_rewind=True), LOG).rows_written == {}
    late = files(tmp_path / "late", [half_row(n) for n in range(4)], [])
    with pytest.raises(InputRefused, match="a/0: half row 1 is one that the broker has lost: it has landed as a/0/1"):
        land_files(warehouse, replace(late, accept_rewind=True), LOG)
    third = files(tmp_path / "third", [half_row(2, "''")], [])
    land_files(warehouse, replace(third, accept_rewind=True), LOG)
    assert content(warehouse) - landed == {("a~3", 2, "k2''")}
    for again in (both, third):
        assert land_files(warehouse, replace(again, accept_rewind=True), LOG).rows_written == {}


def content(warehouse: KernelWarehouse) -> set[tuple[str, int, str]]:
    return {(row["broker_name"], row["queue_offset"], row["uniq_key"]) for row in warehouse.rows("half_messages")}


# ---- whose offsets they are ----


CUTS = [{0: 10}, {0: 5}]


@pytest.mark.slow
@pytest.mark.parametrize("by_store", [True, False])
def test_what_no_life_has_read_may_hold_how_a_transaction_ended(
    warehouse: KernelWarehouse, tmp_path: Path, by_store: bool
) -> None:
    """The final message of 1 cannot be read; its op comes when the broker has lost its tail."""
    before, late = w.Store(tmp_path / "before"), {"store_ms": w.BORN_MS + 60 * SECOND}
    places = [before.append(w.half(n)) for n in range(3)]
    final = before.append(w.final(1, places[1]))
    before.append(w.half(3))
    stands = len(before.records)
    before.append(w.half(4))
    after = begun(tmp_path / "after", before.records[:stands])
    for record in (w.half(10, **late), w.op("1,2,", **late)):
        after.append(record)
    for store, accept in ((before, False), (after, True)):
        if by_store:
            path, position = store.log_file(final)
            w.patch(path, position + 4, bytes(4))
            request = StoreRequest(str(store.root), BROKER, timedelta(0), None, True, accept_rewind=accept)
            land_store(warehouse, request, LOG)
        else:
            with played(store, lacking={final}) as address:
                wire = RemotingSettings(give_up_after=5)
                land_broker(warehouse, BrokerRequest(wire, timedelta(0), broker=address, accept_rewind=accept), LOG)
    found = warehouse.read("op_messages").orderBy("half_offset").collect()
    assert [(row["half_offset"], row["outcome"], row["life"]) for row in found] == [(1, None, 2), (2, None, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("by_store", [True, False])
def test_a_broker_that_lost_only_op_messages_is_another(
    warehouse: KernelWarehouse, tmp_path: Path, by_store: bool
) -> None:
    """Its half messages are all there: the op message that came under a lost one's offset would never land."""

    def lands(store: w.Store, accept: bool = False) -> None:
        if by_store:
            land(warehouse, store, accept)
            return
        with played(store, about=About(w.BORN_MS + 600 * SECOND)) as address:
            wire = RemotingSettings(give_up_after=5)
            request = BrokerRequest(wire, timedelta(0), broker=address, accept_rewind=accept)
            if (error := land_broker(warehouse, request, LOG).extra.get("failed_brokers")) is not None:
                raise InputRefused(address, None, str(error))

    before = w.Store(tmp_path / "before")
    for n in range(3):
        before.append(w.half(n))
    before.append(w.op("0,"))
    stands = len(before.records)
    before.append(w.op("1,"))
    for _ in range(2):
        lands(before)
    after = begun(tmp_path / "after", before.records[:stands])
    for body in ("2,", "1,"):
        after.append(w.op(body, store_ms=w.BORN_MS + 60 * SECOND))
    with pytest.raises(InputRefused, match="KEY_REUSED: not the"):
        lands(after)
    for accept in (True, False):
        lands(after, accept)
    landed = {(row["queue_offset"], row["half_offset"], row["life"]) for row in warehouse.rows("op_messages")}
    assert landed == {(0, 0, None), (1, 1, None), (1, 2, 2), (2, 1, 2)}


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["topic", "tail"])
@pytest.mark.parametrize("commits", [0, 1])
def test_a_broker_that_lost_what_a_killed_landing_had_planned_lands_on(
    warehouse: KernelWarehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str, commits: int
) -> None:
    def landed_from(store: w.Store) -> Summary:
        with played(store, about=About(w.BORN_MS + 60 * SECOND)) as address:
            request = BrokerRequest(RemotingSettings(give_up_after=5), timedelta(0), broker=address)
            return land_broker(warehouse, request, LOG)

    def append_once(*given: Any) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        append(*given)

    store, append, left = w.Store(tmp_path / "store"), BesideTables.append_once, list(range(commits))
    transactions(store, range(10))
    landed_from(store)
    stands = list(store.records)
    transactions(store, range(10, 20))
    with monkeypatch.context() as patch:
        patch.setattr(BesideTables, "append_once", append_once)
        with pytest.raises(KeyboardInterrupt):
            landed_from(store)
    if gone == "tail":
        store = begun(tmp_path / "after", stands)
    else:
        store.records[:] = [(place, record) for place, record in store.records if record.topic != "orders"]
        del store.next_offsets[next(queue for queue in store.next_offsets if queue[0] == "orders")]
    found = landed_from(store)
    assert (found.status, found.extra.get("failed_brokers")) == (0, None)
    lost = [row["range_topic"] for row in warehouse.read("rejected").collect() if row["kind"] == "RANGE"]
    assert set(lost) == {"orders"}


def test_an_offset_belongs_to_the_last_life_whose_cut_is_not_above_it() -> None:
    offsets = array([3, 5, 7, 10, 12])
    assert owners_of(CUTS, array([0] * 5), offsets).tolist() == [0, 2, 2, 2, 2]
    assert owners_of(CUTS[::-1], array([0] * 5), offsets).tolist() == [0, 1, 1, 2, 2]
    assert owners_of(CUTS, array([1] * 5), offsets).tolist() == [2] * 5, "a queue that only the last life has"


def test_a_half_topic_that_is_not_used_cuts_nothing(warehouse: KernelWarehouse) -> None:
    """RocketMQ 5 has two, and their queues have the same numbers."""
    topics = (HALF_TOPIC, "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")
    cuts = [Cut(topic, 0, offset, landed, None) for topic, offset, landed in zip(topics, (9, 0), (12, 0), strict=True)]
    begin(warehouse, Lives("a"), cuts, Begun(1, "BROKER", {}))
    assert lives(warehouse, "a").half_cuts == [{0: 9}]


def test_the_lowest_of_all_later_cuts_tells_what_is_lost() -> None:
    found = Lives("a", [Life(n, f"a~{n}", cut, {}, {}, None) for n, cut in enumerate(CUTS, 2)])
    assert found.lost() == [Lost("a", 0, 5, None), Lost("a~2", 0, 5, None)]


@pytest.mark.thorough
def test_end_asks_the_broker_itself_and_for_nothing_that_it_lost(warehouse: KernelWarehouse, rewound: w.Store) -> None:
    with pytest.raises(InputRefused, match=f"{LIFE}, since the last run"):
        landed(warehouse, BROKER, [0], decided_until(warehouse))
    run(warehouse, NOW + SECOND)
    assert owners(warehouse, {BROKER, LIFE, "b"}) == {"b": ["b"], BROKER: [BROKER, LIFE]}
    place = landed(warehouse, BROKER, [0], decided_until(warehouse))[0]
    assert (place.half, place.op) == (4, 2), "up to the end of the new life"
    summary, found = plan(warehouse, Selection("ROLLBACK", [Key(BROKER, 0, 2), Key(LIFE, 0, 3)]))
    assert found.rows.select(["broker_name", "queue_offset"]).to_pylist() == [{"broker_name": LIFE, "queue_offset": 3}]
    assert summary.extra["left_out"] == {"LOST_BY_BROKER": 1}
