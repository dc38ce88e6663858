"""A history: what each party of a running system wrote down of itself, as lines of JSON.

Times are of this machine's monotonic clock, which all its processes share and nobody skews.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


class Sent(NamedTuple):
    """A producer is about to send a half message. `key` is its UNIQ_KEY, `digest` of its body and properties."""

    at: float
    who: str
    key: str
    topic: str
    digest: int


class Acknowledged(NamedTuple):
    """A producer got the answer that its half message is stored."""

    at: float
    who: str
    key: str


class Ended(NamedTuple):
    """A producer got the answer that its transaction has ended so."""

    at: float
    who: str
    key: str
    outcome: str


class Meant(NamedTuple):
    """How a transaction was to end: `who` is `producer`, or `operator` if only `end` may end it."""

    who: str
    key: str
    outcome: str


class Row(NamedTuple):
    """A message in a topic's table."""

    key: str
    broker: str
    half_offset: int
    run: int
    digest: int


class Read(NamedTuple):
    """A reader saw that rows came to a topic's table, and that rows are there no more. `whole`: its first look."""

    began: float
    at: float
    who: str
    topic: str
    version: int
    whole: bool
    came: list[Row]
    gone: list[Row]


class Unreadable(NamedTuple):
    """A reader could not read a topic's table that was there."""

    at: float
    who: str
    topic: str
    error: str


class Decided(NamedTuple):
    """The last decision about a transaction, once all has settled."""

    key: str
    decision: str


class Consumed(NamedTuple):
    """A message that its broker delivered itself."""

    topic: str
    key: str


Event = Sent | Acknowledged | Ended | Meant | Read | Unreadable | Decided | Consumed
_KINDS = {kind.__name__: kind for kind in (Sent, Acknowledged, Ended, Meant, Read, Unreadable, Decided, Consumed)}


class Journal:
    """A party's log: an event is in the file once it is written, whatever becomes of the process."""

    def __init__(self, folder: Path, who: str) -> None:
        self.who = who
        self._file = os.open(folder / f"{who}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, event: Event) -> None:
        os.write(self._file, f"{json.dumps({type(event).__name__: event})}\n".encode())


def now() -> float:
    return round(time.monotonic(), 4)


def history(folder: Path) -> Iterator[Event]:
    """The events of all parties. A line that a kill cut short is none."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().split("\n")[:-1]:
            ((kind, fields),) = json.loads(line).items()
            yield _read(*fields) if kind == "Read" else _KINDS[kind](*fields)


def _read(*fields: object) -> Read:
    *others, came, gone = fields
    return Read(*others, _rows(came), _rows(gone))  # type: ignore[call-arg, arg-type]


def _rows(lists: object) -> list[Row]:
    assert isinstance(lists, list)
    return [Row(*each) for each in lists]


# ---- local transactions ----


class Fates:
    """How local transactions ended. The first who says it decides, whoever dies: a link is made in one step."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder

    def decide(self, key: str, outcome: str) -> str:
        """Returns how it ended, now or before."""
        try:
            os.symlink(outcome, self._folder / key)
        except FileExistsError:
            return os.readlink(self._folder / key)
        return outcome

    def meant(self) -> Iterable[Meant]:
        return [Meant("producer", path.name, os.readlink(path)) for path in self._folder.iterdir()]
