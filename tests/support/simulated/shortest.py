"""Histories that follow from a seed, and the shortest that fails as one of them does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple, TypeVar


class Step(NamedTuple):
    """One thing that happens, with a seed of its own: what it does depends on no step before it but by the state."""

    what: str
    seed: int

    def __str__(self) -> str:
        return f"{self.what}:{self.seed}"


T = TypeVar("T")
_LONGEST = 240  # seconds


class Failed(AssertionError):
    """What must hold did not: the seed, and the shortest history that shows it."""

    def __init__(self, seed: int, steps: Sequence[Step], why: str) -> None:
        self.steps = steps
        super().__init__(f"seed {seed}: {why}; the shortest history: {' '.join(map(str, steps))}")


def drawn(seed: int, weights: Mapping[str, float], steps: int) -> list[Step]:
    """The steps of a seed; each kind as often as its weight says."""
    random = Random(seed)
    kinds = random.choices(list(weights), list(weights.values()), k=steps)
    return [Step(kind, random.getrandbits(32)) for kind in kinds]


def played(seed: int, steps: Sequence[Step], play: Callable[[Sequence[Step]], T]) -> T:
    """Plays a history; raises Failed with the shortest one that fails, too."""
    try:
        return play(steps)
    except Exception as error:
        raise Failed(seed, shortest(steps, play), f"{type(error).__name__}: {error}") from error


def fails(steps: Sequence[Step], play: Callable[[Sequence[Step]], object]) -> bool:
    """Returns whether something does not hold in a history."""
    try:
        play(steps)
    except Exception:
        return True
    return False


def shortest(steps: Sequence[Step], play: Callable[[Sequence[Step]], object]) -> list[Step]:
    """A history that fails, too, and of which no step can be left out; or as short as can be had in the time."""
    left, size, end = list(steps), len(steps) // 2, time.monotonic() + _LONGEST
    while size:
        at = 0
        while at < len(left) and time.monotonic() < end:
            without = left[:at] + left[at + size :]
            if fails(without, play):
                left = without
            else:
                at += size
        size //= 2
    return left
