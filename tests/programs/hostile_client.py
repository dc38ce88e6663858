"""A hostile client of a gateway: it sends mutated frames, and reports what the gateway made of each.

It is a program, so that it takes no time of the process that measures a good client. It reads what to do from stdin.
"""

from __future__ import annotations

import json
import random
import socket
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from halfop.rocketmq.frames import JSON, ONE_WAY, Frame, Splitter
from halfop.rocketmq.names import AnswerCode, RequestCode
from halfop.rocketmq.requests import ROLLBACK_TYPE
from support.gateway.hostile_frames import READS, Draft, Frames, as_json, end_fields, framed, read, send_fields

_BATCH, _SECONDS = 32, 20.0
_OPEN = 50  # half messages of its own, at which it aims
_FIRST_MARK = 2_000_000_000  # opaques of the requests that are no mutations
_NORMAL = (AnswerCode.SUCCESS, AnswerCode.PULL_NOT_FOUND, AnswerCode.PULL_OFFSET_MOVED)


@dataclass
class Report:
    """How many frames ended how, and what was acknowledged: half messages, and offsets of those that were ended."""

    fates: Counter[str] = field(default_factory=Counter)
    sent: list[tuple[int, str]] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)


class Hostile:
    """Sends frames through one connection at a time, and takes all answers."""

    def __init__(self, address: str, frames: Frames) -> None:
        host, _, number = address.rpartition(":")
        self._address, self._frames, self.report = (host, int(number)), frames, Report()
        self._mark, self._asked = _FIRST_MARK, dict[int, Frame]()
        self._connect()

    def run(self, count: int) -> Report:
        """Sends so many mutated frames with a right prefix, and some with a wrong one between."""
        done = 0
        while done < count:
            made = [self._frames.mutated(done + n) for n in range(min(_BATCH, count - done))]
            done += len(made)
            self._asked = {}
            good = [(frame, found) for frame, found in ((each, read(each)) for each in made) if found]
            self._ask([frame for frame, _ in good], [found for _, found in good])
            for frame in made:
                if read(frame) is None:
                    self._refused(frame)
            if done % 10 == 0:
                self._refused(self._frames.wrong_prefix())
        self._socket.close()
        return self.report

    def _connect(self) -> None:
        self._socket, self._splitter = socket.create_connection(self._address, _SECONDS), Splitter(64 << 20)

    def _ask(self, frames: Sequence[bytes], requests: Iterable[Frame]) -> None:
        """Sends what can be read, and waits until all of it is handled: reads and sends are answered in their order."""
        asked = list(requests)
        times = Counter(each.opaque for each in asked)
        self._asked = {each.opaque: each for each in asked if times[each.opaque] == 1}
        marks = {self._mark, self._mark + 1}
        read_mark = Draft(
            RequestCode.QUERY_CONSUME_QUEUE, list(READS[RequestCode.QUERY_CONSUME_QUEUE].items()), b"", self._mark
        )
        send_mark = Draft(
            RequestCode.SEND_MESSAGE_V2,
            send_fields(RequestCode.SEND_MESSAGE_V2, f"M{self._mark}"),
            b"m",
            self._mark + 1,
        )
        self._mark += 2
        last = [framed(as_json(each), JSON, each.body) for each in (*self._rollbacks(), read_mark, send_mark)]
        self._socket.sendall(b"".join([*frames, *last]))
        answered = 0
        while marks:
            data = self._socket.recv(1 << 16)
            assert data, "the gateway closed a connection on which it could read all"
            for each in self._splitter.feed(data):
                if each.opaque in marks:
                    marks.discard(each.opaque)
                    self._acknowledged(each)
                else:
                    answered += 1
                    self._count(each)
        self.report.fates["handled, not answered"] += len(frames) - answered

    def _rollbacks(self) -> list[Draft]:
        """Ends of all but its newest messages, so that what it leaves open is no memory that grows."""
        own, found = self._frames.own, list[Draft]()
        while len(own) > _OPEN:
            fields = end_fields("g", *own.popleft(), ROLLBACK_TYPE)
            found.append(Draft(RequestCode.END_TRANSACTION, fields, b"", 0, ONE_WAY))
        return found

    def _count(self, answer: Frame) -> None:
        self.report.fates["answered" if answer.code in _NORMAL else "refused by a handler"] += 1
        self._acknowledged(answer)
        asked = self._asked.get(answer.opaque)
        if answer.code == AnswerCode.SUCCESS and asked is not None and asked.code == RequestCode.END_TRANSACTION:
            self.report.ended.append(int(asked.fields["tranStateTableOffset"]))

    def _acknowledged(self, answer: Frame) -> None:
        if answer.code == AnswerCode.SUCCESS and "msgId" in answer.fields:
            offset, place = int(answer.fields["queueOffset"]), int(answer.fields["msgId"][-16:], 16)
            self.report.sent.append((offset, answer.fields["transactionId"]))
            self._frames.own.append((offset, place))

    def _refused(self, frame: bytes) -> None:
        """Sends what cannot be read, which ends the connection."""
        try:
            self._socket.sendall(frame)
            while self._socket.recv(1 << 16):
                pass
        except ConnectionError:
            pass
        self._socket.close()
        self._connect()


if __name__ == "__main__":
    given = json.load(sys.stdin)
    hostile = Hostile(given["address"], Frames(random.Random(given["seed"]), given["aims"]))
    print(json.dumps(vars(hostile.run(given["frames"]))))
