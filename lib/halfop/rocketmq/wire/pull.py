"""Pulls a range of a queue from a running broker, quickly and without changing anything there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from struct import error as struct_error
from typing import Any, NamedTuple

import numpy as np

from halfop.rocketmq.batches import kinds_of, numbered
from halfop.rocketmq.buffers import struct_of
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC, AnswerCode, queue_there
from halfop.rocketmq.record import Head, Records, chain
from halfop.rocketmq.requests import Header, Pulled, PullMessage, QueryConsumeQueue, ViewMessage
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.remote import is_busy
from halfop.rocketmq.wire.remoting import Corrupt, RemotingError

CHUNK = 8 << 20

_GROUP = "TOOLS_CONSUMER"  # every broker has it
_SUBSCRIPTION = 4  # sysFlag: the request brings its subscription. Bit 1 would commit an offset, bit 2 wait for news.
_MOST = 32  # messages that a broker gives at once
_SHRINK_AFTER = 2  # short answers in a row: one alone may be the end of a file of the queue's index
_GROW_AFTER = 1024  # whole answers in a row
_LOOK_UP = 512  # offsets
_MOVED = (AnswerCode.PULL_NOT_FOUND, AnswerCode.PULL_RETRY_IMMEDIATELY, AnswerCode.PULL_OFFSET_MOVED)
_NO_SUCH_MESSAGE = "can not find message"
_SIZE_AND_OFFSET = struct_of(Head, "size", "queue_offset")


class QueueRange(NamedTuple):
    """Offsets start..end - 1 of a queue, by the number under which it lands."""

    topic: str
    queue: int
    start: int
    end: int


class QueueEnded(RemotingError):
    """The queue ends too early: its broker lost the end of its log, or never had it."""

    def __init__(self, address: str, asked: QueueRange, at: int) -> None:
        self.address, self.asked, self.at = address, asked, at
        super().__init__(f"{address}: queue {asked.queue} of {asked.topic} ends at offset {at}, expected {asked.end}")


class TopicHidden(RemotingError):
    """A topic that is not in the broker's table, whose queues' index is not shown either.

    RocketMQ before 4.7 encodes its answer about the index before it has filled it.
    """

    def __init__(self, address: str, topic: str) -> None:
        self.address, self.topic = address, topic
        self.transient = topic == HALF_TOPIC
        todo = "its own check adds it soon" if self.transient else "add it by mqadmin, as docs/landing.md shows"
        super().__init__(f"{address}: RocketMQ before 4.7 shows {topic} only if its table of topics has it: {todo}")


class Chunk(NamedTuple):
    """Whole commitlog records back to back in the order of their queue offsets, one for each of first..next - 1."""

    first: int
    next: int
    data: bytes


class Hole(NamedTuple):
    """Offsets first..next - 1 that the broker no longer has, no matter why; `code` is its first answer about them."""

    first: int
    next: int
    code: int


class _Fetched(NamedTuple):
    """Records as they come, still in their answer's memory."""

    first: int
    next: int
    data: memoryview


def pull(broker: Broker, asked: QueueRange, size: int = CHUNK) -> Iterator[Chunk | Hole]:
    """Pulls the range: each offset is in exactly one Chunk (of about `size` bytes) or Hole, in order.

    If it cannot go on, it raises a RemotingError after all that came before: QueueEnded if the queue ends too early. In
    memory it holds one chunk and `in_flight` answers, each of 256 KiB or one message (more of them only until
    it has learnt how many messages fit into an answer).
    """
    held, held_size = list[_Fetched | Hole](), 0
    try:
        for piece in _pieces(broker, asked):
            if held and (type(piece) is not type(held[0]) or held_size >= size):
                yield _joined(held)
                held, held_size = [], 0
            held.append(piece)
            held_size += len(piece.data) if isinstance(piece, _Fetched) else 0
    except RemotingError:
        if held:
            yield _joined(held)
        raise
    if held:
        yield _joined(held)


def _joined(pieces: list[_Fetched | Hole]) -> Chunk | Hole:
    """Pieces of one kind, as one."""
    first, end = pieces[0], pieces[-1].next
    if isinstance(first, Hole):
        return first._replace(next=end)
    return Chunk(first.first, end, b"".join(piece.data for piece in pieces if isinstance(piece, _Fetched)))


def _pieces(broker: Broker, asked: QueueRange) -> Iterator[_Fetched | Hole]:
    # Below the first offset and beyond the last nothing is asked for: a 4.x broker would write a message about that.
    first, last = (offset(asked.topic, asked.queue) for offset in (broker.min_offset, broker.max_offset))
    if asked.start < min(first, asked.end):
        yield Hole(asked.start, min(first, asked.end), AnswerCode.PULL_OFFSET_MOVED)
    there = asked._replace(start=max(asked.start, first), end=min(asked.end, last))
    if there.start < there.end:
        yield from _Pulling(broker, there).pulled(there.end)
    if last < asked.end:
        raise QueueEnded(broker.remote.address, asked, last)


class _Pulling:
    """A pull under way: all below `_done` has been handed out."""

    def __init__(self, broker: Broker, asked: QueueRange) -> None:
        self._broker, self._remote, self._asked = broker, broker.remote, asked
        self._queue, self._done = queue_there(asked.topic, asked.queue), asked.start
        self._stride, self._run = _MOST, 0

    def pulled(self, end: int) -> Iterator[_Fetched | Hole]:
        for request, answer in self._remote.stream(self._requests(end), self._is_busy):
            first, count = request.queue_offset, request.max_msg_nums
            if first == self._done:  # and not within a hole
                yield from self._taken(request, answer, first + count)
            if self._done < first + count:
                yield from self.pulled(first + count)

    def _looked_up(self) -> Iterator[_Fetched | Hole]:
        """The messages by way of the queue's index, one a request."""
        while self._done < self._asked.end:
            index = self._index(min(_LOOK_UP, self._asked.end - self._done))
            if not index:
                yield self._torn()
            requests = map(ViewMessage, index)
            for request, answer in self._remote.stream(requests):
                yield self._seen(request, answer)

    def _request(self, first: int, count: int) -> PullMessage:
        return PullMessage(self._asked.topic, self._queue, first, count, _SUBSCRIPTION, _GROUP)

    def _requests(self, end: int) -> Iterator[PullMessage]:
        first = self._done
        while first < end:
            count = min(self._stride, end - first)
            yield self._request(first, count)
            first = max(first + count, self._done)

    def _learn(self, asked: int, got: int) -> None:
        """Adapts the number of messages a request asks for: what does not fit into an answer costs another request."""
        self._run = max(self._run, 0) + 1 if got >= asked else min(self._run, 0) - 1
        if self._run <= -_SHRINK_AFTER:
            self._stride = got
        elif self._run == _GROW_AFTER:
            self._stride, self._run = min(self._stride * 2, _MOST), 0

    def _taken(self, request: PullMessage, answer: Frame, end: int) -> Iterator[_Fetched | Hole]:
        """Returns what an answer brings: at least one offset, and none from `end` on except in a hole."""
        if answer.code == AnswerCode.SUCCESS:
            yield from self._found(answer, end)
        elif answer.code == AnswerCode.TOPIC_NOT_EXIST and self._asked.topic in (HALF_TOPIC, OP_TOPIC):
            # 4.x does not know the op topic, though it stores it, nor the half topic until it has checked once
            yield from self._looked_up()
        elif answer.code not in _MOVED:
            raise self._remote.refusal(request, answer)
        elif (next_offset := self._next_offset(answer)) <= self._done:
            raise QueueEnded(self._remote.address, self._asked, self._done)
        else:
            yield self._hole(min(next_offset, self._asked.end), answer.code)

    def _found(self, answer: Frame, end: int) -> Iterator[_Fetched | Hole]:
        body = memoryview(answer.body)
        starts, offsets = self._layout(body)
        if offsets and offsets[0] == self._done and offsets[-1] == self._done + len(offsets) - 1 < end:
            self._learn(end - self._done, len(offsets))
            yield self._piece(len(offsets), body)
            return
        for (at, after), offset in zip(pairwise(starts), offsets, strict=True):
            if offset >= end:
                break
            if offset > self._done:
                yield self._hole(offset, answer.code)
            yield self._piece(1, body[at:after])
        if self._done < (passed := min(max(offsets[-1] + 1, self._next_offset(answer)), end)):
            yield self._hole(passed, answer.code)

    def _layout(self, body: memoryview) -> tuple[list[int], list[int]]:
        """The positions of records and of the end, and the records' queue offsets, which must rise."""
        starts, offsets, at, least = [0], list[int](), 0, self._done
        try:
            while at < len(body):
                size, offset = _SIZE_AND_OFFSET.unpack_from(body, at)
                if offset < least or size < _SIZE_AND_OFFSET.size:
                    break
                at, least = at + size, offset + 1
                starts.append(at)
                offsets.append(offset)
        except struct_error:
            pass
        if at != len(body) or not offsets:
            raise Corrupt(
                self._remote.address, f"sent bytes that are no records, from offset {self._done} of {self._asked.topic}"
            )
        return starts, offsets

    def _piece(self, count: int, data: memoryview) -> _Fetched:
        self._done += count
        return _Fetched(self._done - count, self._done, data)

    def _hole(self, next_offset: int, code: int) -> Hole:
        hole = Hole(self._done, next_offset, code)
        self._done = next_offset
        return hole

    def _index(self, count: int) -> list[int]:
        """Physical offsets, from that of `done` on; none below the queue's first offset."""
        answer = self._remote.ask(QueryConsumeQueue(self._asked.topic, self._queue, self._done, count))
        if answer.body and b'"queueData"' not in answer.body:
            raise TopicHidden(self._remote.address, self._asked.topic)
        return self._remote.body(answer, "queueData", _places) if answer.body else []

    def _torn(self) -> Hole:
        """What retention has taken meanwhile."""
        first = self._broker.min_offset(self._asked.topic, self._asked.queue)
        if first <= self._done:
            raise QueueEnded(self._remote.address, self._asked, self._done)
        return self._hole(min(first, self._asked.end), AnswerCode.PULL_OFFSET_MOVED)

    def _seen(self, request: ViewMessage, answer: Frame) -> _Fetched | Hole:
        if answer.code == AnswerCode.SYSTEM_ERROR and answer.remark.startswith(_NO_SUCH_MESSAGE):
            return self._hole(self._done + 1, answer.code)
        body = memoryview(self._remote.checked(request, answer).body)
        if self._layout(body)[1] != [self._done]:
            raise Corrupt(self._remote.address, f"sent another record than offset {self._done} of {self._asked.topic}")
        return self._piece(1, body)

    def _next_offset(self, answer: Frame) -> int:
        return self._remote.header(Pulled, answer).next_begin_offset

    def _is_busy(self, request: Header, answer: Frame) -> bool:
        if answer.code == AnswerCode.PULL_RETRY_IMMEDIATELY and isinstance(request, PullMessage):
            return self._next_offset(answer) <= request.queue_offset
        return is_busy(request, answer)


def _places(units: Any) -> list[int]:
    return [int(each["physicOffset"]) for each in units]


def checked(address: str, asked: QueueRange, pulled: Chunk, kind: str) -> Records:
    """The pulled messages of a kind. Raises Corrupt if a check fails."""
    found = chain(pulled.data)
    records, where = found.records, f"queue {asked.queue} of {asked.topic} from offset {pulled.first}"
    if found.stop is not None:
        raise Corrupt(address, f"{where}: byte {found.stop.position} of the answer: {found.stop.text}")
    offsets = np.arange(pulled.first, pulled.next, dtype=np.int64)
    topics = records.topics()
    records = numbered(records, topics)
    in_order = len(records) == len(offsets) and bool(np.all(records.longs("queue_offset") == offsets))
    if not in_order or not np.all(records.longs("queue_id") == asked.queue):
        raise Corrupt(address, f"{where}: the messages are not those that were asked for")
    mine = records.select(kinds_of(records, topics)[kind])
    if len(rotten := mine.select(mine.wrong_body_crc() | mine.wrong_property_crc())):
        at = f"queue {asked.queue} of {asked.topic}: offset {rotten.longs('queue_offset')[0]}"
        raise Corrupt(address, f"{at} does not match its CRC", hint="")
    return mine
