"""A broker that is played: it answers from given records as a real one does, to any number of clients."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from halfop.rocketmq.frames import Frame

from support.brokers import store_writer as w
from support.brokers.scripted import Peer, frame

_TOPICS, _CONFIG, _RUNTIME, _AT, _CHECKED = 21, 26, 28, 29, 14
AT = 1_750_000_000_000


class Queue:
    """Answers as DefaultMessageStore.getMessage does: `records` from `first` to `last` - 1 may lack some."""

    def __init__(
        self,
        records: Mapping[int, bytes],
        first: int,
        last: int,
        most: int = 32,
        most_bytes: int = 1 << 18,
        *,
        times: Mapping[int, int] | None = None,
    ) -> None:
        self._times = times or {}
        self._records, self._first, self._last = records, first, last
        self._most, self._most_bytes = most, most_bytes

    def answer(self, asked: Frame) -> Mapping[str, Any]:
        if asked.code in (30, 31):
            return {"offset": self._last if asked.code == 30 else self._first}
        if asked.code == _AT:
            at = int(asked.fields["timestamp"])
            return {"offset": min((n for n, stored in self._times.items() if stored >= at), default=self._last)}
        offset, found, size = int(asked.fields["queueOffset"]), list[bytes](), 0
        assert (asked.fields["sysFlag"], asked.fields["subscription"]) == ("4", "*")
        if not self._first <= offset < self._last:
            return {"code": 21, "nextBeginOffset": self._first if offset < self._first else self._last}
        while offset < self._last:
            data = self._records.get(offset, b"")
            if (
                found
                and data
                and (
                    len(found) == min(self._most, int(asked.fields["maxMsgNums"]))
                    or size + len(data) > self._most_bytes
                )
            ):
                break
            found += [data] if data else []
            size += len(data)
            offset += 1
        return {"code": 0 if found else 20, "body": b"".join(found), "nextBeginOffset": offset}


class About(NamedTuple):
    """A broker's description of itself: clock (epoch ms), role, how far its check has come, name and settings.

    `refuses`: the codes of requests about topics that it answers by code 16.
    """

    at: int = AT
    role: str = "ASYNC_MASTER"
    check_offset: int | None = None
    name: str = "broker-a"
    settings: str = ""
    refuses: Collection[tuple[int, str]] = ()

    def answer(self, code: int) -> Mapping[str, Any]:
        if code == _CHECKED:
            return {"code": 22} if self.check_offset is None else {"offset": self.check_offset}
        if code == _CONFIG:
            return {"body": f"brokerName={self.name}\nbrokerRole={self.role}\nbrokerId=0\n{self.settings}".encode()}
        boot = self.at - 93_784_000
        table = {"bootTimestamp": str(boot), "runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]", "putTps": "0.0"}
        return {"body": json.dumps({"table": table}).encode()}


_MASTER = About()


@contextmanager
def played(store: w.Store, lacking: Collection[int] = (), about: About = _MASTER) -> Iterator[str]:
    """The address of a broker that has what a store has now, without the records at some physical offsets."""
    queues = _queues(store, lacking)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, queues, about), daemon=True).start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def _queues(store: w.Store, lacking: Collection[int]) -> dict[tuple[str, int], Queue]:
    records: dict[tuple[str, int], dict[int, bytes]] = {queue: {} for queue in store.next_offsets}
    times: dict[tuple[str, int], dict[int, int]] = {queue: {} for queue in store.next_offsets}
    for place, record in store.records:
        if place not in lacking:
            queue = str(record.topic), record.queue_id
            records[queue][record.queue_offset] = record.at(place)
            times[queue][record.queue_offset] = record.store_ms
    return {queue: Queue(records[queue], 0, end, times=times[queue]) for queue, end in store.next_offsets.items()}


def _accept(listener: socket.socket, queues: Mapping[tuple[str, int], Queue], about: About) -> None:
    with suppress(OSError):  # the listener's end
        for number in range(1 << 30):
            serve = (listener.accept()[0], number, queues, about)
            threading.Thread(target=_serve, args=serve, daemon=True).start()


def _serve(connection: socket.socket, number: int, queues: Mapping[tuple[str, int], Queue], about: About) -> None:
    with connection, suppress(OSError, StopIteration):
        peer = Peer(connection, number)
        for asked in peer.requests():
            peer.send(frame(asked.opaque, **_answer(asked, queues, about)))


def _answer(asked: Frame, queues: Mapping[tuple[str, int], Queue], about: About) -> Mapping[str, Any]:
    if asked.code in (_CONFIG, _RUNTIME, _CHECKED):
        return about.answer(asked.code)
    if asked.code == _TOPICS:
        numbers: dict[str, int] = {}
        for topic, number in queues:
            numbers[topic] = max(number + 1, numbers.get(topic, 1))
        table = {topic: {"readQueueNums": number} for topic, number in numbers.items()}
        return {"body": json.dumps({"topicConfigTable": table}).encode()}
    if (asked.code, asked.fields["topic"]) in about.refuses:
        return {"code": 16, "remark": f"no permission to access Topic:{asked.fields['topic']}"}
    queue = queues.get((asked.fields["topic"], int(asked.fields["queueId"])), Queue({}, 0, 0))
    return queue.answer(asked)
