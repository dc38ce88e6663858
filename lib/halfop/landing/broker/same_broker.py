"""Checks that a running broker is the one that has landed under its name, as it is now."""

from __future__ import annotations

from collections.abc import Mapping

from halfop.frame.errors import InputRefused
from halfop.landing.broker.messages import SOURCE
from halfop.landing.broker.sampling import MARGIN, OWN, Progress
from halfop.landing.cuts import MessagePlace, place_of
from halfop.landing.identity import newest_half, reused_queues
from halfop.landing.progress import ProgressRow, Queue
from halfop.landing.rewind import HINT
from halfop.rocketmq.batches import HALF
from halfop.rocketmq.names import DISCARD_TOPIC, HALF_TOPICS
from halfop.rocketmq.record import chain
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.pull import Chunk, QueueRange, pull
from halfop.warehouse.progress import COMMIT_LOG, progress_rows
from halfop.warehouse.tables import Warehouse

_NAME_BEFORE = "broker-a"


def refuse_rebuilt(warehouse: Warehouse, name: str, broker: Broker, rows: Progress) -> None:
    """Raises InputRefused for a broker that was rebuilt under its old name: its newest half message is another."""
    reused = reused_queues(warehouse, {Queue(name, 0)})
    halves = [row for (topic, _), row in rows.items() if topic in HALF_TOPICS and row.next_offset]
    if reused or not all(_is_same(warehouse, broker, row) for row in halves):
        problem = f"KEY_REUSED: not the broker that has landed as {name}"
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


def _is_same(warehouse: Warehouse, broker: Broker, row: ProgressRow) -> bool:
    end = broker.max_offset(row.topic, row.queue_id)
    found = newest_half(warehouse, row, end)
    if found is None or end <= found[0]:
        return True  # the sample refuses a queue that ends too early
    newest, known = found
    asked = QueueRange(row.topic, row.queue_id, newest, newest + 1)
    there = [place_of(chain(one.data).records, HALF) for one in pull(broker, asked) if isinstance(one, Chunk)]
    return all(each is None or any(each.agrees(place) for place in known) for each in there)


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
