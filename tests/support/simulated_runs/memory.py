"""Tables in memory with the semantics of Delta's log: any number of warehouses share them, as drivers share a bucket.

A version is never changed. A commit makes the next one whatever its writer has seen, unless its marker is there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from halfop.warehouse.disk import Listed
from halfop.warehouse.parquet import arrow_schema
from halfop.warehouse.rows import FoundRows, Rows, arrow, frame_of
from halfop.warehouse.schema import TableSpec
from halfop.warehouse.tables import NO_TABLE, AlreadyWrittenError, Marker, Warehouse, no_rows
from halfop.warehouse.where import Where
from pyspark.sql import DataFrame

Answer = Literal["made", "refused", "unanswered"]


class Piece(NamedTuple):
    """Rows, and the version that they came with."""

    version: int
    rows: pa.Table


class Version(NamedTuple):
    """A table after a commit. `rewrites`: the commit has put other files in the place of some."""

    pieces: tuple[Piece, ...]
    marker: Marker | None = None
    rewrites: bool = False


class Tables:
    """All tables, each a list of its versions; log clean-up forgets those before `first_kept`."""

    def __init__(self) -> None:
        self.versions: dict[str, list[Version]] = defaultdict(list)
        self.first_kept: dict[str, int] = defaultdict(int)

    def newest(self, name: str) -> int:
        return len(self.versions[name]) - 1

    def marker(self, name: str, app: str, upto: int) -> int:
        markers = (each.marker for each in self.versions[name][: upto + 1])
        return max((marker.number for marker in markers if marker and marker.app == app), default=-1)

    def pieces(self, name: str, version: int) -> tuple[Piece, ...]:
        if version < self.first_kept[name] or version > self.newest(name):
            raise FileNotFoundError(f"{name}: log clean-up has removed version {version}")
        return self.versions[name][version].pieces

    def append(self, name: str, rows: pa.Table, marker: Marker | None) -> bool:
        """Returns whether it has made a version: a marker's second commit makes none."""
        newest = self.newest(name)
        if marker is not None and self.marker(name, marker.app, newest) >= marker.number:
            return False
        before = self.versions[name][-1].pieces
        more = (Piece(newest + 1, rows),) if len(rows) else ()
        self.versions[name].append(Version(before + more, marker))
        return True

    def take_back(self, name: str, version: int) -> None:
        """A crash takes the newest version with it."""
        assert version == self.newest(name)
        self.versions[name].pop()

    def rewrite(self, name: str) -> None:
        """Makes a version with the same rows in other files."""
        self.versions[name].append(Version(self.versions[name][-1].pieces, rewrites=True))

    def rows(self, name: str, before: int = NO_TABLE, upto: int | None = None) -> list[dict[str, Any]]:
        """Returns the rows that came after one version, up to another."""
        if not self.versions[name]:
            return []
        last = self.newest(name) if upto is None else upto
        pieces = self.versions[name][-1].pieces
        return [row for each in pieces if before < each.version <= last for row in _rows(each.rows)]


def _rows(rows: pa.Table) -> Iterator[dict[str, Any]]:
    yield from rows.to_pylist(maps_as_pydicts="strict")


class Calls:
    """What becomes of a warehouse's calls: here nothing but what they ask for."""

    def enter(self, verb: str, name: str) -> None:
        """Before each call; a simulation goes on elsewhere, or raises what a failing disk does."""

    def is_late(self, name: str) -> bool:
        """Returns whether a listing lacks the newest version."""
        return False

    def commits(self, name: str) -> Answer:
        return "made"

    def committed(self, name: str, version: int) -> None:
        """After a commit, before its writer knows."""


@dataclass(frozen=True)
class MemoryWarehouse(Warehouse):
    """One driver's view of the tables; all rows are here."""

    tables: Tables = field(default_factory=Tables, kw_only=True, repr=False)
    calls: Calls = field(default_factory=Calls, kw_only=True, repr=False)

    # ---- what a table is ----

    def has(self, file: str) -> bool:
        return self._newest("has", file) != NO_TABLE

    def version(self, name: str) -> int:
        return self._newest("version", name)

    def keeps(self, name: str, version: int) -> bool:
        return self.tables.first_kept[name] <= version <= self._newest("keeps", name)

    def properties(self, name: str, version: int | None = None) -> Mapping[str, str]:
        self._newest("properties", name)
        return {}

    def marker(self, name: str, app: str) -> int:
        return self.tables.marker(name, app, self._newest("marker", name))

    def holds(self, name: str, run_id: int) -> bool:
        newest = self._newest("holds", name)
        return newest != NO_TABLE and any(run_id in each.rows["run_id"].to_pylist() for each in self._at(name, newest))

    def first_removal(self, name: str, after: int, upto: int) -> int | None:
        self._newest("first_removal", name)
        if after + 1 < self.tables.first_kept[name]:
            return 0
        versions = self.tables.versions[name][after + 1 : upto + 1]
        return next((n for n, each in enumerate(versions, after + 2) if each.rewrites), None)

    def listed(self, name: str, version: int | None = None) -> Sequence[Listed]:
        version = self._newest("listed", name) if version is None else version
        return [Listed(f"{name}/{each.version}", each.rows.nbytes, {}) for each in self._at(name, version)]

    # ---- reads ----

    def found(self, name: str, version: int | None = None, where: Where | None = None) -> FoundRows:
        newest = self._newest("found", name)
        return self._meeting(name, self._at(name, newest if version is None else version), where)

    def added(self, name: str, before: int, upto: int) -> Rows:
        self._newest("added", name)
        return self._meeting(name, [each for each in self._at(name, upto) if each.version > before], None).rows

    def found_before(self, name: str, before: int, upto: int, where: Where) -> FoundRows:
        self._newest("found_before", name)
        return self._meeting(name, [each for each in self._at(name, upto) if each.version <= before], where)

    def _newest(self, verb: str, name: str) -> int:
        self.calls.enter(verb, name)
        newest = self.tables.newest(name)
        return newest - 1 if newest > self.tables.first_kept[name] and self.calls.is_late(name) else newest

    def _at(self, name: str, version: int) -> Sequence[Piece]:
        return () if version == NO_TABLE else self.tables.pieces(name, version)

    def _meeting(self, name: str, pieces: Sequence[Piece], where: Where | None) -> FoundRows:
        meets = None if where is None else where.expression(self.schema(name))
        found = [each.rows if meets is None else each.rows.filter(meets) for each in pieces]
        found = [rows for rows in found if len(rows)]
        return FoundRows(pa.concat_tables(found) if found else no_rows(name), len(found))

    # ---- writes ----

    def make(self, *names: str) -> None:
        for name in names:
            self.calls.enter("make", name)
            self._make(name)

    def _make(self, name: str) -> None:
        if self.tables.newest(name) == NO_TABLE:
            self.tables.versions[name].append(Version(()))

    def commit(
        self,
        name: str,
        rows: Rows | Sequence[Mapping[str, object]],
        marker: Marker | None = None,
        spec: TableSpec | None = None,
    ) -> None:
        if isinstance(rows, Sequence) and not rows and marker is None:
            return
        self._commits(name, self.given(name, rows), marker)

    def commit_first(self, name: str, rows: pa.Table, marker: Marker) -> None:
        """As the classic warehouse has it for `end`: raises AlreadyWrittenError if the marker's commit is there."""
        if not self._commits(name, rows, marker):
            raise AlreadyWrittenError(self.path(name))

    def _commits(self, name: str, rows: Rows, marker: Marker | None) -> bool:
        """Returns whether a commit is made, or refused: not if the marker's was there."""
        found = self._whole(name, rows)
        self.calls.enter("commit", name)
        answer, made = self.calls.commits(name), True
        if answer != "refused":
            self._make(name)
            made = self.tables.append(name, found, marker)
            if made:
                self.calls.committed(name, self.tables.newest(name))
        if answer != "made":
            raise OSError(f"{name}: the store gave no answer to a commit")
        return made

    def _whole(self, name: str, rows: Rows) -> pa.Table:
        struct = self.schema(name)
        if isinstance(rows, DataFrame) or rows.column_names != struct.names:
            frame = rows if isinstance(rows, DataFrame) else frame_of(self.spark, rows)
            rows = arrow(self.in_form(name, frame), struct)
        return rows.cast(arrow_schema(struct))

    def compact(self, name: str, version: int) -> None:
        self.calls.enter("compact", name)
        self.tables.rewrite(name)
