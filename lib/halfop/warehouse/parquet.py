"""Parquet files of few rows, read and written in this process: no Spark job, no task.

The bytes travel as `Files` moves them, so this works on every file system that Hadoop knows.
"""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from halfop.frame.errors import HalfopError
from halfop.warehouse.disk import NOT_PARQUET, DataFile, Listed
from halfop.warehouse.files import Files
from halfop.warehouse.schema import TableSpec
from halfop.warehouse.spark_versions import schema_in_utc

_CACHED_BYTES = 64 * 1024 * 1024
_FETCHED = 128  # files from elsewhere, one after the other; Spark's tasks fetch side by side
_BYTES_OF_A_COLUMN = 1280  # that Arrow takes for a column, however few its values: most of a small file
# As Delta's own writer does: bounds of the first columns if none are named, and longer texts are cut in the bounds.
_LONGEST_BOUND = 32
_BOUNDED = 32
_HIGHEST_CHARACTER = "\U0010ffff"
_ALMOST_A_MILLISECOND = timedelta(microseconds=999)


def arrow_schema(struct: StructType) -> pa.Schema:
    return schema_in_utc(struct)


# ---- reading ----


class UnreadableFile(HalfopError):
    """A table's file is not what it should be."""


class ParquetReader:
    """Reads files of a table, and keeps the last ones: a file of a table never changes."""

    def __init__(self, files: Files) -> None:
        self._files, self._lock = files, Lock()
        self._kept: OrderedDict[str, pa.Table] = OrderedDict()
        self._bytes = 0

    def table(self, files: Sequence[Listed], schema: pa.Schema, most: int) -> pa.Table | None:
        """The rows of these files, with the columns of the schema; None if they are more than `most`.

        None, too, if too many files would have to be fetched.
        """
        if self._to_fetch(files) > _FETCHED:
            return None
        parts, left = [], most
        for file in files:
            rows = self._rows(file.path, left)
            if rows is None:
                return None
            left -= len(rows)
            parts.append(as_declared(_with_partition(rows, file, schema), schema))
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def _to_fetch(self, files: Sequence[Listed]) -> int:
        with self._lock:
            new = [file for file in files if file.path not in self._kept]
        return len(new) if new and self._files.local(new[0].path) is None else 0

    def _rows(self, path: str, most: int) -> pa.Table | None:
        with self._lock:
            found = self._kept.get(path)
            if found is not None:
                self._kept.move_to_end(path)
                return found if len(found) <= most else None
        content = self._files.read(path)
        try:
            found = _parquet(content, most)
        except NOT_PARQUET as error:
            raise UnreadableFile(f"{path} is no readable Parquet file: {error}") from error
        if found is not None:
            self._keep(path, found)
        return found

    def _keep(self, path: str, rows: pa.Table) -> None:
        with self._lock:
            if path not in self._kept:
                self._kept[path] = rows
                self._bytes += _kept_bytes(rows)
            while self._bytes > _CACHED_BYTES:
                self._bytes -= _kept_bytes(self._kept.popitem(last=False)[1])


def _kept_bytes(rows: pa.Table) -> int:
    values: int = rows.nbytes
    return values + _BYTES_OF_A_COLUMN * int(rows.num_columns)


def _parquet(content: bytes, most: int) -> pa.Table | None:
    # In this thread: with a pool's under way, Arrow may abort the process when it ends (apache/arrow#34314).
    file = pq.ParquetFile(pa.BufferReader(content), coerce_int96_timestamp_unit="us")
    about = file.metadata
    size = sum(about.row_group(n).total_byte_size for n in range(about.num_row_groups))
    return file.read(use_threads=False) if about.num_rows <= most and size <= _CACHED_BYTES else None


def _with_partition(rows: pa.Table, file: Listed, schema: pa.Schema) -> pa.Table:
    for name in file.partition.keys() & set(schema.names):
        text = file.partition[name]
        rows = rows.drop_columns([name]) if name in rows.column_names else rows  # Spark writes it there, too
        rows = rows.append_column(name, pa.array([text] * len(rows), pa.string()).cast(schema.field(name).type))
    return rows


def as_declared(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """A file's columns as the schema has them; null if an older version did not know the column."""
    known = [
        cast_to(part[f.name], f.type) if f.name in part.column_names else pa.nulls(len(part), f.type) for f in schema
    ]
    return pa.Table.from_arrays(known, schema=schema)


def cast_to(column: Any, kind: pa.DataType) -> Any:
    return column if column.type == kind else column.cast(kind)


# ---- writing ----


def write_files(files: Files, folder: str, spec: TableSpec, rows: pa.Table) -> list[DataFile]:
    """Writes the rows to new files in a table's folder, one a partition; they are not part of the table yet."""
    rows = as_declared(rows, arrow_schema(spec.struct))
    return [_write(files, folder, spec, *part) for part in _partitions(rows, spec.partitioned_by)]


def _partitions(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[pa.Table, Mapping[str, Any]]]:
    if not by:
        if len(rows):
            yield rows, {}
        return
    name, rest = by[0], by[1:]
    for value in rows[name].unique().to_pylist():
        same = rows.filter(pc.equal(rows[name], pa.scalar(value, rows.schema.field(name).type)))
        for part, values in _partitions(same.drop_columns([name]), rest):
            yield part, {name: value, **values}


def _write(files: Files, folder: str, spec: TableSpec, rows: pa.Table, partition: Mapping[str, Any]) -> DataFile:
    content = pa.BufferOutputStream()
    about: list[pq.FileMetaData] = []
    pq.write_table(rows, content, compression="snappy", store_schema=False, metadata_collector=about)
    below = "".join(f"/{name}={str(value).lower()}" for name, value in partition.items())
    path = f"{folder}{below}/part-{uuid.uuid4()}.parquet"
    written = files.write(path, content.getvalue().to_pybytes())
    return DataFile(*written, stats_of(about[0], searched(spec)), partition)


def searched(spec: TableSpec) -> Sequence[str]:
    """The columns whose bounds Delta's log has."""
    return spec.stats or spec.names[:_BOUNDED]


def stats_of(about: pq.FileMetaData, columns: Iterable[str]) -> str:
    """The numbers of rows and nulls of a file and the bounds of these columns, as Delta's log has them."""
    wanted = set(columns)
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, parts in _statistics(about).items():
        if name not in wanted or any(part is None for part in parts):
            continue
        nulls[name] = sum(part.null_count for part in parts)
        bounded = [part for part in parts if part.num_values]
        if bounded and all(part.has_min_max for part in bounded):
            with suppress(ValueError, OverflowError):  # an instant after the year 9999: such a file is never skipped
                found = max(part.max for part in bounded), min(part.min for part in bounded)
                if isinstance(found[0], (str, int, datetime)) and not isinstance(found[0], bool):
                    high[name] = _at_least(found[0])
                    low[name] = _at_most(found[1])
    return json.dumps({"numRecords": about.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def _statistics(about: pq.FileMetaData) -> dict[str, list[Any]]:
    """The statistics of each row group, for each column that is no part of another."""
    groups = [about.row_group(n) for n in range(about.num_row_groups)]
    columns = [(n, groups[0].column(n).path_in_schema) for n in range(about.num_columns)] if groups else []
    return {name: [group.column(n).statistics for group in groups] for n, name in columns if "." not in name}


def _at_most(value: Any) -> Any:
    if isinstance(value, datetime):
        return _millis(value)
    return value[:_LONGEST_BOUND] if isinstance(value, str) else value


def _at_least(value: Any) -> Any:
    """The value rounded up to what a bound can say."""
    if isinstance(value, datetime):
        return _millis(value + _ALMOST_A_MILLISECOND)
    if isinstance(value, str) and len(value) > _LONGEST_BOUND:
        if value[_LONGEST_BOUND] == _HIGHEST_CHARACTER:
            raise ValueError("no text of this length is above it")
        return value[:_LONGEST_BOUND] + _HIGHEST_CHARACTER
    return value


def _millis(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
