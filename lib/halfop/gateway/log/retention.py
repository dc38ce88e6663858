"""Files of the log that may be removed: landed as a whole, and with no half message that may still be ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from halfop.gateway.log.files import LogFiles
from halfop.gateway.log.queues import Queue, Queues
from halfop.gateway.log.reads import store_ms_at

# The offset after the last message that has landed, by topic and queue, as landing_progress has it. A landing from the
# store's files has one entry for the whole log, whose offsets are physical ones.
Landed = Mapping[tuple[str, int], int]
WHOLE_LOG = ("commitlog", 0)


class Reserve(NamedTuple):
    """Reasons to keep files: half messages from `first_open` on are open, and those stored since `since_ms` may be."""

    first_open: int
    since_ms: int


def removable_to(files: LogFiles, queues: Queues, flushed_to: int, landed: Landed, reserve: Reserve) -> int:
    """The physical offset before which all files may go: the log's first one if none may."""
    end = files.first
    while end + files.size <= flushed_to and _may_go(files, queues, end + files.size, landed, reserve):
        end += files.size
    return end


def _may_go(files: LogFiles, queues: Queues, end: int, landed: Landed, reserve: Reserve) -> bool:
    """Returns whether the file that ends there may go; those before it may."""
    if not (landed.get(WHOLE_LOG, 0) >= end or all(_has_landed(queue, end, landed) for queue in queues)):
        return False
    following = store_ms_at(files, end)
    return end <= reserve.first_open or (following is not None and following < reserve.since_ms)


def _has_landed(queue: Queue, end: int, landed: Landed) -> bool:
    return queue.first_from(end) <= max(landed.get((queue.topic, queue.number), 0), queue.first)
