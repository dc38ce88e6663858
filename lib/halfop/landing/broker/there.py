"""A running broker as it is now, for the comparison with what has landed of it."""

from __future__ import annotations

from collections.abc import Mapping

from halfop.landing.broker.sampling import MARGIN, OWN, Progress
from halfop.landing.cuts import Place, place_of
from halfop.rocketmq.names import DISCARD_TOPIC
from halfop.rocketmq.record import chain
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.pull import Chunk, QueueRange, pull
from halfop.warehouse.progress import COMMIT_LOG


class BrokerThere:
    """A broker's half and op queues; `progress` says which queues had landed before."""

    def __init__(self, broker: Broker, progress: Progress) -> None:
        self._broker, self._progress = broker, progress

    def span(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self._broker.min_offset(topic, queue_id), self._broker.max_offset(topic, queue_id)

    def place(self, kind: str, topic: str, queue_id: int, offset: int) -> Place | None:
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
