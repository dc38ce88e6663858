"""Pulls that wait, as RocketMQ's long polling: Apache's proxy polls a topic of its own that stays empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count

from halfop.gateway.core.clients import Client
from halfop.gateway.core.effects import Answer

_MOST = 64  # of a client


class WaitingPulls:
    """The answers to pulls that found nothing, each until its time is over."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Client, bytes]] = []
        self._of, self._numbers = Counter[Client](), count()

    def add(self, client: Client, frame: bytes, until: float) -> bool:
        """Lets an answer wait; returns False if too many of the client wait."""
        if self._of[client] >= _MOST:
            return False
        self._of[client] += 1
        heappush(self._waiting, (until, next(self._numbers), client, frame))
        return True

    def over(self, now: float) -> Iterator[Answer]:
        """Takes the answers whose time is over."""
        while self._waiting and self._waiting[0][0] <= now:
            _, _, client, frame = heappop(self._waiting)
            self._of[client] -= 1
            if not self._of[client]:
                del self._of[client]
            yield Answer(client, frame)
