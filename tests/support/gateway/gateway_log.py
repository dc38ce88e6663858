"""A gateway's log for tests: small files, messages by number, and appends that wait until they are durable."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path
from threading import Event
from typing import Any, Literal

from halfop.gateway.core.messages import End, Ended, Half, HalfMessage
from halfop.gateway.log.log import Log, StoreForm

HOST = socket.inet_aton("10.0.0.2") + (10911).to_bytes(4, "big")
CLIENT = socket.inet_aton("10.0.0.1") + (40000).to_bytes(4, "big")
BORN_MS = 1_750_000_000_000
SMALL = StoreForm(8192, 100)
MIDDLE = StoreForm(1 << 20, 1000)
TOPIC, QUEUES = "orders", 4


def uniq(n: int) -> str:
    return f"{n:032X}"


def message(n: int, body: bytes | None = None, **more: Any) -> HalfMessage:
    """The nth half message, to queue n % 4 of orders."""
    properties = {
        "UNIQ_KEY": uniq(n),
        "TRAN_MSG": "true",
        "PGROUP": "pg",
        "TAGS": "a",
        "KEYS": f"k{n}",
        "REAL_TOPIC": TOPIC,
        "REAL_QID": str(n % QUEUES),
        **more,
    }
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    immunity = properties.get("CHECK_IMMUNITY_TIME_IN_SECONDS")
    content = b"body %d" % n if body is None else body
    return HalfMessage(
        content, 7, 0, BORN_MS + n, CLIENT, 0, text, TOPIC, n % QUEUES, properties["PGROUP"], uniq(n), immunity
    )


def end_of(outcome: Literal["COMMIT", "ROLLBACK"], n: int = 0, from_check: bool = False) -> End:
    return End(outcome, from_check, "pg", uniq(n))


class Waiting:
    """A log whose appends return when they are durable."""

    def __init__(self, folder: Path, name: str = "gw", form: StoreForm = SMALL) -> None:
        self._moved = Event()
        self.log = Log(folder, name, HOST, form, self._flushed)

    def half(self, n: int, **more: Any) -> Half:
        return self.halves([n], **more)[0]

    def halves(self, numbers: Iterable[int], **more: Any) -> list[Half]:
        """All of them in one flush, or few."""
        found = [self.log.append_half(message(n, **more)) for n in numbers]
        self.until(found[-1].end)
        return found

    def end(self, half: Half, outcome: Literal["COMMIT", "ROLLBACK"], from_check: bool = False) -> Ended:
        ended = self.log.append_end(half, End(outcome, from_check, half.group, half.uniq_key))
        self.until(ended.end)
        return ended

    def until(self, end: int) -> None:
        while self.log.flushed_to < end:
            assert self._moved.wait(30), f"the log is flushed to {self.log.flushed_to}, not to {end}"
            self._moved.clear()

    def close(self) -> None:
        self.log.close()

    def _flushed(self, _: int) -> None:
        self._moved.set()
