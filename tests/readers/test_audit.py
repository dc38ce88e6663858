"""The audit: a case a broker, all landed and audited at once; each case is a broker's log with what it shows."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from halfop.audit.audit import audit
from halfop.audit.findings import NAMES
from halfop.frame.cli import main
from halfop.frame.summary import Summary, json_line
from halfop.landing.lost import FOUND, LOST
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC, ROCKSDB_QUEUES, ROCKSDB_TOPICS
from halfop.settings.model import LandingSettings, Settings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import COMMIT_LOG
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession
from support import rows as r
from support.entry_points import job_of

T0 = 1_750_000_000_000
NOW = 1000  # seconds after T0; so much is known where a case says nothing else
SHARED = "KEY of two brokers"
Cells = dict[str, Any]
Row = tuple[str, Cells]


def instant(at: float) -> int:
    return T0 + int(at * 1000)


def place(at: float) -> int:
    """The commit log grows by 10 kB a second."""
    return int(at * 10_000)


def half(offset: int, at: float, times: int | None = None, **given: Any) -> Row:
    """A row of half_messages, born at 0. A copy has check times; `prepared` as well where it was put back immune."""
    key, immunity, prepared = given.get("key", "KEY"), given.get("immunity"), given.get("prepared")
    properties = {
        "TRANSACTION_CHECK_TIMES": times,
        "CHECK_IMMUNITY_TIME_IN_SECONDS": immunity,
        "TRAN_PREPARED_QUEUE_OFFSET": prepared,
    }
    return "half_messages", {
        "queue_id": given.get("queue", 0),
        "queue_offset": offset,
        "commit_log_offset": place(at),
        "uniq_key": key,
        "producer_group": given.get("group", "group"),
        "real_topic": given.get("topic", "T"),
        "real_queue_id": 1,
        "born_timestamp": instant(given.get("born", 0)),
        "born_host": given.get("host"),
        "store_timestamp": instant(at),
        "properties": {name: str(value) for name, value in properties.items() if value is not None},
        "record_size": 100,
        "landed_at": instant(NOW),
    }


def op(names: int, at: float, outcome: str | None = "COMMIT", **given: Any) -> Row:
    return "op_messages", {
        "queue_id": 0,
        "queue_offset": int(at * 10),
        "item": 0,
        "tag": "d",
        "body": str(names),
        "half_offset": names,
        "outcome": outcome,
        "store_timestamp": instant(at),
        "source": "STORE",
        "physical_offset": place(at),
        "landed_at": instant(NOW),
    } | given


def final(half_at: float, at: float, key: str | None = "KEY", **given: Any) -> Row:
    """Names the half message that was stored at `half_at`."""
    return "final_messages", {
        "prepared_transaction_offset": place(half_at),
        "topic": "T",
        "queue_id": 1,
        "queue_offset": int(at * 10),
        "uniq_key": key,
        "store_timestamp": instant(at),
        "physical_offset": place(at),
        "landed_at": instant(NOW),
    } | given


def discard(at: float, times: int, **given: Any) -> Row:
    return "broker_discards", {
        "queue_id": 0,
        "queue_offset": int(at * 10),
        "uniq_key": "KEY",
        "producer_group": "group",
        "born_timestamp": instant(0),
        "check_times": times,
        "store_timestamp": instant(at),
        "physical_offset": place(at),
        "landed_at": instant(NOW),
    } | given


def without_places(*rows: Row) -> tuple[Row, ...]:
    """Rows as a user's own pipeline may land them."""
    return tuple((table, {**cells, "physical_offset": None}) for table, cells in rows)


# Around a case, so that what is in its midst lies between half messages that have landed.
EARLY, LATE = half(0, 0, key="EARLY"), half(90, 90, key="LATE")


# Five transactions of a group, put back once with a check, and their answers.
FIVE = tuple(half(n, n, key=f"K{n}") for n in range(5))
ASKED = tuple(half(10 + n, 100 + n, 1, key=f"K{n}") for n in range(5))


def answered(n: int) -> tuple[Row, ...]:
    return final(100 + n, 110 + n, f"K{n}"), op(10 + n, 110.5 + n)


def sent(host: str, topic: str, offset: int, later: int = 0, skew: int = 0) -> tuple[Row, ...]:
    """Five messages of a host, each stored as soon as it is born."""
    times = [(offset + n, later + n, later + n + skew) for n in range(5)]
    return tuple(
        half(at, store, host=f"{host}:{at}", topic=topic, born=born, key=f"{host}{at}") for at, store, born in times
    )


# When and where a broker stores a final message again for a consumer's retries, in the end for none, or for later.
AGAIN = ((10, "SCHEDULE_TOPIC_XXXX"), (20, "%RETRY%g"), (30, "%RETRY%g_T"), (40, "%DLQ%g"), (50, "rmq_sys_wheel_timer"))


@dataclass(frozen=True)
class Case:
    """A broker's log, and what an audit finds there: (finding, half offset), and fates."""

    name: str
    log: tuple[Row, ...]
    found: tuple[tuple[str, int | None], ...] = ()
    fates: tuple[str, ...] = ()
    known_until: float | None = NOW  # None: a queue on which no time has passed
    listed: bool = True  # in landing_progress
    log_from: int | None = None  # a store landed from there on
    lost: tuple[tuple[float, float], ...] = ()
    found_again: tuple[tuple[float, float], ...] = ()
    check: tuple[int, float] | None = None  # the half offset that the broker's check has come to, and since when


CASES = [
    Case(
        "clean",
        (
            half(0, 1, key="A"),
            final(1, 2, "A"),
            op(0, 2.2),
            half(1, 3, key="B"),
            op(1, 4, "ROLLBACK"),
            half(2, 5, key="C"),
            half(3, 6, key="D"),
            half(4, 20, 1, key="D"),
            final(20, 21, "D"),
            op(4, 21.2),
        ),
        fates=("COMMITTED_AND_DELIVERED", "ROLLED_BACK", "OPEN", "COMMITTED_AND_DELIVERED"),
    ),
    Case("an op whose outcome is not known", (half(0, 1), op(0, 2, None)), fates=("ENDED",)),
    Case("committed, real topics not landed", (half(0, 1), op(0, 2, source="FILES")), fates=("COMMITTED",)),
    # ---- delivered twice
    Case(
        "two copies answered",
        (half(0, 1), half(1, 20, 1), final(1, 21), op(0, 21.2), final(20, 22), op(1, 22.2)),
        (("DELIVERED_TWICE", 0),),
        ("COMMITTED_AND_DELIVERED",),
    ),
    Case(
        "answered, asked, answered",
        (half(0, 1), final(1, 10), half(1, 20, 1), op(0, 20.2), final(20, 22), op(1, 22.2)),
        (("DELIVERED_TWICE", 0), ("CHECKED_AFTER_END", 0)),
    ),
    Case(
        "one half message answered twice", (half(0, 1), final(1, 2), final(1, 3), op(0, 3)), (("DELIVERED_TWICE", 0),)
    ),
    Case("a final that landed twice", (half(0, 1), final(1, 2), final(1, 2, physical_offset=None), op(0, 3))),
    Case("an op that landed twice", (half(0, 1), final(1, 2), op(0, 3), op(0, 3, None), op(0, 3, source="BROKER"))),
    Case(
        "a half that landed twice", (half(0, 1), half(0, 1), final(1, 2), op(0, 3)), fates=("COMMITTED_AND_DELIVERED",)
    ),
    Case(
        "of a half message that has not landed",
        (half(5, 50, key="X"), final(1, 51), final(1, 52)),
        (("DELIVERED_TWICE", None),),
        ("OPEN", "HALF_NOT_LANDED"),
    ),
    Case(
        "consumers got two messages again, one of them that of the log's beginning",
        (
            half(0, 0, key="A"),
            final(0, 1, "A"),
            op(0, 1.2),
            half(1, 2, key="B"),
            final(2, 3, "B"),
            op(1, 3.2),
            *(final(0, at, key, topic=topic) for at, topic in AGAIN for key in ("A", "B")),
        ),
        fates=("COMMITTED_AND_DELIVERED",) * 2,
        log_from=0,
    ),
    # ---- conflicting ends
    Case(
        "rolled back, then committed",
        (half(0, 1), half(1, 20, 1), op(0, 21, "ROLLBACK"), final(20, 22), op(1, 22.2)),
        (("CONFLICTING_ENDS", 0),),
    ),
    # ---- committed but missing
    Case("no final in the log", (half(0, 1), op(0, 9, source="FILES")), (("COMMITTED_BUT_MISSING", 0),), log_from=0),
    Case("the log begins later", (half(0, 1), op(0, 9, source="FILES")), log_from=place(2)),
    Case("the log ends before", (half(0, 1), op(0, 9, source="FILES")), log_from=0, known_until=8),
    Case(
        "the final may be in a lost range",
        (EARLY, half(1, 1), op(1, 9, source="FILES"), LATE),
        log_from=0,
        lost=((5, 10),),
    ),
    Case(
        "a range lost before the half message",
        (EARLY, half(1, 6), op(1, 9, source="FILES")),
        (("COMMITTED_BUT_MISSING", 1),),
        log_from=0,
        lost=((2, 5),),
    ),
    Case(
        "no final in the real queue",
        (
            half(0, 0.1, key="A"),
            final(0.1, 0.2, "A"),
            op(0, 0.3),
            half(1, 1),
            op(1, 9, source="FILES"),
            half(2, 10, key="B"),
            final(10, 11, "B"),
            op(2, 11),
        ),
        (("COMMITTED_BUT_MISSING", 1),),
    ),
    Case(
        "the real queue is not read so far",
        (half(0, 0.1, key="A"), final(0.1, 0.2, "A"), op(0, 0.3), half(1, 1), op(1, 9, source="FILES")),
    ),
    Case(
        "the real queue is not read from so early",
        (
            half(1, 1),
            op(1, 9, source="FILES"),
            half(2, 4, key="A"),
            final(4, 5, "A"),
            op(2, 6),
            half(3, 10, key="B"),
            final(10, 11, "B"),
            op(3, 12),
        ),
    ),
    # ---- delivered and discarded
    Case(
        "answered at the last check",
        (half(0, 1), half(1, 20, 1), discard(20.5, 1), final(20, 21), op(1, 21.2)),
        (("DELIVERED_AND_DISCARDED", 0),),
        ("COMMITTED_AND_DELIVERED",),
    ),
    Case(
        "delivered before it was discarded",
        (half(0, 1), half(1, 20, 1), final(20, 20.2), discard(20.5, 1), op(1, 21.2)),
        (("DELIVERED_AND_DISCARDED", 0),),
    ),
    Case(
        "resumed between",
        (half(0, 1), half(1, 20, 1), discard(20.5, 1), half(2, 30, 0), final(30, 40), op(2, 41)),
        fates=("COMMITTED_AND_DELIVERED",),
    ),
    Case(
        "perhaps resumed in a lost range",
        (half(0, 1), half(1, 20, 1), discard(20.5, 1), final(20, 40), op(1, 41), LATE),
        lost=((25, 26),),
    ),
    Case(
        "rolled back at the last check",
        (half(0, 1), half(1, 20, 1), discard(20.5, 1), op(1, 21.2, "ROLLBACK")),
        fates=("ROLLED_BACK",),
    ),
    # ---- discarded without check
    Case(
        "immune all the time",
        (
            half(0, 1, immunity=60),
            half(1, 5, 1, immunity=60, prepared=0),
            half(2, 9, 2, immunity=60, prepared=0),
            discard(9.1, 2),
        ),
        (("DISCARDED_WITHOUT_CHECK", 0),),
        ("DISCARDED",),
    ),
    Case(
        "checked after it was immune",
        (
            half(0, 1, immunity=6),
            half(1, 5, 1, immunity=6, prepared=0),
            half(2, 9, 2, immunity=6, prepared=0),
            discard(9.1, 2),
        ),
        fates=("DISCARDED",),
    ),
    Case("checked", (half(0, 1), half(1, 9, 1), discard(9.1, 1)), fates=("DISCARDED",)),
    Case("too old", (half(0, 1), discard(99, 1)), (("DISCARDED_WITHOUT_CHECK", 0),)),
    Case("the copy that was checked has not landed", (half(0, 1), half(2, 9, 1, immunity=60), discard(99, 3))),
    Case("perhaps checked in a lost range", (half(0, 1), discard(80, 1), LATE), lost=((30, 31),)),
    Case(
        "a lost range before", (EARLY, half(1, 40), discard(80, 1)), (("DISCARDED_WITHOUT_CHECK", 1),), lost=((30, 31),)
    ),
    Case(
        "resumed, and discarded at once",
        (half(0, 1), half(1, 9, 1), discard(9.1, 1), half(2, 30, 0), discard(31, 1)),
        (("DISCARDED_WITHOUT_CHECK", 0),),
        ("DISCARDED",),
    ),
    Case("resumed", (half(0, 1), half(1, 9, 1), discard(9.1, 1), half(2, 30, 0)), fates=("OPEN",)),
    # ---- ended without half
    Case("a hole", (EARLY, op(5, 9), LATE), (("ENDED_WITHOUT_HALF", 5),), ("HALF_NOT_LANDED", "OPEN", "OPEN")),
    Case("below what has landed", (half(6, 6), op(5, 9, "ROLLBACK"))),
    Case("above what has landed", (half(4, 4), op(5, 9, "ROLLBACK"))),
    Case("the half message is in a lost range", (EARLY, op(5, 9), final(5, 8), LATE), lost=((4, 6),)),
    Case(
        "a range was found again",
        (EARLY, op(5, 9), LATE),
        (("ENDED_WITHOUT_HALF", 5),),
        lost=((4, 6),),
        found_again=((4, 6),),
    ),
    Case(
        "a lost range elsewhere",
        (EARLY, half(4, 4, key="A"), op(5, 9), half(6, 10, key="B"), LATE),
        (("ENDED_WITHOUT_HALF", 5),),
        lost=((60, 70),),
    ),
    Case("a final of nothing", (EARLY, final(5, 9), LATE), (("ENDED_WITHOUT_HALF", None),)),
    Case("a final of another message", (EARLY, final(0, 9), LATE), (("ENDED_WITHOUT_HALF", None),)),
    # ---- delivered without op
    Case("the op was lost", (half(0, 1), final(1, 2)), (("DELIVERED_WITHOUT_OP", 0),), ("DELIVERED",)),
    Case("the op may be under way", (half(0, 1), final(1, 2)), known_until=6.9),
    Case("just known", (half(0, 1), final(1, 2)), (("DELIVERED_WITHOUT_OP", 0),), known_until=7),
    Case("no time has passed", (half(0, 1), final(1, 2)), known_until=None),
    Case("a queue that is not listed", (half(0, 1), final(1, 2)), (("DELIVERED_WITHOUT_OP", 0),), listed=False),
    Case("the op may be in a lost range", (EARLY, half(1, 1), final(1, 2), half(2, 3, key="B"), LATE), lost=((4, 5),)),
    Case(
        "a range lost long after",
        (EARLY, half(1, 1), final(1, 2), half(2, 8, key="B"), LATE),
        (("DELIVERED_WITHOUT_OP", 1),),
        lost=((9, 10),),
    ),
    Case("resolved by hand", (half(0, 1), final(1, 2), op(0, 9, source="RESOLVE")), (("DELIVERED_WITHOUT_OP", 0),)),
    Case(
        "the op was lost, and another copy has one",
        (half(0, 1), final(1, 2), half(1, 20, 1), final(20, 21), op(1, 21.2)),
        (("DELIVERED_WITHOUT_OP", 0), ("DELIVERED_TWICE", 0), ("CHECKED_AFTER_END", 0)),
    ),
    # ---- checked after the end
    Case("asked after a rollback", (half(0, 1), op(0, 9, "ROLLBACK"), half(1, 10, 1)), (("CHECKED_AFTER_END", 0),)),
    Case("asked before", (half(0, 1), half(1, 8, 1), op(0, 9, "ROLLBACK")), fates=("ROLLED_BACK",)),
    Case(
        "put back without a question",
        (half(0, 1, immunity=60), op(0, 9, "ROLLBACK"), half(1, 10, 1, immunity=60, prepared=0)),
    ),
    Case(
        "by store times",
        (half(0, 1), *without_places(final(1, 9), op(0, 9.1)), half(1, 10, 1)),
        (("CHECKED_AFTER_END", 0),),
    ),
    Case(
        "within a millisecond",
        (half(0, 1), op(0, 10, "ROLLBACK"), half(1, 10.0003, 1)),
        (("CHECKED_AFTER_END", 0),),
    ),
    Case("within a millisecond, asked before", (half(0, 1), half(1, 10, 1), op(0, 10.0003, "ROLLBACK"))),
    # ---- twins
    Case(
        "a message object sent twice",
        (half(0, 1), half(1, 2, born=1), final(1, 3), op(0, 4), final(2, 5), op(1, 6)),
        (("TWINS", 0),),
        ("COMMITTED_AND_DELIVERED", "COMMITTED_AND_DELIVERED"),
    ),
    Case(
        "twins born together, one discarded",
        (half(0, 1), half(1, 2), half(2, 20, 1), discard(20.5, 1), final(1, 3), op(0, 4)),
        (("TWINS", 0),),
        ("COMMITTED_AND_DELIVERED", "DISCARDED"),
    ),
    Case("a send", (half(0, 1, key=SHARED),), (("TWINS", 0),)),
    Case("a send, repeated to another broker", (half(3, 2, key=SHARED),)),
    Case("no UNIQ_KEY", (half(0, 1, key=None), half(1, 2, key=None)), fates=("OPEN", "OPEN")),
    # ---- of queues and groups: the timeout is 6 s, the check interval 60 s
    Case("nothing is put back", (*FIVE, half(9, 300, key="N")), (("CHECK_STUCK", 0),)),
    Case("one is due where the check stands", (half(3, 3), half(9, 300, key="N")), (("CHECK_STUCK", 3),), check=(3, 9)),
    Case("one is due, and the check goes on", (half(3, 3), half(9, 300, key="N")), check=(3, 200)),
    Case("the check has passed it", (half(3, 3), half(9, 300, key="N")), check=(4, 9)),
    Case("nothing is put back, but the check goes on", (*FIVE, half(9, 300, key="N")), check=(3, 299)),
    Case(
        "forgotten in RocksDB, where nothing is put back: 17 intervals after the timeout",
        tuple(half(n, n, key=f"K{n}", queue=ROCKSDB_QUEUES) for n in range(6)),
        tuple(("FORGOTTEN_BY_BROKER", n) for n in range(6)),
        fates=("OPEN",) * 6,
        known_until=1026,
    ),
    Case(
        "not forgotten yet",
        (half(0, 5, queue=ROCKSDB_QUEUES), half(1, 9, key="L", queue=ROCKSDB_QUEUES)),
        (("FORGOTTEN_BY_BROKER", 0),),
        known_until=1028,
    ),
    Case("nothing is due yet", (*FIVE, half(9, 150, key="N"))),
    Case("four are due", (*FIVE[1:], half(9, 300, key="N"))),
    Case("an own immunity", (*[half(n, n, key=f"I{n}", immunity=400) for n in range(5)], half(9, 300, key="N"))),
    Case(
        "a later one of another group is put back",
        (*FIVE, half(8, 10, key="N", group="other"), half(9, 300, 1, key="N", group="other")),
        (("GROUP_FORGOTTEN", 0),),
    ),
    Case("nobody answers", (*FIVE, *ASKED), (("GROUP_FORGOTTEN", 0),)),
    Case("one answers", (*FIVE, *ASKED, final(100, 110, "K0"), op(10, 111))),
    Case(
        "no end but by a check",
        (*FIVE, *ASKED, *(row for n in range(5) for row in answered(n))),
        (("COMMIT_ONLY_BY_CHECK", 0),),
    ),
    Case(
        "one ends at once",
        (
            *FIVE,
            *ASKED,
            *(row for n in range(5) for row in answered(n)),
            half(20, 120, key="P"),
            op(20, 121, "ROLLBACK"),
        ),
    ),
    Case(
        "one ends at once, and is put back all the same",
        (
            *FIVE,
            *ASKED,
            *(row for n in range(5) for row in answered(n)),
            half(5, 5, key="P"),
            op(5, 50, "ROLLBACK"),
            half(15, 105, 1, key="P"),
        ),
        (("CHECKED_AFTER_END", 5),),
    ),
    Case("hosts of different topics", (*sent("A", "T", 0), *sent("B", "U", 10)), (("MIXED_GROUP", 0),)),
    Case("a host of both topics", (*sent("A", "T", 0), *sent("B", "U", 10), half(30, 9, host="B:1", born=9, key="X"))),
    Case("hosts one after the other", (*sent("A", "T", 0), *sent("B", "U", 10, later=20))),
    Case("a clock behind", sent("A", "T", 0, skew=-1), (("CLOCK_SKEW", 0),)),
    Case("a clock ahead", sent("A", "T", 0, skew=1)[:1], (("CLOCK_SKEW", 0),)),
    Case("one that took long", (*sent("A", "T", 0)[1:], half(0, 5, host="A:1", key="X"))),
    Case("copies whose original has not landed", (half(8, 20, 2), half(9, 30, 3)), fates=("OPEN",)),
]


# ---- all of them at once ----


@dataclass(frozen=True)
class Seen:
    summary: Summary
    warehouse: Warehouse
    rows: list[Cells]

    def of(self, broker: str) -> list[Cells]:
        return [row for row in self.rows if row["broker_name"] == broker]


def _land(warehouse: Warehouse, cases: list[Case]) -> None:
    tables: dict[str, list[Cells]] = {}
    for case in cases:
        for table, cells in case.log:
            tables.setdefault(table, []).append(cells | {"broker_name": case.name, "uniq_key": _key(case, cells)})
        tables.setdefault("landing_progress", []).extend(_progress(case))
        tables.setdefault("rejected", []).extend(_ranges(case))
    for table, rows in tables.items():
        warehouse.make(table)
        r.append(warehouse, table, rows)


def _key(case: Case, cells: Cells) -> str | None:
    """A UNIQ_KEY of this case alone, so that no message has a twin in another case by accident."""
    key: str | None = cells.get("uniq_key")
    return key if key in (None, SHARED) else f"{key} of {case.name}"


def _progress(case: Case) -> list[Cells]:
    known = None if case.known_until is None else instant(case.known_until)
    topics = [(HALF_TOPIC, 0), (OP_TOPIC, 0), *((topic, ROCKSDB_QUEUES) for topic in ROCKSDB_TOPICS)]
    queues: list[Cells] = [{"topic": topic, "queue_id": queue, "known_until": known} for topic, queue in topics]
    queues = queues if case.listed else []
    if case.check is not None:
        offset, since = case.check
        queues += [{"topic": HALF_TOPIC, "queue_id": 0, "check_offset": offset, "check_since": instant(since)}]
    log: list[Cells] = [{"topic": COMMIT_LOG, "queue_id": 0, "first_offset": case.log_from}]
    log = [] if case.log_from is None else log
    return [{**row, "broker_name": case.name, "landed_at": instant(NOW)} for row in (*queues, *log)]


def _ranges(case: Case) -> list[Cells]:
    given = [(LOST, span) for span in case.lost] + [(FOUND, span) for span in case.found_again]
    return [
        {
            "kind": "RANGE",
            "reason": reason,
            "broker_name": case.name,
            "queue_id": 0,
            "range_from": place(begin),
            "range_to": place(end),
            "range_topic": COMMIT_LOG,
            "detail": "crc: does not agree",
            "rejected_at": instant(NOW),
        }
        for reason, (begin, end) in given
    ]


@pytest.fixture(scope="module")
def seen(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    warehouse = KernelWarehouse(spark, str(tmp_path_factory.mktemp("audit") / "warehouse"))
    _land(warehouse, CASES)
    summary = audit(warehouse, Settings())
    return Seen(summary, warehouse, [row.asDict() for row in warehouse.read("audit").collect()])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_finds(seen: Seen, case: Case) -> None:
    found = [(row["finding"], row["queue_offset"]) for row in seen.of(case.name)]
    assert sorted(found, key=str) == sorted(case.found, key=str), [row["detail"] for row in seen.of(case.name)]


def test_a_case_has_a_name_of_its_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", [case for case in CASES if case.fates], ids=lambda case: case.name)
def test_what_has_become_of_transactions(seen: Seen, case: Case) -> None:
    assert seen.summary.extra["brokers"][case.name]["transactions"] == Counter(case.fates)


def test_the_summary_adds_up(seen: Seen) -> None:
    summary = seen.summary
    found = Counter(row["finding"] for row in seen.rows)
    assert summary.extra["findings"] == found
    assert set(found) == set(NAMES), "a finding without a case"
    assert all(summary.extra["transactions"].values()), "a fate without a case"
    assert summary.rows_written == {"audit": len(seen.rows)}
    assert summary.rows_read["half_messages"] == len(
        {_half_key(case, row) for case in CASES for row in case.log} - {None}
    )


def test_put_back_copies_are_counted(seen: Seen) -> None:
    rows = [cells for case in CASES for table, cells in case.log if table == "half_messages"]
    copies = [row for row in rows if row["properties"].get("TRANSACTION_CHECK_TIMES", "0") != "0"]
    unasked = [row for row in copies if "CHECK_IMMUNITY_TIME_IN_SECONDS" in row["properties"] and _immune(row)]
    assert seen.summary.extra["put_back"] == {
        "copies": len(copies),
        "bytes": 100 * len(copies),
        "checks": len(copies) - len(unasked),
        "without_check": len(unasked),
        "checks_after_end": sum(kind == "CHECKED_AFTER_END" for case in CASES for kind, _ in case.found),
    }


def _immune(row: Cells) -> bool:
    immunity = 1000 * int(row["properties"]["CHECK_IMMUNITY_TIME_IN_SECONDS"])
    return bool(row["store_timestamp"] - row["born_timestamp"] <= immunity)


def _half_key(case: Case, row: Row) -> tuple[str, int] | None:
    table, cells = row
    return (case.name, cells["queue_offset"]) if table == "half_messages" else None


def test_a_row_says_where_to_look(seen: Seen) -> None:
    [row] = seen.of("immune all the time")
    assert row == row | {
        "audit_id": seen.summary.extra["audit_id"],
        "queue_id": 0,
        "half_offsets": [0, 1, 2],
        "uniq_key": "KEY of immune all the time",
        "producer_group": "group",
        "real_topic": "T",
        "inputs": seen.summary.extra["inputs"],
        "detail": "discarded at 2025-06-15 15:06:49.1 with check times 2, raised within its own immunity of 60 s",
    }
    [row] = seen.of("a send")
    assert (row["half_offsets"], row["detail"]) == (
        [0, 3],
        "half messages a send/0/0, a send, repeated to another broker/0/3",
    )
    details = {row["finding"]: row["detail"] for row in seen.of("answered, asked, answered")}
    assert details == {
        "DELIVERED_TWICE": "final message T/1/100 of half message 0, final message T/1/220 of half message 1",
        "CHECKED_AFTER_END": "ended at 2025-06-15 15:06:50, put back to be checked as half message 1",
    }


@pytest.mark.thorough
def test_other_settings_audit_again(seen: Seen) -> None:
    before = seen.warehouse.read("audit").count()
    other = audit(seen.warehouse, Settings(landing=LandingSettings(op_lag=timedelta(hours=1))))
    assert other.extra["audit_id"] != seen.summary.extra["audit_id"]
    assert other.extra["findings"]["DELIVERED_WITHOUT_OP"] == 1, "the queue that is not listed is known for ever"
    assert seen.warehouse.read("audit").count() == before + other.rows_written["audit"]


@pytest.mark.thorough
def test_the_job_audits_the_same_rows_once(
    seen: Seen, warehouse: Warehouse, capsys: pytest.CaptureFixture[str]
) -> None:
    job = job_of("audit")
    assert main(job, ["--warehouse", warehouse.root, "--fail-on", "findings"]) == 3
    assert "no table of halfop is there" in capsys.readouterr().out
    assert not Path(warehouse.root).exists()
    before = seen.warehouse.read("audit").count()
    assert main(job, ["--warehouse", seen.warehouse.root, "--fail-on", "TWINS"]) == 5
    printed = capsys.readouterr().out.splitlines()
    again = json.loads(printed[-1])
    assert {name: again[name] for name in seen.summary.extra} == json.loads(json_line(seen.summary.extra))
    assert (again["rows_written"], len(again["notes"])) == ({}, 1)
    assert seen.warehouse.read("audit").count() == before
    twice = again["findings"]["DELIVERED_TWICE"]
    assert ["DELIVERED_TWICE", str(twice)] in [line.split()[:2] for line in printed]
    assert main(job, ["--warehouse", warehouse.root, "--fail-on", "TWIN"]) == 2
