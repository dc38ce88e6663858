"""`--accept-rewind`: the broker has begun a new life; where, is found by comparing what has landed with what is there.

Messages below the first offset that differs stand and never land again. Those above are of the new life: rows of
landing_progress under its name say where it begins, written by one commit, so that a killed landing has accepted it or
has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import functions as F

from halfop.columns.lives import Lives, lives_of, name_of
from halfop.landing import progress
from halfop.landing.cuts import Cut, LandedQueue, MessagePlace, There, cut_by_log, cut_of
from halfop.rocketmq.batches import HALF, OP
from halfop.rocketmq.names import HALF_TOPICS, OP_TOPICS
from halfop.warehouse.lock import hold_rejected
from halfop.warehouse.progress import COMMIT_LOG, TABLE, progress_rows
from halfop.warehouse.schema import REJECTED, completed
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import all_of, any_of, at_least, equal, one_of

KEY_REUSED, LOST_BY_BROKER = "KEY_REUSED", "LOST_BY_BROKER"
HINT = "if the broker was rebuilt or lost the end of its log, land … --accept-rewind lands on from there as a new life"
_RANGE = ["broker_name", "queue_id", "range_from", "range_to", "range_topic"]
Cells = dict[str, object]
TOPICS = {HALF: HALF_TOPICS, OP: OP_TOPICS}


def lives(warehouse: Warehouse, broker_name: str) -> Lives:
    """The lives of a broker as landings know them now."""
    return lives_of(progress_rows(warehouse), broker_name)


@dataclass(frozen=True)
class Rewind:
    """A broker that may have begun a new life; `at` is the landing's instant, `source` what it reads."""

    warehouse: Warehouse
    lives: Lives
    there: There
    at: int
    source: str

    def accepted(self, reused: bool) -> Lives:
        """Begins a new life if something differs, or if a key was reused; returns the broker's lives."""
        cuts = [
            cut_of(landed, self.there, topic, end)
            for (topic, queue_id), row in progress.of_broker(self.warehouse, self.lives.current).items()
            for kind, topics in TOPICS.items()
            if topic in topics
            for landed in [LandedQueue(self.warehouse, self.lives, kind, queue_id)]
            if (end := landed.end(row.next_offset)) is not None
        ]
        if not any(cut.is_below for cut in cuts) and not reused:
            return self.lives
        self._begin(cuts)
        return lives(self.warehouse, self.lives.broker_name)

    def _begin(self, cuts: Sequence[Cut]) -> None:
        agreed = [cut.agreed for cut in cuts if cut.agreed is not None]
        newest = max(agreed, key=lambda place: place.end, default=MessagePlace(-1, None, 0, None))
        cuts = [cut_by_log(cut, self.there, newest.end) if cut.is_unknown else cut for cut in cuts]
        after = self.there.begins(newest.end, newest.store_ms or 0)
        begin(self.warehouse, self.lives, cuts, Begun(self.at, self.source, after))


# ---- what is written ----


class Begun(NamedTuple):
    """When a life begins, by which source, and where other queues go on in it."""

    at: int
    source: str
    after: Mapping[tuple[str, int], int]


def begin(warehouse: Warehouse, before: Lives, cuts: Sequence[Cut], begun: Begun) -> None:
    """Writes what was lost, then where a broker's next life begins: a landing that is killed between begins again."""
    _record_lost(warehouse, before, cuts, begun.at)
    number, at = before.number + 1, progress.instant(begun.at)
    shared: Cells = {"broker_name": name_of(before.broker_name, number), "life_of": before.broker_name, "life": number}
    shared |= {"source": begun.source, "begun_at": at, "landed_at": at}
    rows = [*map(_row, cuts), *(_row_of_begin(*queue, offset) for queue, offset in begun.after.items())]
    warehouse.make(TABLE)
    warehouse.commit(TABLE, [row | shared for row in rows])


def _row(cut: Cut) -> Cells:
    row = {"topic": cut.topic, "queue_id": cut.queue_id, "cut_offset": cut.offset}
    row |= {"next_offset": cut.offset, "first_offset": cut.offset}
    if not cut.landed:  # brokers have a second half topic that they do not use; it cuts nothing
        return row | {"cut_offset": None}
    return row | {"cut_log_offset": 0 if cut.agreed is None else (cut.agreed.log_offset or 0) + 1}


def _row_of_begin(topic: str, queue_id: int, offset: int) -> Cells:
    first = offset if topic == COMMIT_LOG else None
    return {"topic": topic, "queue_id": queue_id, "next_offset": offset, "first_offset": first}


def _record_lost(warehouse: Warehouse, before: Lives, cuts: Sequence[Cut], at: int) -> None:
    """Lists what the broker lost as ranges in `rejected`, each once."""
    rows = [
        ("RANGE", LOST_BY_BROKER, name, cut.queue_id, since, upto, cut.topic, _lost_text(cut, since, upto), at)
        for cut in cuts
        for name, since, upto in _lost_ranges(before, cut)
    ]
    columns = """kind STRING, reason STRING, broker_name STRING, queue_id INT, range_from BIGINT, range_to BIGINT,
        range_topic STRING, detail STRING, rejected_at BIGINT"""
    if rows:
        with hold_rejected(warehouse):
            warehouse.make(REJECTED)
            frame = warehouse.frame(rows, columns).withColumn("rejected_at", F.timestamp_micros("rejected_at"))
            listed = warehouse.read(REJECTED, where=equal("reason", LOST_BY_BROKER)).select(_RANGE)
            warehouse.commit(REJECTED, completed(REJECTED, frame.join(listed, _RANGE, "left_anti")))


def _lost_ranges(before: Lives, cut: Cut) -> Iterator[tuple[str, int, int]]:
    """The ranges that the cut takes from each life that has landed in its queue."""
    upto, cuts = cut.landed, before.half_cuts if cut.topic in HALF_TOPICS else before.op_cuts
    for name, begin in zip(reversed(before.names), [*reversed(cuts), {}], strict=True):
        since = begin.get(cut.queue_id, 0)
        if max(cut.offset, since) < upto:
            yield name, max(cut.offset, since), upto
        upto = min(upto, since)


def _lost_text(cut: Cut, since: int, upto: int) -> str:
    return (
        f"queue {cut.queue_id} of {cut.topic} from {since} to {upto}: the broker lost what had landed; "
        "what was committed stays delivered"
    )


def note(warehouse: Warehouse, before: Lives, after: Lives) -> str:
    """A sentence for people on what `--accept-rewind` found."""
    if before.number == after.number:
        return f"--accept-rewind: broker {before.current} is the one that has landed; nothing was to be accepted"
    life, lost = after.later[-1], _lost_halves(warehouse, before, after)
    found = (
        ", ".join(f"{number} {decision}" for decision, number in lost.items()) or "none that a run has decided about"
    )
    cuts = ", ".join(f"queue {queue}: {cut}" for queue, cut in sorted(life.halves.items()))
    return (
        f"broker {before.broker_name} goes on as {life.name} from half offset ({cuts}); half messages that it lost, by "
        f"their last decision: {found}. What was committed stays delivered"
    )


def _lost_halves(warehouse: Warehouse, before: Lives, after: Lives) -> dict[str, int]:
    """The half messages that the new life's cut has taken away: their number by last decision."""
    cuts, names = after.later[-1].halves, one_of("broker_name", before.names)
    mine = [all_of(names, equal("queue_id", queue), at_least("queue_offset", cut)) for queue, cut in cuts.items()]
    if not mine:
        return {}
    rows = warehouse.read("decisions", where=any_of(mine)).where("decision != 'EARLY_OP'")
    last = rows.groupBy("broker_name", "queue_id", "queue_offset").agg(F.max_by("decision", "run_id").alias("last"))
    return {row["last"]: row["count"] for row in last.groupBy("last").count().orderBy("last").collect()}
