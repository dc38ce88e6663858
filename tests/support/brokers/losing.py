"""Brokers that lose the end of their log at random, and what a reader of their records alone knows of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

from model import reference as m
from model.strategies import op_rows

from support.brokers import store_writer as w

Fate = tuple[str, str | None]


# A half message, and a copy of it that the broker has put back.
HALVES = ("half", "copy")


class Written(NamedTuple):
    """A record, and the half messages that it is about. No two records have one store time."""

    kind: str
    about: tuple[int, ...]
    store_ms: int


def commits(n: int) -> bool:
    """How a producer ends a half message, however often it does."""
    return n % 3 > 0


@dataclass
class Losing:
    """A broker; `known` is what has landed of it, in any of its lives."""

    name: str
    chance: Random
    first: int
    log: list[Written] = field(default_factory=list)
    known: set[Written] = field(default_factory=set)
    lost: set[Written] = field(default_factory=set)
    _number: int = 0
    _clock: int = w.BORN_MS

    def live(self) -> None:
        """Some time passes."""
        if not self.log:
            self._send()  # no store is empty
        for _ in range(self.chance.randint(2, 6)):
            self.chance.choices([self._send, self._put_back, self._end], [5, 2, 3])[0]()

    def lose(self) -> None:
        """The end of the log is lost, maybe all of it."""
        del self.log[self.chance.randint(0, max(0, len(self.log) - 1)) :]

    def land(self) -> None:
        self.lost |= self.known - set(self.log)
        self.known |= set(self.log)

    def _send(self) -> None:
        self._write("half", self.first + self._number)
        self._number += 1

    def _put_back(self) -> None:
        """As the check service does with a message that it asks about."""
        for n in self._opened(1):
            self._write("copy", n)

    def _end(self) -> None:
        some = self._opened(self.chance.randint(1, 2))
        for n in filter(commits, some):
            self._write("final", n)
        if some and self.chance.random() < 0.9:
            self._write("op", *some)

    def _opened(self, most: int) -> list[int]:
        """Some that are open as far as the log shows."""
        ended = {n for each in self.log if each.kind == "op" for n in each.about}
        opened = [each.about[0] for each in self.log if each.kind == "half" and each.about[0] not in ended]
        return self.chance.sample(opened, min(len(opened), most))

    def _write(self, kind: str, *about: int) -> None:
        self._clock += self.chance.randint(1, 5_000)
        self.log.append(Written(kind, about, self._clock))

    # ---- as a store, and as rows ----

    def store(self, root: Path) -> w.Store:
        store, places, named = w.Store(root), dict[int, int](), self._named()
        for kind, about, at in self.log:
            if kind in HALVES:
                places[about[0]] = store.append(_record(kind, about[0], at))
            elif kind == "final":
                store.append(w.final(about[0], places[about[0]], store_ms=at))
            else:
                store.append(w.op("".join(f"{offset}," for offset in next(named)), store_ms=at))
        return store

    def halves(self) -> Iterator[m.Half]:
        found = [each for each in self.log if each.kind in HALVES]
        for offset, (kind, (n,), at) in enumerate(found):
            half = m.Half(self.name, 0, offset, offset * 500, f"{n:032X}", "g", "T", "1", w.BORN_MS, at)
            yield replace(half, body=b"body %d" % n, check_times="1" if kind == "copy" else None)

    def ops(self) -> Iterator[m.Op]:
        found = [each for each in self.log if each.kind == "op"]
        for offset, ((_, about, at), names) in enumerate(zip(found, self._named(), strict=True)):
            outcomes = ["COMMIT" if commits(n) else "ROLLBACK" for n in about]
            yield from op_rows((self.name, 0), offset, ",".join(map(str, names)), outcomes, at)

    def _named(self) -> Iterator[list[int]]:
        """The offsets that each op names: of each of its messages, the last copy that was there before the op."""
        offsets, halves = dict[int, int](), count()
        for kind, about, _ in self.log:
            if kind in HALVES:
                offsets[about[0]] = next(halves)
            elif kind == "op":
                yield [offsets[n] for n in about]

    # ---- what becomes of them ----

    def fates(self, finals: bool) -> dict[int, str]:
        """By half message that has landed: how it ends; `finals` says whether final messages are known."""
        ends = {n for kind, about, _ in self.known if kind == "op" or (finals and kind == "final") for n in about}
        landed = [each for each in self.known if each.kind in HALVES]
        stands = {each.about[0] for each in landed if each not in self.lost}

        def fate(n: int) -> str:
            if n in ends:
                return "COMMIT" if commits(n) else "ROLLBACK"
            return "OPEN" if n in stands else "DISCARD"

        return {each.about[0]: fate(each.about[0]) for each in landed}


def _record(kind: str, n: int, at: int) -> w.Record:
    half = w.half(n, store_ms=at)
    if kind == "half":
        return half
    assert isinstance(half.properties, dict)
    return replace(half, properties=half.properties | {"TRANSACTION_CHECK_TIMES": "1"})
