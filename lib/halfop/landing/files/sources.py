"""Input files from paths, directories and globs, each with its format, size and hash; ranges that they lack."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from halfop.columns.lives import Lives
from halfop.frame.errors import InputRefused
from halfop.landing import progress
from halfop.landing.fields import LONG_MAX
from halfop.landing.progress import Complete, OffsetSpan, Queue
from halfop.landing.table_rows import RESOLVE
from halfop.warehouse.files import one_form, refusing, shown_path
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import Compared, all_of, equal, one_of

_FORMATS = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".parquet": "parquet"}
_EXPECTED = "expected a name that ends in .jsonl, .ndjson, .json (each also .gz) or .parquet"
_HIDDEN = ("_", ".")
EXPECTED_PATH = "expected a file, a directory or a glob"
_WITH_CHECKSUMS = "org.apache.hadoop.fs.ChecksumFileSystem"
_THREADS = 4
# More is for tasks, side by side.
_FEW_BYTES = 8 * 1024 * 1024
_UNPACKED = 10  # times the size of a packed file, about


@dataclass(frozen=True)
class InputFile:
    """A file to land."""

    kind: str
    format: str
    uri: str
    size: int
    sha256: str = ""

    @property
    def shown(self) -> str:
        return shown_path(self.uri)

    @property
    def place(self) -> str:
        """The path as a task's disk takes it: with its scheme, without escapes."""
        return unquote(self.uri)


class InputFiles:
    """Finds and hashes files on the file systems that Hadoop knows."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        jsc: Any = spark._jsc
        self._jvm, self._conf = jvm, jsc.hadoopConfiguration()

    def find(self, kind: str, patterns: Iterable[str]) -> list[InputFile]:
        """The files of all paths, each once, in the order of their names. A path that matches nothing is refused."""
        found = {file.uri: file for pattern in patterns for file in self._find(kind, pattern)}
        return [found[uri] for uri in sorted(found)]

    def hashed(self, files: Sequence[InputFile]) -> list[InputFile]:
        """The files, with the hashes of their contents."""
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(self._hashed, files))

    def _find(self, kind: str, pattern: str) -> list[InputFile]:
        with refusing(pattern):
            path = self._jvm.org.apache.hadoop.fs.Path(pattern)
            system = self._system(path)
            if system.exists(path):
                roots = [system.getFileStatus(path)]
            else:
                matched = list(system.globStatus(path) or ())
                roots = [root for root in matched if not _is_hidden(pattern, root.getPath().toString())]
                self._refuse_of_delta(system, roots)
            files = [file for root in roots for file in self._below(kind, system, root)]
        if not files:
            raise InputRefused(pattern, None, "no such file, or no file in it", EXPECTED_PATH)
        return files

    def _system(self, path: Any) -> Any:
        """The file system of a path: a local one without its checksums, whose files no name with `:` can have."""
        system = path.getFileSystem(self._conf)
        is_checked = self._jvm.py4j.reflection.TypeUtil.isInstanceOf(_WITH_CHECKSUMS, system)
        return system.getRawFileSystem() if is_checked else system

    def _refuse_of_delta(self, system: Any, roots: Sequence[Any]) -> None:
        folders = {root.getPath().getParent().toString() for root in roots if not root.isDirectory()}
        for folder in sorted(folders):
            if system.exists(self._jvm.org.apache.hadoop.fs.Path(folder, "_delta_log")):
                raise delta_refusal(folder)

    def _below(self, kind: str, system: Any, root: Any) -> list[InputFile]:
        if not root.isDirectory():
            return [_of_status(kind, root)]
        base, listed = root.getPath().toString(), system.listFiles(root.getPath(), True)
        if system.getUri().getScheme() == "file":
            _refuse_unlisted(shown_path(one_form(root.getPath().toUri().toString())))
        files = []
        while listed.hasNext():
            status = listed.next()
            names = status.getPath().toString().removeprefix(base).strip("/").split("/")
            if "_delta_log" in names:
                raise delta_refusal(base)
            if not any(name.startswith(_HIDDEN) for name in names):
                files.append(_of_status(kind, status))
        return files

    def _hashed(self, file: InputFile) -> InputFile:
        with refusing(file.shown):
            path = self._jvm.org.apache.hadoop.fs.Path(self._jvm.java.net.URI(file.uri))
            stream = self._system(path).open(path)
            try:
                return replace(file, sha256=self._jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream))
            finally:
                stream.close()


def _is_hidden(pattern: str, path: str) -> bool:
    """Returns whether a glob has met a name that begins with `_` or `.`, and did not ask for one."""
    met = zip(reversed(pattern.split("/")), reversed(path.split("/")), strict=False)
    return any(name.startswith(_HIDDEN) and not asked.startswith(_HIDDEN) for asked, name in met)


def _shown(path: Path) -> str:
    return os.fsencode(path).decode(errors="backslashreplace")


def _refuse_unlisted(folder: str) -> None:
    """Raises InputRefused for a file below a local folder that Java does not list."""
    for above, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
        for path in (Path(above, name) for name in names if not name.startswith(_HIDDEN)):
            if _shown(path) != str(path) or (path.is_symlink() and not path.exists()):
                problem = "cannot be read: its name is no UTF-8, or it links to nothing"
                raise InputRefused(_shown(path), None, problem, "rename it, or take it away")


def _of_status(kind: str, status: Any) -> InputFile:
    return input_file(kind, one_form(status.getPath().toUri().toString()), status.getLen())


def delta_refusal(folder: str) -> InputRefused:
    """Returns the refusal of a Delta table's folder."""
    problem = "is a Delta table: its folder also holds files that are no longer part of it"
    return InputRefused(shown_path(folder), None, problem, "write its rows to Parquet files and land those")


def input_file(kind: str, uri: str, size: int, sha256: str = "") -> InputFile:
    """Returns the file, with the format that its name shows."""
    name = unquote(uri).rpartition("/")[2].lower()
    ending = next((each for each in _FORMATS if name.removesuffix(".gz").endswith(each)), None)
    if ending is None or name.endswith(".parquet.gz"):
        raise InputRefused(shown_path(uri), None, _EXPECTED)
    return InputFile(kind, _FORMATS[ending], uri, size, sha256)


def is_packed(file: InputFile) -> bool:
    return file.uri.lower().endswith(".gz")


def are_few(files: Iterable[InputFile]) -> bool:
    """Returns whether files hold so few rows that this process reads them."""
    return sum(file.size * (_UNPACKED if is_packed(file) else 1) for file in files) <= _FEW_BYTES


def complete(
    warehouse: Warehouse,
    queues: Iterable[Queue],
    landed: Mapping[Queue, OffsetSpan],
    lives: Mapping[str, Lives],
) -> dict[Queue, Complete]:
    """Returns how far the ops of each queue in the table are complete; `lives` are of brokers that have several."""
    found, before = {}, progress.of_ops(warehouse)
    for queue in queues:
        row, span = before.get(queue), landed.get(queue)
        start = row.next_offset if row and row.next_offset is not None else span.lowest if span else None
        highest = row.highest_offset if row else None
        if start is not None:
            known = Complete(start, None, highest if highest is not None and highest > start else None)
            ops = _Ops(warehouse, queue, [*lives.values()])
            found[queue] = _joined(ops, known, span) if span else known
    return found


def known_by_ops(halves: Iterable[Queue], ops: Mapping[Queue, Complete]) -> dict[Queue, int | None]:
    """The known-until without --known-until: each broker's newest op, but of a queue with a gap its own before that."""
    newest: dict[str, int] = {}
    for queue, found in ops.items():
        if found.newest is not None:
            newest[queue.broker_name] = max(found.newest, newest.get(queue.broker_name, found.newest))
    known = {queue: newest.get(queue.broker_name) for queue in {*halves, *ops}}
    return known | {queue: found.newest for queue, found in ops.items() if found.highest is not None}


@dataclass(frozen=True)
class _Ops:
    """Ops of a queue that have landed; those of a later life may be under the name of an earlier one."""

    warehouse: Warehouse
    queue: Queue
    lives: Sequence[Lives]

    def since(self, offset: int) -> DataFrame:
        name, queue_id = self.queue
        mine = next((each for each in self.lives if name in each.names), Lives(name))
        near = one_of("broker_name", mine.names)
        ops = self.warehouse.read(
            "op_messages", where=all_of(near, equal("queue_id", queue_id), Compared("queue_offset", ">=", offset))
        )
        number = mine.names.index(name) + 1
        own = (F.col("broker_name") == name) & F.col("life").isNull()
        given_by_us = F.col("source").eqNullSafe(F.lit(RESOLVE))
        return ops.where(~given_by_us & (own | (F.col("life") == number))).select("queue_offset", "store_timestamp")


def _joined(landed: _Ops, known: Complete, span: OffsetSpan) -> Complete:
    """The known offsets of a queue together with the ops that landed now."""
    start, end = known.next_offset, min(span.highest + 1, LONG_MAX)
    if known.highest is None:
        if span.whole and span.lowest <= start:
            return Complete(max(start, end), span.newest if end > start else None)
        if span.lowest > start:
            return Complete(start, None, end)
    elif end <= start:
        return known
    return _beyond(landed.since(start), start)


def _beyond(ops: DataFrame, start: int) -> Complete:
    """Returns the same of all ops, from the first offset on that was missing."""
    offsets = ops.select("queue_offset").distinct()
    bounds = offsets.agg(F.min("queue_offset").alias("low"), F.max("queue_offset").alias("high")).collect()[0]
    if bounds["low"] is None:
        return Complete(start, None)
    highest = min(bounds["high"] + 1, LONG_MAX)
    if bounds["low"] > start:
        return Complete(start, None, highest)
    follow = offsets.select((F.col("queue_offset") - 1).alias("queue_offset"))
    last = offsets.join(follow, "queue_offset", "left_anti").agg(F.min("queue_offset").alias("at")).collect()[0]["at"]
    newest = ops.where(F.col("queue_offset") <= last).agg(F.max(F.unix_micros("store_timestamp")).alias("at"))
    return Complete(min(last + 1, LONG_MAX), newest.collect()[0]["at"], highest if last < bounds["high"] else None)
