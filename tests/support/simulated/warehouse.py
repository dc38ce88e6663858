"""The warehouse's side of a simulation: landings, runs that ask, and the table of deliveries, which may come late."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from random import Random
from typing import NamedTuple

from halfop.gateway.core.effects import CheckRequest, Delivery
from halfop.gateway.log.log import Log
from halfop.gateway.log.store import Landed
from halfop.rocketmq.message import Message
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from halfop.rocketmq.properties import unpacked

from support.gateway.played import BROKER

CHECKS = 3


class LandedHalf(NamedTuple):
    physical_offset: int
    key: str
    group: str
    topic: str
    stored_ms: int


class Warehouse:
    """Rows that have landed, requests, and deliveries: those that are written, and those that only the gateway has."""

    def __init__(self) -> None:
        self.halves: dict[int, LandedHalf] = {}
        self.ends: dict[int, str] = {}
        self.table = list[Delivery]()
        self.requests = list[CheckRequest]()
        self.given_up = set[int]()
        self._next: dict[tuple[str, int], int] = {}
        self._unwritten = list[Delivery]()
        self._taken = 0
        self._last = datetime.min
        self._asked_at: dict[int, datetime] = {}
        self._runs = 0

    # ---- landings ----

    def lands(self, log: Log, random: Random) -> None:
        """Some of what is new, half messages before ops, as a landing by the gateway's pulls."""
        for topic, number in sorted(self._queues(log), key=lambda each: each[0] == OP_TOPIC):
            offsets = log.offsets(topic, number)
            at = max(self._next.get((topic, number), 0), offsets.first)
            while at < offsets.next and random.random() < 0.9:
                found = log.pull(topic, number, at, random.randrange(1, 20))
                if found.next == at:
                    break
                for record in found.records:
                    self._row(topic, record)
                at = self._next[topic, number] = found.next

    def _queues(self, log: Log) -> list[tuple[str, int]]:
        return [(queue.topic, queue.number) for queue in log._queues]

    def _row(self, topic: str, record: bytes) -> None:
        message, place = Message.read(record)
        properties = unpacked(message.properties.decode())
        if topic == HALF_TOPIC:
            key, group, real_topic = (properties[name] for name in ("UNIQ_KEY", "PGROUP", "REAL_TOPIC"))
            row = LandedHalf(place.physical_offset, key, group, real_topic, place.store_ms)
            known = self.halves.setdefault(place.queue_offset, row)
            assert known == row, "another half message under an offset that has landed"
        elif topic == OP_TOPIC:
            self.ends.setdefault(int(message.body), properties["END_OUTCOME"])

    def landed(self, log: Log) -> Landed:
        """How far each queue has landed."""
        return {each: self._next.get(each, 0) for each in self._queues(log)}

    # ---- runs ----

    def runs(self, now: datetime, interval: timedelta, random: Random) -> None:
        """Asks about open messages, and gives up those that were asked often enough. Its clock never goes back."""
        now = self._last = max(now.replace(tzinfo=None), self._last)
        self._runs += 1
        places = {each.request_id: each.physical_offset for each in self.requests}
        sent = Counter(places[row.request_id] for row in self.table if row.outcome == "SENT")
        for offset, half in self.halves.items():
            place = half.physical_offset
            if (
                offset in self.ends
                or place in self.given_up
                or now - self._asked_at.get(place, datetime.min) < interval
            ):
                continue
            if sent[place] >= CHECKS:
                self.given_up.add(place)
                continue
            self._asked_at[place] = now
            ago = timedelta(seconds=random.choice((0, 0, 1, 30)))
            self.requests.append(
                CheckRequest(
                    f"{self._runs}/{offset}",
                    BROKER.name,
                    half.group,
                    half.topic,
                    offset,
                    place,
                    self._runs,
                    (now - ago).replace(tzinfo=timezone.utc),
                )
            )

    def to_ask(self, new: bool = False) -> tuple[list[CheckRequest], dict[tuple[str, int], datetime]]:
        """Requests for the gateway: those that it has not read; for one that begins all of which nothing is known."""
        known = {row.request_id: row for row in self.table}
        sent = {row.request_id: row.at for row in self.table if row.outcome == "SENT"}
        before = {
            (each.broker_name, each.physical_offset): sent[each.request_id]
            for each in self.requests
            if each.request_id in sent
        }
        since, self._taken = self._taken if new else 0, len(self.requests)
        return [each for each in self.requests[since:] if each.request_id not in known], before

    # ---- deliveries ----

    def note(self, row: Delivery) -> None:
        self._unwritten.append(row)

    def write(self) -> None:
        self.table += self._unwritten
        self._unwritten.clear()

    def forget_unwritten(self) -> None:
        """The gateway has ended before it could write them."""
        self._unwritten.clear()
