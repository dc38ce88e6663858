"""`land … --again`: what a table has lost lands once more, counts once, and ends as it would have."""

from __future__ import annotations

import argparse
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from halfop.frame.errors import InputRefused
from halfop.frame.metrics import Call, families
from halfop.frame.summary import Summary
from halfop.landing.again import Again, again
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.landing.files.land import FilesRequest, land_files
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.planning.run import clocks
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import progress_rows
from model import reference as m
from pyspark.sql import functions as F
from support import rows as r
from support.brokers import store_writer as w
from support.brokers.played_broker import About, played
from support.brokers.stores import transactions
from support.json_lines import half, lines, op

LOG = logging.getLogger("halfop.test")
RULES = m.Settings()
NOW = w.BORN_MS + 3_600_000
NUMBER = 12
Land = Callable[[Sequence[Again]], Summary]
Source = Callable[[KernelWarehouse, Path], AbstractContextManager[Land]]


def forget(warehouse: KernelWarehouse, name: str) -> None:
    """The table's newest commit adds nothing, as after the repair of an emptied one."""
    log = Path(warehouse.path(name), "_delta_log")
    newest = max(log.glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    newest.write_text("".join(json.dumps(each) + "\n" for each in actions if "add" not in each))
    newest.with_suffix(".crc").unlink(missing_ok=True)


@contextmanager
def from_store(warehouse: KernelWarehouse, folder: Path) -> Iterator[Land]:
    store = w.Store(folder / "store", file_size=1 << 11)
    transactions(store, range(NUMBER), commit=3)
    yield lambda wanted: land_store(
        warehouse, StoreRequest(str(store.root), "broker-a", timedelta(0), again=tuple(wanted)), LOG
    )


@contextmanager
def from_broker(warehouse: KernelWarehouse, folder: Path) -> Iterator[Land]:
    store = w.Store(folder / "store")
    transactions(store, range(NUMBER), commit=3)
    with played(store, about=About(w.BORN_MS + 60_000)) as address:
        settings = RemotingSettings(give_up_after=5)
        yield lambda wanted: land_broker(
            warehouse, BrokerRequest(settings, timedelta(0), broker=address, again=tuple(wanted)), LOG
        )


@contextmanager
def from_files(warehouse: KernelWarehouse, folder: Path) -> Iterator[Land]:
    times = {"born_timestamp": w.BORN_MS, "store_timestamp": w.BORN_MS + 1}
    rows = [half(n, broker_name="broker-a", **times) for n in range(NUMBER)]
    halves = lines(folder / "h.jsonl", *rows)
    ends = {str(n): "COMMIT" if n % 3 == 0 else "ROLLBACK" for n in range(NUMBER)}
    body = ",".join(ends)
    ops = lines(folder / "o.jsonl", op(0, body, broker_name="broker-a", outcome=None, outcomes=ends, **times))
    yield lambda wanted: land_files(warehouse, FilesRequest([halves], [ops], again=tuple(wanted)), LOG)


SOURCES = [from_store, from_broker, from_files]
ALL = [again(f"broker-a/0/0-{NUMBER - 1}")]


def fates(warehouse: KernelWarehouse) -> dict[int, list[str]]:
    """The ends of each half message, in the order of the runs."""
    ended = warehouse.read("decisions").where(F.col("decision").isin("COMMIT", "ROLLBACK")).orderBy("run_id").collect()
    found: dict[int, list[str]] = {}
    for row in ended:
        found.setdefault(row["queue_offset"], []).append(row["decision"])
    return found


def assert_right(warehouse: KernelWarehouse) -> None:
    assert fates(warehouse) == {n: ["COMMIT" if n % 3 == 0 else "ROLLBACK"] for n in range(NUMBER)}
    delivered = Counter(each.key[2] for each in r.delivered(warehouse).elements())
    assert delivered == Counter(range(0, NUMBER, 3))
    assert {reason for _, reason, *_ in r.rejected(warehouse)} <= {"REDUNDANT"}, "its op row was lost, and lands again"


# The sources differ in how a range is found, the tables in what counts, and a run may have decided before.
_CASES = [
    (from_store, "half_messages", True),
    (from_broker, "op_messages", False),
    (from_files, "op_messages", True),
]
_MORE = [
    (source, table, decided)
    for source in SOURCES
    for table in ("half_messages", "op_messages")
    for decided in (False, True)
    if (source, table, decided) not in _CASES
]


@pytest.mark.parametrize(
    ("source", "table", "decided"),
    [
        *(pytest.param(*case, marks=pytest.mark.thorough) for case in _CASES),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in _MORE),
    ],
)
def test_what_was_lost_lands_again_and_ends_once(
    warehouse: KernelWarehouse, tmp_path: Path, source: Source, table: str, decided: bool
) -> None:
    with source(warehouse, tmp_path) as land:
        land([])
        if decided:
            r.run(warehouse, RULES, NOW)
        forget(warehouse, table)
        if not decided:
            r.run(warehouse, m.Settings(transaction_timeout=10 * 3_600_000), NOW)
        before = next_offsets(warehouse)
        assert not any(land([]).rows_written.values()), "it has landed once"
        landed = land(ALL)
        command = source.__name__.replace("from", "land")
        assert list(families(Call(command, 1.0, landed.status, landed), 0.0)), "its metrics know all that they need"
        r.run(warehouse, RULES, NOW + 1)
        assert_right(warehouse)
        assert next_offsets(warehouse) == before


def next_offsets(warehouse: KernelWarehouse) -> dict[tuple[str, str, int], int | None]:
    return {(row["broker_name"], row["topic"], row["queue_id"]): row["next_offset"] for row in progress_rows(warehouse)}


def test_only_the_range_lands_again(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    with from_files(warehouse, tmp_path) as land:
        land([])
        summary = land([again("broker-a/RMQ_SYS_TRANS_HALF_TOPIC/0/3-4")])
        assert (summary.rows_written["half_messages"], summary.rows_written["op_messages"]) == (2, 0)
    rows = warehouse.read("half_messages").groupBy("queue_offset").count().collect()
    assert {row["queue_offset"]: row["count"] for row in rows} == {n: 2 if n in (3, 4) else 1 for n in range(NUMBER)}


@pytest.mark.parametrize("absent", ["broker-a/7/0-9", f"broker-a/0/{NUMBER}-40", "broker-b/0/3-4", "broker-a/0/5-6"])
def test_a_range_that_the_files_never_had_is_refused(warehouse: KernelWarehouse, tmp_path: Path, absent: str) -> None:
    halves = lines(tmp_path / "h.jsonl", *(half(n, broker_name="broker-a") for n in range(NUMBER) if n not in (5, 6)))
    wanted = (again("broker-a/0/3-4"), again(absent), again("broker-a/0/9-9"))
    with pytest.raises(InputRefused, match=f"--again {absent}: the files have no row in that range") as refused:
        land_files(warehouse, FilesRequest([halves], again=wanted), LOG)
    assert refused.value.exit_status == 3
    assert not warehouse.rows("half_messages")


def test_what_the_store_no_longer_has_is_said(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    with from_store(warehouse, tmp_path) as land:
        land([])
        with pytest.raises(InputRefused, match="no such broker"):
            land([again("broker-b/0/0-3")])
        with pytest.raises(InputRefused, match="no such offsets"):
            land([again("broker-a/0/700-701")])
        first = min((tmp_path / "store" / "commitlog").iterdir())
        first.unlink()
        notes = land(ALL).notes
    assert any("cannot land again" in note for note in notes), notes
    gone = warehouse.read("rejected").where("kind = 'RANGE'").collect()
    assert {(row["reason"], row["range_topic"], row["range_from"]) for row in gone} == {
        ("LOST_RANGE", "RMQ_SYS_TRANS_HALF_TOPIC", 0)
    }


@pytest.mark.parametrize("text", ["broker-a/0", "broker-a/0/4", "broker-a/0/9-4", "broker-a/T/x/1-2", "/0/1-2"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected BROKER/QUEUE/FROM-TO"):
        again(text)


def test_a_range_is_written_as_it_is_read() -> None:
    for text in ("broker-a~2/0/4-9", "broker-a/orders/3/0-0"):
        assert str(again(text)) == text


def test_a_file_of_which_only_a_range_has_landed_lands_later(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    """It may be new: else its other rows would never land."""
    halves = lines(tmp_path / "h.jsonl", *(half(n) for n in range(4)))
    land_files(warehouse, FilesRequest([halves], [], again=(again("b/0/1-2"),)), LOG)
    assert warehouse.read("half_messages").count() == 2
    land_files(warehouse, FilesRequest([halves], []), LOG)
    assert warehouse.read("half_messages").select("queue_offset").distinct().count() == 4


@pytest.mark.parametrize("source", [from_store, from_broker])
def test_a_queue_of_which_nothing_has_landed_is_not_known_until_now(
    warehouse: KernelWarehouse, tmp_path: Path, source: Source
) -> None:
    with source(warehouse, tmp_path) as land:
        land([again("broker-a/0/2-3")])
    assert warehouse.read("half_messages").count() >= 2
    assert [clock.known_until for clock in clocks(progress_rows(warehouse))] == [None]
