"""Checks that a running broker is the one that has landed under its name, as it is now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from halfop.columns.lives import Lives
from halfop.frame.errors import InputRefused
from halfop.frame.summary import Summary
from halfop.landing import lost
from halfop.landing.again import Again, kind_of
from halfop.landing.broker.messages import SOURCE
from halfop.landing.broker.sampling import MARGIN, OWN, Progress, QueueSample
from halfop.landing.cuts import MessagePlace, place_of
from halfop.landing.identity import is_same
from halfop.landing.progress import ProgressRow, Queue, check_row
from halfop.landing.rewind import HINT
from halfop.rocketmq.batches import FINAL, KINDS
from halfop.rocketmq.names import DISCARD_TOPIC, HALF_TOPIC
from halfop.rocketmq.record import chain
from halfop.rocketmq.wire.client import Broker, BrokerClock
from halfop.rocketmq.wire.pull import Chunk, QueueRange, pull
from halfop.warehouse.progress import COMMIT_LOG, progress_rows
from halfop.warehouse.tables import Warehouse

_NAME_BEFORE = "broker-a"


def refuse_rebuilt(warehouse: Warehouse, lives: Lives, broker: Broker, rows: Progress) -> None:
    """Raises InputRefused for a broker that was rebuilt under its old name, or has lost its end: it is another now."""
    if not is_same(warehouse, lives, BrokerThere(broker, rows), rows.values()):
        problem = f"KEY_REUSED: not the broker that has landed as {lives.current}"
        raise InputRefused(broker.remote.address, None, problem, HINT)


def refuse_renamed(warehouse: Warehouse, address: str, name: str) -> None:
    """Raises InputRefused for a broker that is new by its own name, if an earlier version may have landed it.

    Earlier versions landed a broker of `--broker` under one name if no other was given: its messages would land again.
    """
    sources = {row["broker_name"]: row["source"] for row in progress_rows(warehouse)}
    if name not in sources and sources.get(_NAME_BEFORE) == SOURCE:
        problem = f"{name} has not landed yet, but {_NAME_BEFORE} has: earlier versions gave every broker that name"
        hint = f"give --broker-name {_NAME_BEFORE} if it is the same broker, --broker-name {name} if it is another one"
        raise InputRefused(address, None, problem, hint)


class BrokerThere:
    """A broker's half and op queues; `progress` says which queues had landed before."""

    def __init__(self, broker: Broker, progress: Progress) -> None:
        self._broker, self._progress = broker, progress

    def span(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self._broker.min_offset(topic, queue_id), self._broker.max_offset(topic, queue_id)

    def place(self, kind: str, topic: str, queue_id: int, offset: int) -> MessagePlace | None:
        asked = QueueRange(topic, queue_id, offset, offset + 1)
        pulled = [each for each in pull(self._broker, asked) if isinstance(each, Chunk)]
        return place_of(chain(pulled[0].data).records, kind) if pulled else None

    def begins(self, log_offset: int, store_ms: int) -> Mapping[tuple[str, int], int]:
        """Real and discard queues go on with what was stored since; the log of a store that has landed, too."""
        found = {}
        for (topic, queue_id), row in self._progress.items():
            if topic == COMMIT_LOG:
                found[topic, queue_id] = log_offset
            elif topic not in OWN or topic == DISCARD_TOPIC:
                found[topic, queue_id] = min(row.next_offset or 0, self._since(topic, queue_id, store_ms))
        return found

    def _since(self, topic: str, queue_id: int, store_ms: int) -> int:
        first, end = self.span(topic, queue_id)
        at = self._broker.offset_at(topic, queue_id, store_ms - MARGIN) if store_ms and end else first
        return min(max(at, first), end)


Ranges = dict[str, list[QueueRange]]


def ranges_again(broker: Broker, wanted: Iterable[Again], known: lost.Ranges, at: int) -> Ranges:
    """The ranges by kind. What the broker no longer has becomes a lost range; one that it has is found again."""
    ranges: Ranges = {kind: [] for kind in KINDS}
    for each in wanted:
        there = [_there(broker, each, topic, known, at) for topic in each.topics]
        if all(asked is None for asked in there):
            problem = f"--again {each}: no such offsets in its queues"
            raise InputRefused(broker.remote.address, None, problem, "give offsets that the broker has, or had")
        for asked in there:
            if asked is not None and asked.start < asked.end:
                ranges[kind_of(asked.topic)].append(asked)
                _find(known, asked)
    return ranges


def left_out(planned: Ranges, wanted: Collection[str] | None) -> list[QueueRange]:
    """Takes out what is planned of real topics that are not wanted now; returns it as empty ranges."""
    out = [each for each in planned[FINAL] if wanted is not None and each.topic not in wanted]
    planned[FINAL] = [each for each in planned[FINAL] if each not in out]
    return [each._replace(end=each.start) for each in out]


def still_there(broker: Broker, planned: Ranges, known: lost.Ranges, until: int) -> Ranges:
    """The ranges of a landing that was killed, as far as the broker has them.

    It may have lost its end since, or a topic. Final messages that are gone by that are a hole.
    """
    found: Ranges = {kind: [] for kind in planned}
    for kind, asked in ((kind, each) for kind, ranges in planned.items() for each in ranges):
        end = max(asked.start, min(asked.end, broker.max_offset(asked.topic, asked.queue)))
        found[kind].append(asked._replace(end=end))
        if kind == FINAL and end < asked.end:
            known.add_hole(lost.Range(end, asked.end, asked.topic, asked.queue, until))
    return found


def _there(broker: Broker, wanted: Again, topic: str, known: lost.Ranges, at: int) -> QueueRange | None:
    """Returns the part of a range that the broker has; None if its queue never had such offsets."""
    first, end = broker.min_offset(topic, wanted.queue_id), broker.max_offset(topic, wanted.queue_id)
    if end <= wanted.since:
        return None
    low = max(wanted.since, min(first, wanted.upto))
    if wanted.since < low:
        gone = lost.Range(wanted.since, low, topic, wanted.queue_id, at)
        known.add(gone, "deleted", f"queue {wanted.queue_id} of {topic}: deleted, so it cannot land again")
    return QueueRange(topic, wanted.queue_id, low, min(wanted.upto, end))


def _find(known: lost.Ranges, pulled: QueueRange) -> None:
    for gone in [each for each in known.of_queues if (each.topic, each.queue) == pulled[:2]]:
        if pulled.start <= gone.since and gone.upto <= pulled.end:
            known.found(gone, "it has landed again")


def record_holes(found: QueueSample, known: lost.Ranges, clock: BrokerClock, summary: Summary) -> None:
    """Records the sample's holes as lost; a real topic that was made again counts once it has come far enough."""
    for hole in found.holes:
        if hole.until is None:
            text = f"{_made_again(hole)}: it no longer shows what was committed"
            summary.notes.append(f"broker {known.broker_name}: {text}; `land store` can show it")
            known.add(hole, "made_again", text)
        else:
            known.add(hole, "deleted", f"queue {hole.queue} of {hole.topic}: deleted before it landed")
    pulled = {(q.topic, q.queue) for q in found.ranges[FINAL]}
    for hole in [h for h in known.of_queues if h.until is None and (h.topic, h.queue) in pulled]:
        known.found(hole, "the queue has come as far as it had landed")
        known.add(hole._replace(until=clock.latest()), "made_again", _made_again(hole))


def _made_again(hole: lost.Range) -> str:
    return f"queue {hole.queue} of {hole.topic} was deleted and made again"


def check_rows(broker: Broker, name: str, at: int, queues: Iterable[QueueRange], rows: Progress) -> list[ProgressRow]:
    """The rows of landing_progress for half queues that hold something; none if the broker does not answer that.

    A broker checks transactions in RocksDB all at once.
    `at`: the broker's time, epoch microseconds; `rows`: the progress until now.
    """
    some = [each for each in queues if each.end and each.topic == HALF_TOPIC]
    offsets = [(each, broker.check_offset(each.topic, each.queue)) for each in some]
    return [
        check_row(Queue(name, q.queue), q.topic, offset, at, rows.get((q.topic, q.queue)))
        for q, offset in offsets
        if offset is not None
    ]
