"""Answers that wait for the disk: given when the log is durable to the end of what they answer, in its order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from halfop.rocketmq.codes import AnswerCode
from halfop.rocketmq.frames import ANSWER, Frame

_NO_FIELDS: dict[str, str] = {}


class Answerable(Protocol):
    """A connection that can be written to."""

    def send(self, frame: bytes) -> None: ...


class Answer(NamedTuple):
    """Waits for the log to be durable to `end`. No channel: nothing is answered; fields: it is a send's answer."""

    end: int
    at: float
    channel: Answerable | None
    opaque: int
    form: int
    fields: dict[str, str] | None


class Waiting:
    """The answers in the log's order. `measure` gets how long each has waited, in seconds."""

    def __init__(self, measure: Callable[[float], None]) -> None:
        self._answers: deque[Answer] = deque()
        self._measure = measure

    def __len__(self) -> int:
        return len(self._answers)

    def add(self, answer: Answer) -> None:
        """Adds the answer to what was appended last."""
        self._answers.append(answer)

    def flushed(self, end: int, now: float) -> None:
        """Gives the answers to all that is durable."""
        answers = self._answers
        while answers and answers[0].end <= end:
            found = answers.popleft()
            self._measure(now - found.at)
            if found.channel is not None:
                fields = found.fields or _NO_FIELDS
                found.channel.send(Frame(AnswerCode.SUCCESS, ANSWER, found.opaque, fields, form=found.form).packed())

    def give_up(self, before: float) -> int:
        """Answers those that have waited since `before` with FLUSH_DISK_TIMEOUT; returns how many they are."""
        answers, given = self._answers, 0
        while answers and answers[0].at <= before:
            found, given = answers.popleft(), given + 1
            if found.channel is not None:
                fields = found.fields or _NO_FIELDS
                remark = "" if found.fields else "the transaction has ended once the disk has it"
                frame = Frame(AnswerCode.FLUSH_DISK_TIMEOUT, ANSWER, found.opaque, fields, remark, form=found.form)
                found.channel.send(frame.packed())
        return given
