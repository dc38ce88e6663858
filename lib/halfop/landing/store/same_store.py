"""Checks that a store is the one that has landed under its broker's name: another one would reuse its keys.

`StoreThere` is a store as it is now, for the comparison with what has landed of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from halfop.columns.lives import Lives
from halfop.frame.errors import InputRefused
from halfop.landing import lost, progress
from halfop.landing.again import Again
from halfop.landing.cuts import MessagePlace, place_of
from halfop.landing.identity import is_same, refuse_name
from halfop.landing.rewind import HINT
from halfop.landing.staged import Staging
from halfop.landing.survey import Survey
from halfop.rocketmq.batches import HALF, OP
from halfop.rocketmq.names import GATEWAY_FILE, HALF_TOPICS, OP_TOPICS
from halfop.rocketmq.record import chain
from halfop.rocketmq.store.commitlog import log_files
from halfop.rocketmq.store.consumequeue import ConsumeQueue, ConsumeQueues, present
from halfop.warehouse.progress import COMMIT_LOG, GATEWAY
from halfop.warehouse.tables import Warehouse

# The offset after the last one that has landed, by topic and queue id.
NextOffsets = Mapping[tuple[str, int], int]


def another_store(landing: StoreLanding) -> InputRefused:
    """The refusal of a store that is not the one that has landed."""
    return InputRefused(
        landing.request.path,
        None,
        f"KEY_REUSED: not the store that has landed as broker {landing.broker}",
        f"{HINT}; another broker needs a name of its own: --broker-name NAME",
    )


def refuse_another(landing: StoreLanding) -> None:
    """Raises InputRefused for a store that is not the one that has landed. If nothing has, any store is."""
    rows = progress.of_broker(landing.warehouse, landing.broker)
    if rows and not is_same(landing.warehouse, landing.lives, StoreThere(landing.root), rows.values()):
        raise another_store(landing)


def next_offsets(landing: StoreLanding) -> NextOffsets:
    """The next offsets of the half and op queues that have landed."""
    rows = progress.of_broker(landing.warehouse, landing.broker)
    return {
        queue: row.next_offset
        for queue, row in rows.items()
        if queue[0] in (*HALF_TOPICS, *OP_TOPICS) and row.next_offset is not None
    }


def lacks_landed(landed: NextOffsets, queues: ConsumeQueues) -> bool:
    """Returns whether a half queue ends before what has landed of it, though the queues name records that are new."""
    ends = {(topic, queue.queue_id): queue.last.offset + 1 for topic in HALF_TOPICS for queue in queues.of(topic)}
    return any(queue in ends and ends[queue] < landed[queue] for queue in landed)


def refuse_gap(path: str, landed: NextOffsets, survey: Survey) -> None:
    """Raises InputRefused if a queue does not go on where its landing stopped, though no part of the log is lost."""
    for kind, topics in ((HALF, HALF_TOPICS), (OP, OP_TOPICS)):
        for queue, span in survey.spans[kind].items():
            due = max((landed.get((topic, queue.queue_id), 0) for topic in topics), default=0)
            if due and span.lowest > due:
                problem = f"{kind} queue {queue.queue_id} goes on at offset {span.lowest}, it has landed up to {due}"
                raise InputRefused(path, None, problem, f"{HINT}; another broker needs --broker-name NAME")


class StoreThere:
    """A store's half and op queues, and the records in its log that they name."""

    def __init__(self, root: str) -> None:
        self._queues, self._files = ConsumeQueues(root), log_files(root)
        self._first = self._files[0].first

    def span(self, topic: str, queue_id: int) -> tuple[int, int]:
        queue = self._queue(topic, queue_id)
        return (queue.first_from(self._first), queue.last.offset + 1) if queue else (0, 0)

    def place(self, kind: str, topic: str, queue_id: int, offset: int) -> MessagePlace | None:
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
        queue = self._queues.get(topic, queue_id)
        return queue if queue and queue.last.offset >= 0 else None


SOURCE = "STORE"


@dataclass(frozen=True)
class StoreRequest:
    """The options of `land store`; `op_lag` is the setting."""

    path: str
    broker_name: str
    op_lag: timedelta
    known_until: datetime | None = None
    skip_corrupt: bool = False
    wait: timedelta = timedelta(0)
    accept_rewind: bool = False
    again: tuple[Again, ...] = ()

    def __post_init__(self) -> None:
        refuse_name(self.broker_name)


@dataclass
class StoreLanding:
    """One landing; `root` is the store's folder on a local disk, `landed_at` its instant in epoch microseconds."""

    warehouse: Warehouse
    request: StoreRequest
    root: str
    landed_at: int
    lost: lost.Ranges
    staging: Staging
    lives: Lives
    written: dict[str, int] = field(default_factory=dict)

    @property
    def broker(self) -> str:
        """The name of the broker's current life."""
        return self.lives.current

    @property
    def source(self) -> str:
        """The store's source in landing_progress: producers of a gateway's are asked by our own runs."""
        return GATEWAY if (Path(self.root) / GATEWAY_FILE).exists() else SOURCE
