"""A broker that is played: it answers from given records as a real one does, to any number of clients."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import store_writer as w
from scripted import Asked, Peer, frame

_TOPICS = 21


class Queue:
    """Answers as DefaultMessageStore.getMessage does: `records` from `first` to `last` - 1 may lack some."""

    def __init__(
        self, records: Mapping[int, bytes], first: int, last: int, most: int = 32, most_bytes: int = 1 << 18
    ) -> None:
        self._records, self._first, self._last = records, first, last
        self._most, self._most_bytes = most, most_bytes

    def answer(self, asked: Asked) -> Mapping[str, Any]:
        if asked.code in (30, 31):
            return {"offset": self._last if asked.code == 30 else self._first}
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


@contextmanager
def played(store: w.Store, lacking: Collection[int] = ()) -> Iterator[str]:
    """The address of a broker that has what a store has now, without the records at some physical offsets."""
    queues = _queues(store, lacking)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, queues), daemon=True).start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def _queues(store: w.Store, lacking: Collection[int]) -> dict[tuple[str, int], Queue]:
    records: dict[tuple[str, int], dict[int, bytes]] = {queue: {} for queue in store.next_offsets}
    for place, record in store.records:
        if place not in lacking:
            records[str(record.topic), record.queue_id][record.queue_offset] = record.at(place)
    return {queue: Queue(records[queue], 0, end) for queue, end in store.next_offsets.items()}


def _accept(listener: socket.socket, queues: Mapping[tuple[str, int], Queue]) -> None:
    with suppress(OSError):  # the listener's end
        for number in range(1 << 30):
            threading.Thread(target=_serve, args=(listener.accept()[0], number, queues), daemon=True).start()


def _serve(connection: socket.socket, number: int, queues: Mapping[tuple[str, int], Queue]) -> None:
    with connection, suppress(OSError, StopIteration):
        peer = Peer(connection, number)
        with peer._file:
            for asked in peer.requests():
                peer.send(frame(asked.opaque, **_answer(asked, queues)))


def _answer(asked: Asked, queues: Mapping[tuple[str, int], Queue]) -> Mapping[str, Any]:
    if asked.code == _TOPICS:
        numbers: dict[str, int] = {}
        for topic, number in queues:
            numbers[topic] = max(number + 1, numbers.get(topic, 1))
        table = {topic: {"readQueueNums": number} for topic, number in numbers.items()}
        return {"body": json.dumps({"topicConfigTable": table}).encode()}
    queue = queues.get((asked.fields["topic"], int(asked.fields["queueId"])), Queue({}, 0, 0))
    return queue.answer(asked)
