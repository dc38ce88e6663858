"""The gateway's log: half messages, op messages and final messages, in the form of a broker's store."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import time

from halfop.frame.errors import InputRefused
from halfop.gateway.core.messages import End, Ended, Half, HalfMessage, Outcome, Topic
from halfop.gateway.log.files import LogFiles
from halfop.gateway.log.flusher import Batch, Buffer, Flusher
from halfop.gateway.log.queues import FILE_UNITS, Queues
from halfop.gateway.log.records import Recent, final_message, half_message, is_sound, op_message
from halfop.gateway.log.recovery import recover
from halfop.gateway.log.search import Searchable
from halfop.gateway.log.store import (
    WHOLE_LOG,
    Checkpoint,
    Identity,
    Landed,
    Reserve,
    StoreLock,
    TopicTable,
    identity,
    read_checkpoint,
    removable_to,
    write_checkpoint,
)
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC

FILE_SIZE = 1 << 30  # a broker's default
_ABORT = "abort"
_RECENT_BYTES = 32 << 20

_logger = logging.getLogger(__name__)

Refusing = Callable[[Mapping[tuple[str, int], tuple[int, int]]], None]


@dataclass(frozen=True)
class StoreForm:
    """The sizes of a store's files. A broker refuses a store whose sizes are not the ones that it is set to."""

    file_size: int = FILE_SIZE
    queue_file_units: int = FILE_UNITS


class Log(Searchable):
    """A store that this process owns. One thread appends; any may read; a thread of its own makes records durable.

    An append returns at once. Acknowledge it only after `flushed_to` has reached its `end`: `on_flush` is called, in
    the log's own thread, each time it moves. If the disk fails, the process ends. `store_host` is the address (4 or 16
    bytes) and the port (4 bytes) that records and message ids carry.
    """

    def __init__(
        self,
        folder: str | Path,
        name: str,
        store_host: bytes,
        form: StoreForm = StoreForm(),
        on_flush: Callable[[int], None] = lambda flushed_to: None,
    ) -> None:
        """Opens the store, or makes it; recovers what a crash left. Raises WarehouseBusy or InputRefused."""
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._owner = StoreLock(self.folder)
        try:
            self._open(name, store_host, form, on_flush)
        except BaseException:
            self._owner.release()
            raise

    def _open(self, name: str, store_host: bytes, form: StoreForm, on_flush: Callable[[int], None]) -> None:
        self.identity: Identity = identity(self.folder, name)
        self._store_host, self._on_flush = store_host, on_flush
        self._topics = TopicTable(self.folder)
        self._files = LogFiles(self.folder / "commitlog", form.file_size)
        self._queues = Queues(self.folder / "consumequeue", form.queue_file_units)
        (self.folder / _ABORT).touch()
        found = recover(self._files, self._queues, read_checkpoint(self.folder))
        self._state = found.state
        self._buffer = Buffer(found.end, found.newest_ms, form.file_size)
        self._recent = Recent(_RECENT_BYTES)
        self.flushed_to = found.end
        self._half_queue, self._op_queue = self._queues.get(HALF_TOPIC, 0), self._queues.get(OP_TOPIC, 0)
        self._lock = Lock()
        self._flushing_ms: int | None = None  # the store time of the oldest message that is being flushed
        self._flusher = Flusher(self._files, self._swap, self._flushed)
        self._flusher.start()
        for half in found.lacking_ops:
            _logger.warning("half message %s is committed, but its op was lost: written again", half.queue_offset)
            with self._lock:
                now = _now_ms()
                op = op_message(half, End("COMMIT", None, half.group, half.uniq_key), now, store_host)
                self._buffer.put(self._op_queue, op, now)
                self._state.end(half, "COMMIT")
            self._flusher.wake()

    # ---- appends ----

    def append_half(self, given: HalfMessage) -> Half:
        """Appends a half message; it may be acknowledged when the log is flushed to its `end`."""
        _, _, _, born_ms, _, _, _, topic, queue, group, uniq_key, immunity, sender = given
        message = half_message(given, self._store_host)
        with self._lock:
            place, record = self._buffer.put(self._half_queue, message, _now_ms())
            half = Half(*place, born_ms, topic, queue, group, uniq_key, immunity, sender)
            self._state.add(half)
        self._recent.add(half.physical_offset, record)
        self._flusher.wake()
        return half

    def append_end(self, half: Half, end: End) -> Ended:
        """Ends a half message that `half_at` gave: its op and, for a first commit, its final message, in one append.

        The opposite of what stands writes an op that delivers nothing. What has been said before writes nothing, so of
        a half message there are two ops at the most.
        """
        record = self._recent.take(half.physical_offset)
        is_read = record is None
        if record is None:
            record = self._files.read(half.physical_offset, half.size) if end.outcome == "COMMIT" else b""
        now = _now_ms()
        op = op_message(half, end, now, self._store_host)  # before the final message: what fails writes neither
        with self._lock:
            fate = self._state.fate(half, end.outcome)
            if fate == "ENDED" and end.outcome == "COMMIT":
                queue = self._queues.get(half.topic, half.queue)
                if is_read and not is_sound(record, half):
                    problem = f"the half message at physical offset {half.physical_offset} fails its CRC"
                    raise InputRefused(self._files.folder, None, problem, "the disk has changed it: roll it back")
                # before its op: an op without a final message is a rollback
                self._buffer.put(queue, final_message(half, record, self._store_host), now)
            if fate in ("ENDED", "OPPOSED"):
                self._buffer.put(self._op_queue, op, now)
                self._state.end(half, end.outcome)
            ended = Ended(fate, self._buffer.end)
        self._flusher.wake()
        return ended

    @property
    def unflushed(self) -> int:
        """Bytes that have been appended and are not durable yet."""
        return self._buffer.end - self.flushed_to

    def readable_ms(self) -> int:
        """An instant that moves: all that was stored before it can be read, and nothing will be stored before it."""
        with self._lock:
            flushing = self._flushing_ms  # once: the flusher clears it without the lock
            waiting = self._buffer.oldest_ms if flushing is None else flushing
            return self._buffer.not_before(_now_ms()) if waiting is None else waiting

    def _swap(self) -> Batch | None:
        with self._lock:
            batch = self._buffer.swap()
            self._flushing_ms = batch.oldest_ms if batch else None
        self._topics.write()
        return batch

    def _flushed(self, end: int) -> None:
        self.flushed_to = end
        self._flushing_ms = None
        self._on_flush(end)

    # ---- what is known of half messages ----

    @property
    def open_halves(self) -> Mapping[int, Half]:
        """The open half messages by physical offset, the oldest first; also those that are not flushed yet."""
        return self._state.open

    def half_at(self, physical_offset: int) -> Half | None:
        """The durable half message that begins there, open or ended; None if the log has none there."""
        half = self._state.open.get(physical_offset)
        if half is None:
            return self.half_read(physical_offset)
        return half if half.end <= self.flushed_to else None

    def outcome(self, half: Half) -> Outcome | None:
        """How it ended; None if it is open."""
        with self._lock:
            return self._state.outcome(half.queue_offset)

    # ---- topics and time ----

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topic table."""
        return self._topics.all

    def put_topic(self, name: str, topic: Topic) -> None:
        """Adds or changes a topic; it is durable before any message that comes after it."""
        self._topics.put(name, topic)

    def set_queues(self, names: Iterable[str], queues: int) -> None:
        """Adds topics, and sets how many queues of every topic take messages. Durable as by `put_topic`."""
        self._topics.set_queues(names, queues)

    @property
    def newest_ms(self) -> int:
        """The newest store time; store times never go back."""
        return self._buffer.newest_ms

    # ---- upkeep ----

    def disk_used(self) -> float:
        """The part of the disk that is in use, from 0 to 1; the log's next file counts as if it were there."""
        usage = shutil.disk_usage(self.folder)
        return 1 - max(usage.free - self._files.size, 0) / (usage.used + usage.free)  # as df: some are reserved

    def checkpoint(self) -> None:
        """Makes the consume queues durable, so that a recovery begins here. For the thread of `expire`."""
        found = Checkpoint(self.flushed_to, self._buffer.newest_ms)
        for queue in self._queues:
            queue.sync()
        write_checkpoint(self.folder, found)

    def is_before(self, landed: Landed) -> bool:
        """Returns whether more has landed than the log has: then the landing was of another log."""
        ends = {(each.topic, each.number): each.flushed for each in (self._half_queue, self._op_queue)}
        return any(landed.get(each, 0) > end for each, end in (ends | {WHOLE_LOG: self.flushed_to}).items())

    def expire(self, landed: Landed, since_ms: int, refuse_missing: Refusing = lambda spans: None) -> list[Half]:
        """Removes files that have landed, and whose half messages have ended or were stored before `since_ms`.

        Makes a checkpoint first. `refuse_missing` gets the offsets of half and op queue in them, the first and the end,
        and raises an error if they are not surely elsewhere: then nothing is removed, and neither if ends are still
        being flushed. Returns the half messages that
        were open in them: nobody can end them any more. For one thread at a time, which need not be the one that
        appends.
        """
        self.checkpoint()
        with self._lock:
            first_open, appended = self._state.first_open(), self._buffer.end
        reserve = Reserve(appended if first_open is None else first_open, since_ms)
        end = removable_to(self._files, self._queues, self.flushed_to, landed, reserve)
        if end == self._files.first:
            return []
        both = (self._half_queue, self._op_queue)
        refuse_missing({(each.topic, each.number): (each.first, each.first_from(end)) for each in both})
        if self.flushed_to < appended:  # an end may not be durable yet: its half message is open if the disk fails now
            return []
        for queue in self._queues:
            queue.remove_before(end)
        with self._lock:
            lost = self._state.remove_before(self._half_queue.first, end)
        self._files.remove_before(end)
        return lost

    def close(self) -> None:
        """Makes all durable, and lets the store go."""
        self._flusher.close()
        self.checkpoint()
        self._files.close()
        self._queues.close()
        (self.folder / _ABORT).unlink()
        self._owner.release()


def _now_ms() -> int:
    return int(time() * 1000)
