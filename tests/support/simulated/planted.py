"""Mistakes to plant into the gateway, by name: a simulation must find each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any
from unittest.mock import patch

import numpy as np
from halfop.gateway.core import core as core_module
from halfop.gateway.core.clients import Producers
from halfop.gateway.core.core import Core
from halfop.gateway.core.effects import Note
from halfop.gateway.core.messages import OPPOSED, End, Ended, Half, State
from halfop.gateway.core.questions import Questions
from halfop.gateway.core.transactions import Answers, check_end
from halfop.gateway.log import files, log, recovery
from halfop.gateway.log.files import LogFiles
from halfop.gateway.log.log import Log
from halfop.gateway.log.records import final_message, op_message
from halfop.gateway.log.recovery import Scan, _Found
from halfop.gateway.log.store import WHOLE_LOG, Checkpoint, Reserve, removable_to, write_checkpoint

_FAR = 1 << 60
Mistake = Callable[[], AbstractContextManager[Any]]


def _method(owner: Any, name: str, made: Callable[[Any], Any]) -> Mistake:
    """A mistake that puts `made(original)` into a method's place."""
    return lambda: patch.object(owner, name, made(getattr(owner, name)))


# ---- the disk ----


def _answers_at_once(_: Any) -> Any:
    def wait(self: Core, end: int, *given: Any) -> Any:
        client, request, fields, now = given
        self.answers.add(end, now.steady, client, request, fields)
        return tuple(self.answers.flushed(end, now.steady))

    return wait


def _unsynced(self: LogFiles, runs: Any) -> None:
    for run in runs:
        begin = self.begin_of(run.physical_offset)
        handle = self._handles.get(begin)
        if handle is None:
            handle = self._handles[begin] = self._made(begin)
        files.write_all(handle, b"".join(run.chunks), run.physical_offset - begin)


def _failure_ignored(write: Any) -> Any:
    def written(self: LogFiles, runs: Any) -> None:
        with suppress(OSError):
            write(self, runs)

    return written


def _written_once(handle: int, content: bytes | memoryview, position: int) -> None:
    vars(files)["os"].pwrite(handle, content, position)


def _made_unsynced(self: LogFiles, begin: int) -> int:
    handle = files.opened_to_write(self._path(begin))
    os.posix_fallocate(handle, 0, self.size)
    return handle


def _checkpoint_before_its_queues(self: Log) -> None:
    write_checkpoint(self.folder, Checkpoint(self.flushed_to, self._buffer.newest_ms))


def _checkpoint_too_far(self: Log) -> None:
    for queue in self._queues:
        queue.sync()
    write_checkpoint(self.folder, Checkpoint(self._buffer.end, self._buffer.newest_ms))


# ---- ends ----


def _half_before_its_sync(self: Log, physical_offset: int) -> Half | None:
    return self._state.open.get(physical_offset) or self.half_read(physical_offset)


def _opposite_counts(fate: Any) -> Any:
    return lambda self, half, outcome: "ENDED" if fate(self, half, outcome) == "OPPOSED" else fate(self, half, outcome)


def _repeat_counts(fate: Any) -> Any:
    return lambda self, half, outcome: "ENDED" if fate(self, half, outcome) == "REPEATED" else fate(self, half, outcome)


def _op_before_its_final(self: Log, half: Half, end: End) -> Ended:
    record = self._files.read(half.physical_offset, half.size) or self._recent.take(half.physical_offset) or b""
    now = log._now_ms()
    fate = self._state.fate(half, end.outcome)
    if fate in ("ENDED", "OPPOSED"):
        self._buffer.put(self._op_queue, op_message(half, end, now, self._store_host), now)
    if fate == "ENDED" and end.outcome == "COMMIT":
        self._buffer.put(self._queues.get(half.topic, half.queue), final_message(half, record, self._store_host), now)
    if fate in ("ENDED", "OPPOSED"):
        self._state.end(half, end.outcome)
    return Ended(fate, self._buffer.end)


def _check_end_without(left_out: str) -> Mistake:
    def checked(asked: Any, half: Half | None, now_ms: int, rules: Any) -> Half:
        if half is not None and left_out == "group":
            asked.producer_group = half.group
        if half is not None and left_out == "offset":
            asked.tran_state_table_offset = half.queue_offset
        return check_end(asked, half, now_ms, rules)

    return lambda: patch.object(core_module, "check_end", checked)


# ---- recovery and removal ----


def _lacks_no_op(recovered: Any) -> Any:
    def found(self: _Found, *given: Any) -> Any:
        made = recovered(self, *given)
        made.lacking_ops.clear()
        return made

    return found


def _last_op_counts(self: _Found, first: int, number: int) -> Any:
    named = np.concatenate([recovery._NONE, *(offsets for offsets, _ in self._ends)]) - first
    said = np.concatenate([np.zeros(0, np.uint8), *(codes for _, codes in self._ends)])
    codes = np.zeros(number, np.uint8)
    there = (named >= 0) & (named < number)
    codes[named[there]] = said[there] | OPPOSED
    return codes


def _removes_what_has_not_landed(*given: Any) -> int:
    kept, queues, flushed_to, _, reserve = given
    return removable_to(kept, queues, flushed_to, {WHOLE_LOG: _FAR}, reserve)


def _removes_what_is_open(*given: Any) -> int:
    kept, queues, flushed_to, landed, reserve = given
    return removable_to(kept, queues, flushed_to, landed, Reserve(_FAR, reserve.since_ms))


# ---- questions ----


def _notes_alone(asked: Any) -> Any:
    return lambda self, *given: [each for each in asked(self, *given) if isinstance(each, Note)]


def _of_any_group(self: Producers, group: str) -> Iterator[Any]:
    return (each for clients in self._clients.values() for each in clients if each.is_open)


def _also_slow_ones(self: Producers, group: str) -> Iterator[Any]:
    return iter(list(self._clients.get(group, ())))


def _asks_what_has_ended(self: Questions, wanted: Any, now: Any, left: Any, most: int) -> Any:
    half = self._log.half_at(wanted.request.physical_offset)
    if half is None or half.queue_offset != wanted.request.queue_offset:
        return [self._note(wanted.request, "SUPERSEDED", now)]
    return self._send(half, wanted.request, now, left, most)


def _given_up_twice(give_up: Any) -> Any:
    def made(self: Answers, before: float) -> Any:
        waiting = list(self._waiting)
        yield from give_up(self, before)
        self._waiting.clear()
        self._waiting.extend(waiting)

    return made


_NOTHING = lambda *_: None  # noqa: E731

PLANTED: Mapping[str, Mistake] = {
    "an answer does not wait for the disk": _method(Core, "_wait", _answers_at_once),
    "the log is not synced": _method(LogFiles, "write", lambda _: _unsynced),
    "a write that failed is ignored": _method(LogFiles, "write", _failure_ignored),
    "a short write is taken for a whole one": lambda: patch.object(files, "write_all", _written_once),
    "a new file of the log is not synced": _method(LogFiles, "_made", lambda _: _made_unsynced),
    "a checkpoint comes before its queues": _method(Log, "checkpoint", lambda _: _checkpoint_before_its_queues),
    "a checkpoint names what is not durable": _method(Log, "checkpoint", lambda _: _checkpoint_too_far),
    "a half message can be ended before it is durable": _method(Log, "half_at", lambda _: _half_before_its_sync),
    "the opposite of what stands counts": _method(State, "fate", _opposite_counts),
    "a repeated end counts": _method(State, "fate", _repeat_counts),
    "an op is written before its final message": _method(Log, "append_end", lambda _: _op_before_its_final),
    "any group may end": _check_end_without("group"),
    "any offset may be named": _check_end_without("offset"),
    "UNKNOWN rolls back": lambda: patch.object(core_module, "NOT_TYPE", -1),
    "an end of any kind commits": lambda: patch.object(
        core_module,
        "end_of",
        lambda asked, at_ms: End("COMMIT", asked.from_transaction_check, asked.producer_group, None),
    ),
    "a start checks no CRC": _method(Scan, "_sound", lambda _: lambda self, records: (records, None)),
    "a start leaves what a crash left": _method(LogFiles, "cut", lambda _: _NOTHING),
    "a start forgets final messages without ops": _method(_Found, "recovered", _lacks_no_op),
    "at a start the last of two ops counts": _method(_Found, "_codes", lambda _: _last_op_counts),
    "files go that have not landed": lambda: patch.object(log, "removable_to", _removes_what_has_not_landed),
    "files go whose messages are open": lambda: patch.object(log, "removable_to", _removes_what_is_open),
    "a question counts that was not sent": _method(Questions, "_asked", _notes_alone),
    "clients of any group are asked": _method(Producers, "in_turn", lambda _: _of_any_group),
    "a client is asked that takes nothing": _method(Producers, "in_turn", lambda _: _also_slow_ones),
    "a client that has left is asked": _method(Core, "left", lambda _: _NOTHING),
    "what has ended is asked about": _method(Questions, "_settled", lambda _: _asks_what_has_ended),
    "an answer is given up and given, too": _method(Answers, "give_up", _given_up_twice),
    "open messages have no limit": _method(Core, "_check_room", lambda _: _NOTHING),
    "what is not flushed has no limit": _method(Core, "_check_unflushed", lambda _: _NOTHING),
}
