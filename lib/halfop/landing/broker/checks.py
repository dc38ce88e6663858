"""How far a running broker's own check of half messages has come."""

from __future__ import annotations

from collections.abc import Iterable

from halfop.landing.broker.sampling import Progress
from halfop.landing.progress import ProgressRow, check_row
from halfop.landing.queues import Queue
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.pull import QueueRange


def check_rows(broker: Broker, name: str, at: int, queues: Iterable[QueueRange], rows: Progress) -> list[ProgressRow]:
    """The rows of landing_progress for half queues that hold something; none if the broker does not answer that.

    `at`: the broker's time, epoch microseconds; `rows`: the progress until now.
    """
    some = [each for each in queues if each.end]
    offsets = [(each, broker.check_offset(each.topic, each.queue)) for each in some]
    return [
        check_row(Queue(name, q.queue), q.topic, offset, at, rows.get((q.topic, q.queue)))
        for q, offset in offsets
        if offset is not None
    ]
