"""A store as it is now, for the comparison with what has landed of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from halfop.landing.cuts import Place, place_of
from halfop.rocketmq.names import HALF_TOPICS, OP_TOPICS
from halfop.rocketmq.record import chain
from halfop.rocketmq.store.commitlog import log_files
from halfop.rocketmq.store.consumequeue import ConsumeQueue, ConsumeQueues, present
from halfop.warehouse.progress import COMMIT_LOG


class StoreThere:
    """A store's half and op queues, and the records in its log that they name."""

    def __init__(self, root: str) -> None:
        self._queues, self._files = ConsumeQueues(root), log_files(root)
        self._first = self._files[0].first

    def span(self, topic: str, queue_id: int) -> tuple[int, int]:
        queue = self._queue(topic, queue_id)
        return (queue.first_from(self._first), queue.last.offset + 1) if queue else (0, 0)

    def place(self, kind: str, topic: str, queue_id: int, offset: int) -> Place | None:
        queue = self._queue(topic, queue_id)
        unit = queue.at(np.array([offset], np.int64)) if queue else None
        if unit is None or not present(unit)[0]:
            return None
        at, size = int(unit["physical"][0]), int(unit["size"][0])
        files = [file for file in self._files if file.first <= at < file.end]
        return place_of(chain(files[0].read(at, size), at).records, kind) if files else None

    def begins(self, log_offset: int, store_ms: int) -> Mapping[tuple[str, int], int]:
        return {(COMMIT_LOG, 0): max(log_offset, self._first)}

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue under that topic, or under the other name that the same kind of topic has."""
        names = HALF_TOPICS if topic in HALF_TOPICS else OP_TOPICS
        found = [queue for name in names if (queue := self._queues.get(name, queue_id)) and queue.last.offset >= 0]
        return found[0] if found else None
