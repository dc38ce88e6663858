"""land store: what lands of a broker's store, what is refused, and that nothing lands twice whatever kills it."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from halfop.frame.errors import InputRefused
from halfop.frame.summary import Summary
from halfop.landing import progress
from halfop.landing.staged import BesideTables, OnClient
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.model import Settings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import COMMIT_LOG, progress_rows
from pyspark.sql import DataFrame
from support import rows as r
from support.brokers import store_writer as w
from support.brokers.stores import transactions

LOG = logging.getLogger("halfop.test")
TABLES = ("half_messages", "final_messages", "broker_discards", "op_messages")
BROKER = "broker-a"


class Killed(Exception):
    """Stands for a process that ends."""


@pytest.fixture
def store(tmp_path: Path) -> w.Store:
    return w.Store(tmp_path / "store", file_size=1 << 13)


def land(warehouse: KernelWarehouse, store: w.Store, skip_corrupt: bool = False, name: str = BROKER) -> Summary:
    return land_store(warehouse, StoreRequest(str(store.root), name, timedelta(0), None, skip_corrupt), LOG)


def rows(warehouse: KernelWarehouse, name: str) -> DataFrame:
    return warehouse.read(name)


def outcomes(warehouse: KernelWarehouse) -> dict[int, list[str | None]]:
    """The outcomes by half offset, in the order in which they landed."""
    found: dict[int, list[str | None]] = {}
    for row in rows(warehouse, "op_messages").orderBy("landed_at").collect():
        found.setdefault(row["half_offset"], []).append(row["outcome"])
    return found


def counts(warehouse: KernelWarehouse) -> dict[str, int]:
    return {name: rows(warehouse, name).count() for name in TABLES}


def test_a_store_lands_and_then_what_is_new(warehouse: KernelWarehouse, store: w.Store) -> None:
    transactions(store, range(100))
    store.append(w.discard(7))
    summary = land(warehouse, store)
    assert summary.rows_written == dict(zip(TABLES, (100, 50, 1, 100), strict=True))
    assert counts(warehouse) == dict(zip(TABLES, (100, 50, 1, 100), strict=True))
    assert outcomes(warehouse) == {n: ["COMMIT" if n % 2 == 0 else "ROLLBACK"] for n in range(100)}
    assert len(list((store.root / "commitlog").iterdir())) > 3, "the log spans files"

    again = land(warehouse, store)
    assert (again.rows_written, again.rows_read) == ({}, {"records": 0})
    transactions(store, range(100, 120))
    assert land(warehouse, store).rows_written == {"half_messages": 20, "final_messages": 10, "op_messages": 20}
    found = progress.of_broker(warehouse, BROKER)
    assert found["RMQ_SYS_TRANS_HALF_TOPIC", 0].next_offset == 120
    assert found[COMMIT_LOG, 0][3:9] == (
        store.end,
        None,
        found[COMMIT_LOG, 0].landed_at,
        0,
        None,
        None,
    )


def test_what_a_consumer_got_again_commits_no_twin(warehouse: KernelWarehouse, store: w.Store) -> None:
    """Of two sends of one Message object the first, at place 0, was rolled back; the copy of a retry names place 0."""
    store.append(w.half(0))
    store.append(w.final(0, store.append(w.half(0))))
    store.append(w.final(0, 0, topic="%RETRY%g"))
    store.append(w.op("1,"))
    land(warehouse, store)
    assert reconcile(warehouse, Request(Settings(), r.instant(w.BORN_MS + 1000))).status == 0
    assert {row["queue_offset"]: row["decision"] for row in rows(warehouse, "decisions").collect()} == {
        0: "WAIT",
        1: "COMMIT",
    }
    store.append(w.op("0,"))
    land(warehouse, store)
    assert outcomes(warehouse) == {0: ["ROLLBACK"], 1: ["COMMIT"]}


@pytest.mark.slow
def test_a_half_message_lands_as_it_is(warehouse: KernelWarehouse, store: w.Store) -> None:
    place = store.append(w.half(3, sys_flag=0x201, body=b"(\xb5/\xfd", flag=7, reconsume_times=2))
    land(warehouse, store)
    row = rows(warehouse, "half_messages").collect()[0].asDict()
    wanted: dict[str, Any] = {
        "broker_name": BROKER,
        "queue_offset": 0,
        "commit_log_offset": place,
        "uniq_key": f"{3:032X}",
        "producer_group": "pg",
        "real_topic": "orders",
        "real_queue_id": 3,
        "sys_flag": 0x201,
        "body": bytearray(b"(\xb5/\xfd"),
        "born_host": "10.0.0.1:40000",
        "reconsume_times": 2,
        "record_size": store.size(place),
    }
    assert {name: row[name] for name in wanted} == wanted


class _Deaths:
    """The nth commit of a landing, and the moment after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, after: bool) -> None:
        self._left, self._after = at, after
        for owner, name in (
            (BesideTables, "append_once"),
            (OnClient, "append_once"),
            (progress, "move"),
            (progress, "add_missing"),
        ):
            self._wrap(monkeypatch, owner, name)

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        real = getattr(owner, name)

        def step(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Killed
            done = real(*args, **kwargs)
            if self._left == 0:
                raise Killed
            return done

        monkeypatch.setattr(owner, name, step)


@pytest.mark.parametrize("at", [4, *(pytest.param(at, marks=pytest.mark.slow) for at in (1, 2, 3, 5, 6))])
def test_a_killed_landing_is_made_up_for(
    warehouse: KernelWarehouse, store: w.Store, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """A landing that is killed after its nth commit, with the log grown before the next one."""
    transactions(store, range(30))
    store.append(w.discard(1))
    with monkeypatch.context() as patched:
        _Deaths(patched, at, after=True)
        with pytest.raises(Killed):
            land(warehouse, store)
    transactions(store, range(30, 40))
    land(warehouse, store)
    assert counts(warehouse) == dict(zip(TABLES, (40, 20, 1, 40), strict=True))
    assert all(len(landed) == 1 for landed in outcomes(warehouse).values())


def test_a_corrupt_place_is_refused_and_what_came_before_stays(
    warehouse: KernelWarehouse, store: w.Store, caplog: pytest.LogCaptureFixture
) -> None:
    transactions(store, range(20))
    good = store.end
    transactions(store, range(20, 40))
    bad = store.places("half")[25]
    path, position = store.log_file(bad)
    w.patch(path, position + 8, b"\xff\xff")  # the body's CRC
    said = datetime.now(timezone.utc)
    with pytest.raises(InputRefused, match="CRC") as refused:
        land_store(warehouse, StoreRequest(str(store.root), BROKER, timedelta(0), said), LOG)
    known = [row["known_until"] for row in progress_rows(warehouse) if row["known_until"]]
    assert max(known) < said, "there are ops behind it"
    assert "--known-until does not count" in caplog.text
    assert (refused.value.path, refused.value.line) == (str(path), position)
    assert refused.value.exit_status == 3
    assert good < bad
    assert counts(warehouse) == dict(zip(TABLES, (25, 10, 0, 20), strict=True))

    original = store.records[[place for place, _ in store.records].index(bad)][1].at(bad)
    w.patch(path, position, original)
    land(warehouse, store)
    assert counts(warehouse) == dict(zip(TABLES, (40, 20, 0, 40), strict=True))


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (None, "no consume queues: .* copy its folder consumequeue as well"),
        ("consumequeue_rocksdb/CURRENT", "in RocksDB, .* While the broker runs, land broker goes by them"),
    ],
)
def test_a_log_that_is_checked_alone_is_said_with_the_way_out(
    warehouse: KernelWarehouse, tmp_path: Path, file: str | None, said: str
) -> None:
    store = w.Store(tmp_path / "store", queues=False)
    store.append(w.half(0))
    if file:
        (store.root / file).parent.mkdir()
        (store.root / file).touch()
    (note,) = land(warehouse, store).notes
    assert re.search(said, note)


def test_skipping_loses_a_range_and_repair_finds_it(warehouse: KernelWarehouse, store: w.Store) -> None:
    transactions(store, range(20))
    transactions(store, range(20, 40))
    bad = next(place for place in store.places("final") if place > store.places("half")[-1])
    path, position = store.log_file(bad)
    original = store.records[[place for place, _ in store.records].index(bad)][1].at(bad)
    w.patch(path, position + 4, b"\0\0\0\0")  # the magic
    summary = land(warehouse, store, skip_corrupt=True)
    assert summary.extra["lost_ranges"] == 1
    assert any("skipped" in note for note in summary.notes)
    lost = rows(warehouse, "rejected").collect()
    assert [(row["kind"], row["reason"]) for row in lost] == [("RANGE", "LOST_RANGE")]
    assert (lost[0]["range_from"], lost[0]["range_to"]) == (bad, bad + store.size(bad))
    found = outcomes(warehouse)
    assert (found[1], found[22]) == (["ROLLBACK"], ["COMMIT"]), "what is known stays known"
    assert (found[21], found[20]) == ([None], [None]), "whose final message may have been in the lost range"

    w.patch(path, position, original)
    transactions(store, range(40, 42))
    land(warehouse, store)
    found = outcomes(warehouse)
    assert (found[20], found[21], found[22]) == ([None, "COMMIT"], [None, "ROLLBACK"], ["COMMIT"])
    assert counts(warehouse)["final_messages"] == 21
    reasons = Counter(row["reason"] for row in rows(warehouse, "rejected").collect())
    assert reasons == {"LOST_RANGE": 1, "FOUND_RANGE": 1}


def test_a_queue_of_which_all_was_lost_has_a_clock_when_it_is_found(warehouse: KernelWarehouse, store: w.Store) -> None:
    """A queue without a row in landing_progress is known until now: its messages would be asked about at once."""
    store.append(w.Record())
    bad = [store.append(w.half(0)), store.append(w.op("0,"))]
    store.append(w.Record())
    originals = [record.at(place) for place, record in store.records if place in bad]
    for place in bad:
        path, position = store.log_file(place)
        w.patch(path, position + 4, b"\0\0\0\0")
    land(warehouse, store, skip_corrupt=True)
    assert {topic for topic, _ in progress.of_broker(warehouse, BROKER)} == {COMMIT_LOG}
    for place, original in zip(bad, originals, strict=True):
        w.patch(*store.log_file(place), original)
    assert land(warehouse, store).rows_written == {"half_messages": 1, "op_messages": 1}
    found = progress.of_broker(warehouse, BROKER)
    for topic in (HALF_TOPIC, OP_TOPIC):
        row = found[topic, 0]
        assert (row.first_offset, row.next_offset, row.known_until) == (0, 1, (w.BORN_MS + 1) * 1000)


@pytest.mark.slow
@pytest.mark.parametrize("at", [2, 3])
def test_what_a_killed_landing_skipped_and_is_repaired_by_then_lands_once(
    warehouse: KernelWarehouse, store: w.Store, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    transactions(store, range(40))
    bad = store.places("half")[7]
    path, position = store.log_file(bad)
    original = store.records[[place for place, _ in store.records].index(bad)][1].at(bad)
    w.patch(path, position + 4, b"\0\0\0\0")
    with monkeypatch.context() as patched:
        _Deaths(patched, at, after=True)
        with pytest.raises(Killed):
            land(warehouse, store, skip_corrupt=True)
    w.patch(path, position, original)
    land(warehouse, store)
    land(warehouse, store)
    assert counts(warehouse)["half_messages"] == counts(warehouse)["final_messages"] * 2 == 40
    assert {n: found[-1] for n, found in outcomes(warehouse).items()} == {
        n: "COMMIT" if n % 2 == 0 else "ROLLBACK" for n in range(40)
    }


@pytest.mark.slow
def test_another_store_under_a_known_name_is_refused(
    warehouse: KernelWarehouse, store: w.Store, tmp_path: Path
) -> None:
    transactions(store, range(10))
    land(warehouse, store)
    other = w.Store(tmp_path / "other", file_size=1 << 13)
    other.append(w.op("5"))
    transactions(other, range(30))
    with pytest.raises(InputRefused, match="KEY_REUSED"):
        land(warehouse, other)
    land(warehouse, other, name="broker-b")
    assert counts(warehouse)["half_messages"] == 40


def test_a_store_that_lacks_what_has_landed_is_refused(
    warehouse: KernelWarehouse, store: w.Store, tmp_path: Path
) -> None:
    """A rebuilt one whose log is longer for other messages, one that lost half messages and wrote on. A time to come
    is no time to count with."""
    tomorrow = time.time_ns() // 1_000_000 + 86_400_000
    transactions(store, range(10))
    store.append(w.Record(store_ms=tomorrow))
    known = land(warehouse, store).extra["known_until"]
    assert known["greatest"] < datetime.now(timezone.utc)
    rebuilt = w.Store(tmp_path / "rebuilt", file_size=1 << 13)
    for _ in range(60):
        rebuilt.append(w.Record())
    transactions(rebuilt, range(3))
    with pytest.raises(InputRefused, match="KEY_REUSED"):
        land(warehouse, rebuilt)
    store.next_offsets[w.HALF_QUEUE] += 2
    transactions(store, range(12, 15))
    with pytest.raises(InputRefused, match="half queue 0 goes on at offset 12, it has landed up to 10"):
        land(warehouse, store)
    assert counts(warehouse)["half_messages"] == 10


def refused(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    yield tmp_path / "nowhere", "commitlog"
    (tmp_path / "empty" / "commitlog").mkdir(parents=True)
    yield tmp_path / "empty", "commitlog"


def test_what_is_no_store_is_refused(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    for path, named in refused(tmp_path):
        with pytest.raises(InputRefused, match=named):
            land_store(warehouse, StoreRequest(str(path), BROKER, timedelta(0)), LOG)


def test_a_store_on_another_file_system_is_copied_first(
    warehouse: KernelWarehouse, store: w.Store, tmp_path: Path
) -> None:
    """Hadoop's view of a mount: as remote as a file system on this machine can be."""
    mounted = "fs.viewfs.mounttable.brokers.link./store"
    hadoop: Any = warehouse.spark._jsc.hadoopConfiguration()
    hadoop.set(mounted, f"file://{store.root}")
    try:
        transactions(store, range(10))
        request = StoreRequest("viewfs://brokers/store", BROKER, timedelta(0))
        assert land_store(warehouse, request, LOG).rows_written["half_messages"] == 10
        assert counts(warehouse) == dict(zip(TABLES, (10, 5, 0, 10), strict=True))
        with pytest.raises(InputRefused, match="no broker's store"):
            land_store(warehouse, replace(request, path=f"{request.path}/commitlog"), LOG)
        path, position = store.log_file(store.append(w.half(10)))
        w.patch(path, position + 8, b"\xff\xff")
        with pytest.raises(InputRefused, match=r"viewfs://brokers/store/commitlog/0+:\d+: the body"):
            land_store(warehouse, request, LOG)
    finally:
        hadoop.unset(mounted)
