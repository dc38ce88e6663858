"""The actions of a commit to Delta's log, as Delta Kernel makes them: files that a table gets, and that it loses."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

from pyspark.sql.types import StructType


class Kernel(Protocol):
    """The parts of Delta Kernel that actions need."""

    jvm: Any
    kernel: Any
    engine: Any

    def struct(self, schema: StructType) -> Any:
        """A schema as Kernel has it."""


@dataclass(frozen=True)
class DataFile:
    """A Parquet file lying in its table's folder, not yet part of the table. A partition's values are booleans."""

    path: str
    size: int
    modified: int
    stats: str | None
    partition: Mapping[str, Any] = field(default_factory=dict)


def appends(log: Kernel, transaction: Any, schema: StructType, files: Iterable[DataFile]) -> Iterator[Any]:
    """The files as parts of the table; Kernel wants those of each partition apart."""
    state = transaction.getTransactionState(log.engine)
    for partition, of_partition in groupby(files, key=lambda file: file.partition):
        yield from _of_partition(log, state, schema, partition, of_partition)


def _of_partition(
    log: Kernel, state: Any, schema: StructType, partition: Mapping[str, Any], files: Iterable[DataFile]
) -> Iterator[Any]:
    kernel, struct = log.kernel, log.struct(schema)
    stats = kernel.statistics.DataFileStatistics
    none = log.jvm.java.util.Optional.empty()
    rows = log.jvm.java.util.ArrayList()
    for file in files:
        known = none if file.stats is None else stats.deserializeFromJson(file.stats, struct)
        rows.add(kernel.utils.DataFileStatus(file.path, file.size, file.modified, known))
    values = log.jvm.java.util.HashMap()
    for name, value in partition.items():
        values.put(name, kernel.expressions.Literal.ofBoolean(value))
    context = kernel.Transaction.getWriteContext(log.engine, state, values)
    to_closeable = kernel.internal.util.Utils.toCloseableIterator
    return each(kernel.Transaction.generateAppendActions(log.engine, state, to_closeable(rows.iterator()), context))


def removes(log: Kernel, snapshot: Any) -> Iterator[Any]:
    """All files of a snapshot as no longer parts of the table. Kernel's public API has no such action."""
    internal, now = log.kernel.internal, log.jvm.java.util.Optional.of(time.time_ns() // 1_000_000)
    for batch in each(snapshot.getScanBuilder().build().getScanFiles(log.engine)):
        for row in each(batch.getRows()):
            add = internal.actions.AddFile(row.getStruct(internal.InternalScanFileUtils.ADD_FILE_ORDINAL))
            yield internal.actions.SingleAction.createRemoveFileSingleAction(add.toRemoveFileRow(True, now))


def each(closeable: Any) -> Iterator[Any]:
    """The elements of one of Kernel's iterators, which is closed at the end."""
    try:
        while closeable.hasNext():
            yield closeable.next()
    finally:
        closeable.close()
