"""What lands in a simulation: the parts of a few histories side by side, as commits, or as files for `land files`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from halfop.landing.files.land import FilesRequest
from halfop.warehouse.progress import TABLE as PROGRESS
from model import reference as m
from model.strategies import Land, half_lines, op_lines

from support import rows as r

LANDED: Mapping[str, tuple[str, Callable[[Any, int], dict[str, Any]]]] = {
    "half_messages": ("halves", r.half_cells),
    "op_messages": ("ops", r.op_cells),
    "final_messages": ("finals", r.final_cells),
    "broker_discards": ("discards", r.discard_cells),
}
_LANDS, _BEGINS = "tests.land", "tests.begins"


@dataclass(frozen=True)
class Part:
    """What one landing lands, of all histories."""

    steps: Sequence[Land]

    @property
    def at(self) -> int:
        return max(step.at for step in self.steps)

    def rows(self, kind: str) -> list[Any]:
        """The rows of a kind: `halves`, `ops`, `finals` or `discards`."""
        return [row for step in self.steps for row in getattr(step, kind)]

    @property
    def known_until(self) -> dict[m.Queue, int | None]:
        """Returns how far each queue is known. A user's own pipeline leaves some out, but none of RocksDB."""
        begun = {(row.broker, row.queue): None for row in self.rows("halves") if row.queue >= m.ROCKSDB_QUEUES}
        return begun | {queue: until for step in self.steps for queue, until in step.known_until.items()}

    @property
    def forgets_after(self) -> dict[m.Queue, int]:
        return {queue: after for step in self.steps for queue, after in step.forgets_after.items()}

    @property
    def sources(self) -> dict[str, str]:
        return {broker: source for step in self.steps for broker, source in step.sources.items()}

    @property
    def of_files(self) -> Part:
        """The same as a pipeline that writes files would have it: it knows nothing else of its brokers."""
        steps = [
            replace(step, halves=_of_files(step.halves), ops=_of_files(step.ops), finals=(), discards=())
            for step in self.steps
        ]
        return Part(steps)


def _of_files(rows: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(
        replace(row, source="FILES", life=0) if isinstance(row, m.Op) else row
        for row in rows
        if row.queue < m.ROCKSDB_QUEUES
    )


@dataclass(frozen=True)
class Landing:
    """An attempt to land a part: what its rows in landing_progress may say."""

    part: Part
    by_files: bool
    known_until: int | None = None  # as `land files` was told

    @property
    def queues(self) -> set[m.Queue]:
        """The queues that have progress before their rows land."""
        rows = [*self.part.rows("halves"), *self.part.rows("ops")]
        return {(row.broker, row.queue) for row in rows} if self.by_files else {*self.part.known_until}


class Landed(NamedTuple):
    """A commit of a landing; what has an `app` of its own is committed once."""

    table: str
    rows: list[dict[str, Any]]
    app: str


def commits_of(part: Part, at: int) -> list[Landed]:
    """The commits of a landing by halfop, in their order; one that was killed is begun again."""
    begun, cells = dict.fromkeys(part.known_until), partial(r.progress_cells, at=at, sources=part.sources)
    first = cells((), known_until=begun, forgets_after={})
    last = cells(part.rows("halves"), known_until=part.known_until, forgets_after=part.forgets_after)
    found = [Landed(PROGRESS, first, _BEGINS)]
    for name, (kind, cells_of) in LANDED.items():
        if rows := [cells_of(each, at) for each in part.rows(kind)]:
            found.append(Landed(name, rows, _LANDS))
    return [*found, Landed(PROGRESS, last, _LANDS)]


def request_of(folder: Path, number: int, landing: Landing) -> FilesRequest:
    """Writes a part's files, and returns the call that lands them."""
    known = None if landing.known_until is None else r.instant(landing.known_until)
    halves, ops = (folder / name for name in files_of(number, landing.part))
    for path, rows in ((halves, half_lines(landing.part.rows("halves"))), (ops, op_lines(landing.part.rows("ops")))):
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return FilesRequest([str(halves)], [str(ops)], known)


def files_of(number: int, part: Part) -> dict[str, int]:
    """The names of a part's files, and their numbers of rows."""
    return {f"half-{number}.jsonl": len(part.rows("halves")), f"op-{number}.jsonl": len(part.rows("ops"))}
