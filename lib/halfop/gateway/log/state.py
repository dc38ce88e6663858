"""The half messages of the log that are open, and how the others ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from halfop.gateway.log.messages import OUTCOMES, Half, Outcome

_OUTCOME, OPPOSED = 3, 4  # of a byte: the place in OUTCOMES, plus one; whether the opposite was said, too


class State:
    """Open half messages by physical offset, and the outcomes of all that the log still has, a byte each."""

    def __init__(self, first: int = 0, outcomes: bytes = b"", halves: Iterable[Half] = ()) -> None:
        """`first`: the queue offset of the first half message; `outcomes` from there on, and the open ones of them."""
        self._first, self._outcomes = first, bytearray(outcomes)
        self._open = {half.physical_offset: half for half in halves}

    @property
    def open(self) -> Mapping[int, Half]:
        return self._open

    def add(self, half: Half) -> None:
        """Adds the next half message of the queue."""
        self._open[half.physical_offset] = half
        self._outcomes.append(0)

    def end(self, half: Half, outcome: Outcome) -> None:
        self._open.pop(half.physical_offset, None)
        self._outcomes[half.queue_offset - self._first] = OUTCOMES.index(outcome) + 1

    def oppose(self, half: Half) -> None:
        """Notes that the opposite of what stands was said."""
        self._outcomes[half.queue_offset - self._first] |= OPPOSED

    def is_opposed(self, half: Half) -> bool:
        """Returns whether the opposite of what stands was said, so that nothing more can be said of it."""
        return bool(self._outcomes[half.queue_offset - self._first] & OPPOSED)

    def has(self, half: Half) -> bool:
        """Returns whether the log still has the half message."""
        return half.queue_offset >= self._first

    def outcome(self, queue_offset: int) -> Outcome | None:
        """How the half message ended; None if it is open, or the log no longer has it."""
        at = queue_offset - self._first
        code = self._outcomes[at] & _OUTCOME if 0 <= at < len(self._outcomes) else 0
        return OUTCOMES[code - 1] if code else None

    def first_open(self) -> int | None:
        """The lowest physical offset of an open half message; None if none is open."""
        return next(iter(self._open), None)

    def remove_before(self, queue_offset: int, physical_offset: int) -> list[Half]:
        """Forgets half messages that the log no longer has; returns those of them that were open."""
        del self._outcomes[: max(queue_offset - self._first, 0)]
        self._first = max(queue_offset, self._first)
        lost = []
        for at in self._open:
            if at >= physical_offset:
                break
            lost.append(at)
        return [self._open.pop(at) for at in lost]
