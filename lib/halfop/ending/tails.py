"""The part of a broker's half and op queues that was written since they landed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import pyarrow.compute as pc

from halfop.ending.plan import PlannedPlace, Row
from halfop.ending.table import Ending
from halfop.frame.errors import InputRefused
from halfop.rocketmq.batches import HALF, OP, half_batch, op_batch
from halfop.rocketmq.names import (
    CHECK_TIMES,
    HALF_TOPIC,
    HALF_TOPICS,
    OP_TOPIC,
    OP_TOPICS,
    PREPARED_QUEUE_OFFSET,
)
from halfop.rocketmq.properties import Properties
from halfop.rocketmq.record import Records
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.pull import Chunk, QueueRange, checked, pull

_NO_END = 2**63
_CLOCKS_DIFFER = timedelta(minutes=1)  # this machine's and the broker's, at most


class LandedEnds(NamedTuple):
    """The offsets up to which a broker's half and op queue have landed; None: nothing has."""

    half_topic: str = HALF_TOPIC
    half: int | None = None
    op_topic: str = OP_TOPIC
    op: int | None = None


class WrittenCopy(NamedTuple):
    """A half message that was written since the landing, `marked` if the broker's own check service has put it back."""

    place: PlannedPlace
    marked: bool
    producer_group: str | None
    born_timestamp: datetime | None


class _Tail:
    """A queue from an offset on; each call reads what is new."""

    def __init__(self, topic: str, queue: int, start: int, kind: str) -> None:
        self.topic, self.queue, self.next, self._kind = topic, queue, start, kind

    def new(self, broker: Broker) -> Iterator[Records]:
        end = broker.max_offset(self.topic, self.queue)
        if end < self.next:
            problem = f"queue {self.queue} of {self.topic} ends at {end}, but has landed up to {self.next}"
            raise InputRefused(broker.remote.address, None, problem, "is it the broker that has landed?")
        asked = QueueRange(self.topic, self.queue, self.next, end)
        for pulled in pull(broker, asked) if end > self.next else ():
            if isinstance(pulled, Chunk):
                yield checked(broker.remote.address, asked, pulled, self._kind)
            self.next = pulled.next


class Tails:
    """The half and op queue of one broker and queue id after what has landed, as far as some transactions need it."""

    def __init__(self, landed: LandedEnds, queue: int, rows: Collection[Row]) -> None:
        lowest = min((place.queue_offset for row in rows for place in row.places), default=0)
        self._halves = _Tail(landed.half_topic, queue, lowest if landed.half is None else landed.half, HALF)
        self._ops = _Tail(landed.op_topic, queue, landed.op or 0, OP)
        self._lowest = lowest
        self._rows: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            self._rows[row.uniq_key].append(row)
        self._copies: dict[str, list[WrittenCopy]] = defaultdict(list)
        self._ended: dict[int, int] = {}
        self._outcomes: dict[int, str] = {}

    def catch_up(self, broker: Broker) -> None:
        """Reads what is new; half messages first, so that an op is never older than the copies that are known."""
        for records in self._halves.new(broker):
            self._add_copies(records)
        for records in self._ops.new(broker):
            self._add_ops(records)

    def copies(self, row: Row) -> list[PlannedPlace]:
        """Returns the newer copies of a transaction, in the order of their offsets; a twin above it has its own."""
        known = [copy for copy in self._copies.get(row.uniq_key, ()) if _is_kin(row, copy)]
        twins = [twin.places[0].queue_offset for twin in self._rows[row.uniq_key] if _is_kin(row, twin)]
        heads = [*twins, *(copy.place.queue_offset for copy in known if not copy.marked)]
        end = min((head for head in heads if head > row.places[0].queue_offset), default=_NO_END)
        mine = (copy.place for copy in known if copy.marked and copy.place.queue_offset < end)
        return [place for place in mine if place.queue_offset > row.places[-1].queue_offset]

    def has_checked(self, broker: Broker, place: PlannedPlace) -> bool:
        """Returns whether the broker's check has passed a half message: a copy that it put back until then is there."""
        checked_until = broker.check_offset(self._halves.topic, self._halves.queue)
        return checked_until is not None and checked_until > place.queue_offset

    def op_of(self, place: PlannedPlace) -> int | None:
        """Returns the offset of the op message that names a half message; None if there is none."""
        return self._ended.get(place.queue_offset)

    def outcome_of(self, place: PlannedPlace) -> str | None:
        """Returns how a half message ended, COMMIT or ROLLBACK, if its op message shows that: a gateway's does."""
        return self._outcomes.get(place.queue_offset)

    def _add_copies(self, records: Records) -> None:
        properties = Properties(records)
        marked = pc.or_(*(pc.is_valid(properties.strings(name)) for name in (CHECK_TIMES, PREPARED_QUEUE_OFFSET)))
        rows = half_batch(records).select(_COPY_COLUMNS)
        for row, put_back in zip(rows.to_pylist(), marked.to_pylist(), strict=True):
            if row["uniq_key"] in self._rows:
                place = PlannedPlace(row["queue_offset"], row["commit_log_offset"])
                found = WrittenCopy(place, put_back, row["producer_group"], row["born_timestamp"])
                self._copies[row["uniq_key"]].append(found)

    def _add_ops(self, records: Records) -> None:
        rows = op_batch(records)
        for offset, body, outcome in zip(*(rows[name].to_pylist() for name in _OP_COLUMNS), strict=True):
            for item in _offsets(body or ""):
                if item >= self._lowest and item not in self._ended:
                    self._ended[item] = offset
                    self._outcomes |= {item: outcome} if outcome else {}


_OP_COLUMNS = ("queue_offset", "body", "outcome")
_COPY_COLUMNS = ["queue_offset", "commit_log_offset", "uniq_key", "producer_group", "born_timestamp"]


def _is_kin(row: Row, copy: WrittenCopy | Row) -> bool:
    born = row.born_timestamp
    return copy.producer_group == row.producer_group and (born is None or copy.born_timestamp == born)


def _offsets(body: str) -> Iterator[int]:
    for item in body.split(","):
        if item.isascii() and item.isdigit():
            yield int(item)


def since(landed: LandedEnds, broker: Broker, queue: int, endings: Sequence[Ending]) -> LandedEnds:
    """Returns where to read from if these earlier answers, too, must be seen, with the copies that came after them."""
    first = min(each.at for each in endings) - _CLOCKS_DIFFER
    op = broker.offset_at(landed.op_topic, queue, int(first.timestamp() * 1000))
    halves = [each.sent.queue_offset for each in endings if each.sent is not None]
    return landed._replace(half=min(halves, default=landed.half), op=min(op, landed.op or op))


def landed_of(progress: Mapping[tuple[str, int], int | None], queue: int) -> LandedEnds:
    """Returns how far a queue has landed, from the next offsets by topic and queue."""
    halves = {topic: progress[topic, queue] for topic in HALF_TOPICS if progress.get((topic, queue)) is not None}
    half_topic = max(halves, key=lambda topic: halves[topic] or 0, default=HALF_TOPIC)
    op_topic = dict(zip(HALF_TOPICS, OP_TOPICS, strict=True))[half_topic]
    return LandedEnds(half_topic, halves.get(half_topic), op_topic, progress.get((op_topic, queue)))
