"""Taking input files in: read once, checked, and made rows of the tables, which a commit then makes part of them.

There are two ways, by the same functions over Arrow batches: few rows in this process (`Here`), more of them in
Python tasks from files to files (`ByTasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from halfop.landing.erased import may_be_erased, without_erased
from halfop.landing.fields import completed, items
from halfop.landing.files.own_life import LandingContext, by_half, in_own_life
from halfop.landing.files.pieces import Piece, PieceFound, read
from halfop.landing.files.sources import InputFile, are_few, is_packed
from halfop.landing.files.typed import Typed
from halfop.landing.staged import Staging, new_folder
from halfop.landing.table_rows import TABLES
from halfop.warehouse.by_spark import SparkWarehouse
from halfop.warehouse.disk import DataFile, Disk, Listed
from halfop.warehouse.files import Files, refusing
from halfop.warehouse.maps import with_made
from halfop.warehouse.parquet import arrow_schema, searched
from halfop.warehouse.schema import table
from halfop.warehouse.server_files import fetch
from halfop.warehouse.splits import PartWriter, Split, splits_of
from halfop.warehouse.tables import Warehouse

_WHOLE = 2**63 - 1
_BYTES_A_ROW = 256  # about


class Taking(Protocol):
    """Files of a landing, read; nothing is part of a table yet."""

    @property
    def found(self) -> Sequence[PieceFound]:
        """The findings in each piece of them."""

    def append(self, kind: str) -> None:
        """Makes the good rows of a kind part of their table, in one commit."""

    def rows(self, kind: str) -> DataFrame | None:
        """The good rows of a kind; None if there can be none."""

    def bad(self) -> DataFrame:
        """The bad rows of all kinds."""

    def close(self) -> None:
        """Removes what has not become part of a table."""


class RowOutput(Protocol):
    """Where rows go to: a table's by its kind, bad ones by BAD."""

    def write(self, place: Any, batch: pa.RecordBatch) -> None:
        """Adds rows."""


def take_piece(piece: Piece, disk: Disk, context: LandingContext, out: RowOutput) -> PieceFound:
    """Reads a piece to its end."""
    found = PieceFound(piece.kind, piece.format, piece.uri, piece.split.start)
    for given in read(piece, disk, found):
        typed = in_own_life(given, context)
        found.see(typed, context.again)
        rows = table_rows(typed, context)
        found.good += len(rows)
        out.write(piece.kind, rows)
        if typed.problems:
            out.write(BAD, bad_rows(piece.uri, piece.split.start, typed))
    return found


def whole(file: InputFile) -> Piece:
    return Piece(file.kind, file.format, file.uri, file.shown, Split(file.place, 0, _WHOLE), is_packed(file))


# ---- in this process ----


@dataclass(frozen=True)
class _Gathered:
    rows: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)

    def write(self, place: Any, batch: pa.RecordBatch) -> None:
        self.rows.setdefault(place, []).append(batch)

    def table(self, place: str, schema: pa.Schema) -> pa.Table:
        batches = [batch.cast(schema) for batch in self.rows.get(place, ())]
        return pa.Table.from_batches(batches, schema)


@dataclass(frozen=True)
class _AnyDisk:
    """Whole files of any file system that Hadoop knows, or that the server of Spark Connect sees."""

    warehouse: Warehouse

    def open(self, path: str) -> pa.NativeFile:
        if isinstance(self.warehouse, SparkWarehouse):
            content = BytesIO()
            fetch(self.warehouse.spark, path, content)
            return pa.BufferReader(content.getvalue())
        with refusing(path):
            return pa.BufferReader(Files(self.warehouse.spark, path).read(path))


class Here:
    """Files of few rows."""

    def __init__(self, warehouse: Warehouse, files: Iterable[InputFile], context: LandingContext) -> None:
        self._warehouse, self._gathered = warehouse, _Gathered()
        disk: Any = _AnyDisk(warehouse)
        self.found = [take_piece(whole(file), disk, context, self._gathered) for file in files]

    def append(self, kind: str) -> None:
        name = TABLES[kind]
        rows = self._gathered.table(kind, arrow_schema(table(name).struct))
        gone = may_be_erased(self._warehouse, name, None) if len(rows) else None
        if gone is None:
            self._warehouse.commit(name, rows)
        else:
            self._warehouse.commit(name, without_erased(self._warehouse, self._warehouse.stage.take(rows), gone))

    def rows(self, kind: str) -> DataFrame | None:
        rows = self._gathered.table(kind, arrow_schema(table(TABLES[kind]).struct))
        return self._warehouse.stage.take(rows) if len(rows) else None

    def bad(self) -> DataFrame:
        return self._warehouse.stage.take(self._gathered.table(BAD, BAD_ROW))

    def close(self) -> None:
        self._gathered.rows.clear()


# ---- in tasks ----


class FileShare(NamedTuple):
    """The work of one task."""

    pieces: Sequence[Piece]
    context: LandingContext
    folders: Mapping[str, str]


class TakenFiles(NamedTuple):
    """The result of a task: what it found, and the files that it has written."""

    found: Sequence[PieceFound]
    files: Mapping[str, Sequence[DataFile]]


def take_share(share: FileShare, disk: Disk) -> TakenFiles:
    pa.set_cpu_count(1)
    bounded = {kind: searched(table(name)) for kind, name in TABLES.items()}
    out = PartWriter(disk, share.folders, bounded | {BAD: ()})
    found = [take_piece(piece, disk, share.context, out) for piece in share.pieces]
    return TakenFiles(found, out.close())


class ByTasks:
    """Files of any number of rows: workers take them, or this process does if only Spark reaches the tables."""

    def __init__(self, warehouse: Warehouse, files: Sequence[InputFile], context: LandingContext) -> None:
        self._staging = new_folder(warehouse)
        folders = {place: f"{self._staging.path}/{place}" for place in (*TABLES, BAD)}
        shares = [FileShare(pieces, context, folders) for pieces in _parts(self._staging, files)]
        try:
            self._taken = self._staging.work(shares, take_share, few=False)
        except BaseException:
            self.close()
            raise
        self.found = [found for each in self._taken for found in each.found]

    def append(self, kind: str) -> None:
        self._staging.append(TABLES[kind], list(self._files(kind)))

    def rows(self, kind: str) -> DataFrame | None:
        files = list(self._files(kind))
        return self._staging.rows(TABLES[kind], files) if files else None

    def bad(self) -> DataFrame:
        return self._staging.frame(from_arrow_schema(BAD_ROW), list(self._files(BAD)))

    def close(self) -> None:
        self._staging.remove()

    def _files(self, place: str) -> Iterator[DataFile]:
        return (file for each in self._taken for file in each.files.get(place, ()))


def _parts(staging: Staging, files: Sequence[InputFile]) -> Iterator[list[Piece]]:
    for _, of_kind in groupby(files, key=lambda file: file.kind):
        by_path = {file.place: file for file in of_kind}
        # an empty file may be refused, too
        sizes = [Listed(path, max(file.size, 1), {}) for path, file in by_path.items()]
        tasks = staging.tasks(sum(each.size for each in sizes) // _BYTES_A_ROW)
        for splits in splits_of(sizes, tasks):
            yield [piece for split in splits for piece in _pieces(by_path[split.path], split)]


def _pieces(file: InputFile, split: Split) -> Iterator[Piece]:
    piece = whole(file)
    if not piece.packed:
        yield piece._replace(split=split)
    elif split.start == 0:  # it can be read only from its beginning
        yield piece


def take(warehouse: Warehouse, files: Sequence[InputFile], context: LandingContext) -> Taking:
    """Reads and checks all files; nothing is part of a table yet."""
    warehouse.touched.read.update(dict.fromkeys((file.uri for file in files), None))
    return (Here if are_few(files) else ByTasks)(warehouse, files, context)


SOURCE = "FILES"
BAD = "bad"
BAD_ROW = pa.schema(
    [
        *(("file", pa.string()), ("block", pa.int64()), ("place", pa.int64())),
        *(("reason", pa.string()), ("detail", pa.string())),
        *(("broker_name", pa.string()), ("queue_id", pa.int32()), ("queue_offset", pa.int64())),
        *(("item", pa.int32()), ("half_offset", pa.int64())),
    ]
)
_MAKE: dict[str, Callable[[pa.RecordBatch], pa.RecordBatch]] = {"half": completed, "op": items}
# Texts of few values, each many times.
_REPEATING = {
    "broker_name",
    "producer_group",
    "real_topic",
    "tags",
    "born_host",
    "store_host",
    "tag",
    "outcome",
    "source",
}


def table_rows(typed: Typed, context: LandingContext) -> pa.RecordBatch:
    """The rows of the table that come of the good ones."""
    spec, good = table(TABLES[typed.kind]), typed.good
    made = with_made(_MAKE[typed.kind](good), spec)
    if typed.kind == "op" and context.lives:
        made = by_half(made, context)
    constant = {"source": pa.scalar(SOURCE), "landed_at": pa.scalar(context.landed_at, pa.timestamp("us", "UTC"))}
    columns = {name: pa.repeat(constant[name], len(made)) for name in spec.names if name in constant}
    columns |= dict(zip(made.schema.names, made.columns, strict=True))
    return pa.RecordBatch.from_pydict({name: _encoded(name, columns[name]) for name in spec.names})


def _encoded(name: str, column: pa.Array) -> pa.Array:
    known = pa.types.is_dictionary(column.type) or name not in _REPEATING
    return column if known else column.dictionary_encode()


def bad_rows(file: str, block: int, typed: Typed) -> pa.RecordBatch:
    """The bad rows, each with its place and what is wrong with it."""
    rows = typed.rows.take(pa.array(list(typed.problems), pa.int64()))
    known = dict(zip(rows.schema.names, rows.columns, strict=True))
    about = typed.problems.values()
    known |= {
        "file": pa.repeat(file, len(rows)),
        "block": pa.repeat(pa.scalar(block, pa.int64()), len(rows)),
        "place": pa.array(typed.places[list(typed.problems)]),
        "reason": pa.array([problem.reason for problem in about], pa.string()),
        "detail": pa.array([problem.detail for problem in about], pa.string()),
    }
    known.setdefault("half_offset", known["queue_offset"])
    columns = [known[f.name].cast(f.type) if f.name in known else pa.nulls(len(rows), f.type) for f in BAD_ROW]
    return pa.RecordBatch.from_arrays(columns, schema=BAD_ROW)
