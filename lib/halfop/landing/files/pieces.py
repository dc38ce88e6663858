"""Pieces of input files, read and typed: in this process, or in a task of Spark's."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from halfop.frame.errors import InputRefused
from halfop.landing.again import Again
from halfop.landing.files import json_rows, parquet_rows
from halfop.landing.files.own_life import found_ranges
from halfop.landing.files.typed import Problem, Typed
from halfop.landing.progress import OffsetSpan, Queue
from halfop.warehouse.disk import NOT_PARQUET, Disk
from halfop.warehouse.splits import ParquetPart, Split, schema_of
from halfop.warehouse.through_java import NotServed

EXAMPLES = 5
_BLOCK = 8 << 20


class Piece(NamedTuple):
    """A part of an input file: as many rows as stand between two bytes, roughly."""

    kind: str
    format: str
    uri: str
    shown: str
    split: Split
    packed: bool


class Example(NamedTuple):
    """A bad row: its file, the piece's first byte, its place in that piece, and its problem."""

    uri: str
    start: int
    place: int
    problem: Problem


@dataclass
class PieceFound:
    """Rows of one piece, counted: good rows (of ops: items), bad ones by reason, and good offsets' spans by queue."""

    kind: str
    format: str
    uri: str
    start: int = 0
    lines: int = 0
    read: int = 0
    good: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    spans: dict[Queue, OffsetSpan] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    ranges: set[Again] = field(default_factory=set)  # those of --again that have a row here
    examples: list[Example] = field(default_factory=list)  # the first ones, and the first of each reason

    def see(self, typed: Typed, again: Sequence[Again] = ()) -> None:
        """Counts rows; `good` is counted by whoever makes the table's rows of them."""
        self.ranges |= found_ranges(typed, again)
        self.read += len(typed.rows)
        self.unknown |= typed.unknown
        for row, problem in sorted(typed.problems.items()):
            if len(self.examples) < EXAMPLES or problem.reason not in self.bad:
                self.examples.append(Example(self.uri, self.start, int(typed.places[row]), problem))
            self.bad[problem.reason] += 1
        for queue, span in spans(typed.good):
            self.spans[queue] = span.joined(self.spans.get(queue, span))


def spans(rows: pa.RecordBatch) -> Iterator[tuple[Queue, OffsetSpan]]:
    """The offsets and the newest store time of each queue, and whether offsets are missing."""
    names = ("broker_name", "queue_id", "queue_offset", "store_timestamp")
    columns = {name: rows[name] for name in names} | {"broker_name": rows["broker_name"].cast(pa.string())}
    columns["store_timestamp"] = rows["store_timestamp"].cast(pa.int64())
    bounds = [("queue_offset", of) for of in ("min", "max", "count_distinct")] + [("store_timestamp", "max")]
    for row in pa.table(columns).group_by(["broker_name", "queue_id"], use_threads=False).aggregate(bounds).to_pylist():
        lowest, highest = row["queue_offset_min"], row["queue_offset_max"]
        whole = row["queue_offset_count_distinct"] == highest - lowest + 1
        yield Queue(row["broker_name"], row["queue_id"]), OffsetSpan(lowest, highest, row["store_timestamp_max"], whole)


def read(piece: Piece, disk: Disk, found: PieceFound) -> Iterator[Typed]:
    """The rows of a piece, in batches. Raises InputRefused if it cannot be read."""
    return (_json if piece.format == "json" else _parquet)(piece, disk, found)


def _parquet(piece: Piece, disk: Disk, found: PieceFound) -> Iterator[Typed]:
    try:
        schema = schema_of(disk, piece.split.path)
    except NotServed:
        raise
    except NOT_PARQUET as error:
        raise InputRefused(piece.shown, None, f"not a readable Parquet file: {error}") from error
    parquet_rows.check_schema(piece.kind, piece.shown, schema)
    found.unknown |= parquet_rows.unknown_names(piece.kind, schema)
    part = ParquetPart(disk, piece.split, parquet_rows.columns_read(piece.kind, schema))
    try:
        for first, batch in part.numbered():
            batch.validate(full=True)  # Arrow reads texts whatever their bytes
            yield parquet_rows.typed(piece.kind, batch, np.arange(first, first + len(batch)))
    except NotServed:
        raise
    except NOT_PARQUET as error:
        raise _unreadable(piece, error) from error


def _json(piece: Piece, disk: Disk, found: PieceFound) -> Iterator[Typed]:
    path, start, end, _ = piece.split
    try:
        with closing(disk.open(path)) as file:
            for block in _blocks(gzip.GzipFile(fileobj=file) if piece.packed else file, start, end):
                first = not (found.lines or start)
                lines = split(block.removeprefix(codecs.BOM_UTF8) if first else block)
                yield json_rows.typed(piece.kind, lines, found.lines)
                found.lines += len(lines)
    except NotServed:
        raise
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        raise _unreadable(piece, error) from error


def _unreadable(piece: Piece, error: Exception) -> InputRefused:
    return InputRefused(piece.shown, None, f"cannot be read: {error}")


def split(content: bytes) -> list[bytes]:
    """Lines, however their ends are written."""
    lines = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return lines if lines[-1] else lines[:-1]


def _blocks(file: Any, start: int, end: int) -> Iterator[bytes]:
    """The lines that begin between two bytes, many in a block."""
    at, left = _first_line(file, start)
    while at < end:
        chunk = file.read(_BLOCK)
        left += chunk
        if at + len(left) >= end or not chunk:
            last = left.find(b"\n", max(0, end - 1 - at))
            if last >= 0 or not chunk:
                yield left[: last + 1] if last >= 0 else left
                return
        else:
            cut = left.rfind(b"\n") + 1
            yield from [left[:cut]] if cut else []
            at, left = at + cut, left[cut:]


def _first_line(file: Any, start: int) -> tuple[int, bytes]:
    """Where the first line begins that begins at this byte or after it, and what has been read of it."""
    if start == 0:
        return 0, b""
    file.seek(start - 1)
    at = start - 1
    while chunk := file.read(_BLOCK):
        cut = chunk.find(b"\n") + 1
        if cut:
            return at + cut, chunk[cut:]
        at += len(chunk)
    return at, b""
