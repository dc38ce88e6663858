"""Parquet files of any size, read and written by Spark's Python workers: no row passes the JVM."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from halfop.warehouse.disk import DataFile, Disk, Listed, NewFile
from halfop.warehouse.parquet import cast_to, stats_of

ANYWHERE = (-(2**63), 2**63 - 1)
_BATCH_ROWS = 65_536
_READ_AT_ONCE = 8 << 20  # of a column; a file of another's may have large row groups
# Bytes that are buffered for open files; with many tables, each gets more files instead.
_BUFFERED = 256 << 20


class Split(NamedTuple):
    """The row groups of a file whose middle lies between two of its bytes, about; the last has what lies behind too.

    So none is left out of a file that is longer than it was said to be.
    """

    path: str
    start: int
    end: int
    is_last: bool = True

    def has(self, at: int) -> bool:
        return self.start <= at and (self.is_last or at < self.end)


def splits_of(files: Sequence[Listed], tasks: int) -> list[list[Split]]:
    """The files in about so many parts of about the same size, each in the files' order."""
    share = max(1, -(-sum(file.size for file in files) // tasks))
    parts: list[list[Split]] = [[]]
    room = share
    for path, said, *_ in files:
        start, size = 0, max(said, 1)
        while start < size:
            if room <= 0:
                parts.append([])
                room = share
            end = min(size, start + room) if size - start - room > share // 4 else size
            parts[-1].append(Split(path, start, end, end == size))
            room -= end - start
            start = end
    return _largest_first(parts)


def parts_of(splits: Sequence[Split], tasks: int) -> list[list[Split]]:
    """The splits in at most so many parts of about the same size, in their order."""
    whole = sum(split.end - split.start for split in splits)
    parts: list[list[Split]] = [[] for _ in range(tasks)]
    before = 0
    for split in splits:
        size = split.end - split.start
        parts[(before + size // 2) * tasks // max(whole, 1)].append(split)
        before += size
    return _largest_first(parts)


def _largest_first(parts: Sequence[list[Split]]) -> list[list[Split]]:
    """So that tasks end at about the same time."""
    return sorted(filter(None, parts), key=lambda part: sum(split.end - split.start for split in part), reverse=True)


class ParquetPart:
    """One split, opened: the columns of the schema, which may be fewer than the file's, or more."""

    def __init__(self, disk: Disk, split: Split, schema: pa.Schema) -> None:
        repeating = [f.name for f in schema if pa.types.is_dictionary(f.type)]
        self._schema = schema
        source = disk.open(split.path)
        self._file = pq.ParquetFile(
            source,
            read_dictionary=repeating,
            coerce_int96_timestamp_unit="us",
            pre_buffer=False,
            buffer_size=0 if isinstance(source, pa.MemoryMappedFile) else _READ_AT_ONCE,
        )
        self._groups = [n for n, at in enumerate(_places(self._file.metadata, source.size())) if split.has(at)]

    def bounds(self, column: str) -> list[tuple[Any, Any] | None]:
        """The bounds of a column's values, by row group; None if the file does not say."""
        return [self._bounds(number, column) for number in self._groups]

    def _bounds(self, number: int, column: str) -> tuple[Any, Any] | None:
        group = self._file.metadata.row_group(number)
        at = next((n for n in range(group.num_columns) if group.column(n).path_in_schema == column), None)
        statistics = None if at is None else group.column(at).statistics
        if statistics is None or not statistics.has_min_max:
            return None
        return statistics.min, statistics.max

    def between(self, column: str, low: int, high: int) -> ParquetPart:
        """Leaves out the row groups that hold no such number."""
        bounds = {number: self._bounds(number, column) for number in self._groups}
        self._groups = [n for n, b in bounds.items() if b is None or (b[0] <= high and b[1] >= low)]
        return self

    def batches(self) -> Iterator[pa.RecordBatch]:
        return (batch for _, batch in self.numbered())

    def numbered(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches, each with the number of its first row in the file."""
        about = self._file.metadata
        for group in self._groups:
            first = sum(about.row_group(n).num_rows for n in range(group))
            for batch in self._read(group):
                yield first, batch
                first += len(batch)

    def _read(self, group: int) -> Iterator[pa.RecordBatch]:
        known = set(self._file.schema_arrow.names)
        read = [name for name in self._schema.names if name in known]
        for batch in self._file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=read, use_threads=False):
            columns = [
                cast_to(batch[f.name], f.type) if f.name in known else pa.nulls(len(batch), f.type)
                for f in self._schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _places(about: pq.FileMetaData, size: int) -> Iterator[int]:
    """About where the middle of each row group lies, by the rows before it.

    Asked for the offsets of a column whose description is wrong, PyArrow would end this process.
    """
    rows = [max(about.row_group(n).num_rows, 0) for n in range(about.num_row_groups)]
    before, every = 0, sum(rows)
    for of_group in rows:
        yield size * (2 * before + of_group) // (2 * every + 1)
        before += of_group


def span(disk: Disk, splits: Sequence[Split], column: str) -> tuple[int, int]:
    """The bounds of a column's numbers in all these splits."""
    nothing = pa.schema([])
    found = [bounds for split in splits for bounds in ParquetPart(disk, split, nothing).bounds(column)]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return ANYWHERE
    return (min(low for low, _ in known), max(high for _, high in known)) if known else (1, 0)


def schema_of(disk: Disk, path: str) -> pa.Schema:
    """The columns of a file, all of them."""
    return pq.ParquetFile(disk.open(path), coerce_int96_timestamp_unit="us").schema_arrow


def repeating(schema: pa.Schema, *columns: str) -> pa.Schema:
    """The schema with these texts as dictionaries: few values, each many times."""
    kind = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([pa.field(f.name, kind if f.name in columns else f.type) for f in schema])


def _repeating_columns(schema: pa.Schema) -> list[str]:
    """The columns whose values repeat: looking for repeats in others costs more than it saves."""
    unlike = (pa.types.is_string, pa.types.is_binary, pa.types.is_int64)
    found = [f.name for f in schema if not pa.types.is_nested(f.type) and not any(kind(f.type) for kind in unlike)]
    maps = [f"{f.name}.key_value.key" for f in schema if pa.types.is_map(f.type)]
    return found + maps


@dataclass
class _Open:
    """A file, and the rows of its next row group: readers like few large ones."""

    output: NewFile
    writer: pq.ParquetWriter
    about: list[pq.FileMetaData]
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    room: int = _BATCH_ROWS

    def write(self, batch: pa.RecordBatch) -> None:
        self.waiting.append(batch)
        self.room -= len(batch)
        if self.room <= 0:
            self.flush()

    def flush(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting).unify_dictionaries())
        self.waiting, self.room = [], _BATCH_ROWS


@dataclass
class PartWriter:
    """Writes files for several places, each below a folder; `searched` are the columns whose bounds are kept."""

    disk: Disk
    folders: Mapping[Any, str]
    searched: Mapping[Any, Sequence[str]]
    files: dict[Any, list[DataFile]] = field(default_factory=dict)
    _open: dict[Any, _Open] = field(default_factory=dict)
    _buffered: int = 0

    def write(self, place: Any, batch: pa.RecordBatch) -> None:
        if not len(batch):
            return
        with self._given_up_if_it_fails():
            if place not in self._open:
                self._open[place] = self._opened(place, batch.schema)
            self._open[place].write(batch)
        self._buffered += batch.nbytes
        if self._buffered > _BUFFERED:
            self.close()

    def _opened(self, place: Any, schema: pa.Schema) -> _Open:
        output = self.disk.create(f"{self.folders[place]}/part-{uuid.uuid4()}.parquet")
        about: list[pq.FileMetaData] = []
        counted = [f.name for f in schema if not (pa.types.is_nested(f.type) or pa.types.is_binary(f.type))]
        writer = pq.ParquetWriter(
            output.stream,
            schema,
            compression="snappy",
            store_schema=False,
            use_dictionary=_repeating_columns(schema),
            write_statistics=counted,
            metadata_collector=about,
        )
        return _Open(output, writer, about)

    def close(self) -> dict[Any, list[DataFile]]:
        """Ends all files that are open; returns those that were ever written, by place."""
        with self._given_up_if_it_fails():
            for each in self._open.values():
                each.flush()
                each.writer.close()
                each.output.begin_to_close()
        for place, each in self._open.items():
            written, stats = each.output.close(), stats_of(each.about[0], self.searched[place])
            self.files.setdefault(place, []).append(DataFile(*written, stats))
        self._open, self._buffered = {}, 0
        return self.files

    @contextmanager
    def _given_up_if_it_fails(self) -> Iterator[None]:
        """After a failure no writer is closed, by `close` or when it is collected: that would fail again."""
        try:
            yield
        except BaseException:
            for each in self._open.values():
                each.writer.is_open = False
            self._open = {}
            raise
