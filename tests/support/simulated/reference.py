"""What must hold after every step of a simulation, whatever has failed: by what producers were told, and meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from halfop.gateway.core.core import Core
from halfop.gateway.core.effects import Ask
from halfop.gateway.core.messages import Outcome
from halfop.gateway.log.log import Log
from halfop.rocketmq.message import Message
from halfop.rocketmq.names import OP_TOPIC
from halfop.rocketmq.properties import unpacked
from halfop.rocketmq.store.layout import STRETCH
from halfop.settings.model import Settings

from support.brokers.store_reader import read_all
from support.simulated.producers import Meant
from support.simulated.warehouse import Warehouse


def ends_in(log: Log) -> dict[int, str]:
    """The first end of each half message, by its offset, of the ops that the log has still."""
    found: dict[int, str] = {}
    at, last = log.offsets(OP_TOPIC, 0)
    while at < last:
        pulled = log.pull(OP_TOPIC, 0, at, 100)
        for record in pulled.records:
            message, _ = Message.read(record)
            found.setdefault(int(message.body), unpacked(message.properties.decode())["END_OUTCOME"])
        at = pulled.next
    return found


RESERVED_MS = 72 * 3_600_000  # rules.file_reserved_time

_ROOM = 2048  # for the last messages that were taken


class Reference:
    """All transactions by group and key, and what is known of them."""

    def __init__(self, transactions: Mapping[str, Mapping[str, Meant]], warehouse: Warehouse) -> None:
        self._transactions, self._warehouse = transactions, warehouse
        self._stands: dict[str, str] = {}
        self._asks = Counter[int]()
        self._latest_ms = 0  # by the clock that may be set back

    def _all(self) -> Iterable[Meant]:
        return (each for of_group in self._transactions.values() for each in of_group.values())

    # ---- at each step ----

    def asks(self, ask: Ask, log: Log) -> None:
        """A question goes out: about a durable message that is open, to a client of its group that takes it."""
        half, client = ask.half, ask.client
        assert half.physical_offset in log.open_halves, "asked about a message that has ended"
        assert half.end <= log.flushed_to, "asked about a message that is not durable"
        assert half.group in client.groups, "asked in another group's name"
        assert client.is_open, "asked a client that takes nothing"
        self._asks[half.physical_offset] += 1

    def limits(self, log: Log, core: Core, settings: Settings, now_ms: int) -> None:
        """Memory stays within its limits."""
        self._latest_ms = max(self._latest_ms, now_ms)
        own = settings.gateway
        assert log.unflushed <= 2 * own.unflushed_bytes + _ROOM, "too much is not flushed"
        assert len(log.open_halves) <= own.open_messages, "too many are open"
        assert core.questions.waiting <= len(self._warehouse.requests), "questions that nobody has asked for"

    def given_up(self) -> None:
        """A run counts no question that was not sent."""
        places = {each.request_id: each.physical_offset for each in self._warehouse.requests}
        sent = Counter(places[row.request_id] for row in self._warehouse.table if row.outcome == "SENT")
        for place, number in sent.items():
            assert number <= self._asks[place], "a question counts that was not sent"

    # ---- after a start, and when files were removed ----

    def check(self, log: Log) -> None:
        """All that was acknowledged is in the log, or has landed and was removed there."""
        for meant in self._all():
            if meant.is_durable:
                self._check_half(log, meant)

    def _check_half(self, log: Log, meant: Meant) -> None:
        assert meant.place is not None
        offset, place = meant.place
        half, landed = log.half_at(place), self._warehouse.halves.get(offset)
        outcome: str | None
        if half is None:
            assert landed is not None, f"{meant.key}: acknowledged, and neither in the log nor in the warehouse"
            assert (landed.key, landed.physical_offset) == (meant.key, place)
            assert place < log._files.first, f"{meant.key}: the log has lost it"
            outcome = self._warehouse.ends.get(offset) or ends_in(log).get(offset)
            is_old = landed.stored_ms < self._latest_ms - RESERVED_MS
            assert outcome is not None or is_old, f"{meant.key}: its file was removed while it was open"
        else:
            assert half.uniq_key == meant.key, f"{meant.key}: another message is at its place"
            outcome = log.outcome(half)
        if meant.acknowledged_end:
            assert outcome in meant.said, f"{meant.key}: {outcome} stands, and its producer said {meant.said}"
            assert self._stands.setdefault(meant.key, str(outcome)) == outcome, f"{meant.key}: its end has changed"
        elif outcome is not None:
            assert outcome in meant.said, f"{meant.key}: ended as nobody said"

    # ---- at the end ----

    def store(self, folder: Path) -> None:
        """The store as a landing reads it: sound, each half message and each final message once, as its op says."""
        if not any((folder / "commitlog").iterdir()):
            assert not any(each.is_durable for each in self._all())
            return
        found = read_all(folder, size=STRETCH)
        assert found.faults == [], found.faults
        halves = {row["uniq_key"]: row for row in found.rows.get("half", [])}
        assert len(halves) == len(found.rows.get("half", [])), "a half message twice"
        finals = Counter(row["uniq_key"] for row in found.rows.get("final", []))
        ends: dict[int, Outcome] = {}
        for row in sorted(found.rows.get("op", []), key=lambda each: each["queue_offset"]):
            ends.setdefault(int(row["body"]), row["outcome"])
        for meant in self._all():
            half = halves.get(meant.key)
            assert finals[meant.key] <= 1, f"{meant.key}: delivered {finals[meant.key]} times"
            if half is None:
                continue
            outcome = ends.get(half["queue_offset"])
            assert finals[meant.key] == (outcome == "COMMIT"), f"{meant.key}: {outcome}, {finals[meant.key]} delivered"
            assert outcome is None or outcome in meant.said, f"{meant.key}: {outcome}, which nobody said"
