"""Functions over descriptions of tasks, run by Spark's Python workers, which read and write files themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import pyarrow as pa
from pyspark import RDD
from pyspark.serializers import NoOpSerializer

from halfop.frame.errors import HalfopError
from halfop.warehouse.disk import Disk, Listed, LocalDisk, NewFile
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.splits import ParquetPart, Split, parts_of, splits_of
from halfop.warehouse.through_java import ThroughJava

Share = TypeVar("Share")
Result = TypeVar("Result")
Loads = Callable[[bytes], Sequence[Share]]


def in_workers(
    warehouse: KernelWarehouse, shares: Sequence[Share], do: Callable[[Share, Disk], Result]
) -> list[Result]:
    """The function's results for all shares, in their order: a task a share. Raises the first error of ours."""
    if not shares:
        return []
    context = warehouse.spark.sparkContext
    jvm: Any = context._jvm
    tasks: Any = context.parallelize(shares, len(shares))
    java = jvm.halfop.WorkerFiles(context._jsc)
    try:
        records: RDD[bytes] = RDD(tasks._jrdd.mapPartitions(java), context, NoOpSerializer())
        done = records.mapPartitions(partial(_done, do, tasks._jrdd_deserializer.serializer.loads)).collect()
    finally:
        java.close()
    for each in done:
        if isinstance(each, HalfopError):
            raise each
    return cast(list[Result], done)


def _done(
    do: Callable[[Share, Disk], Result], loads: Loads[Share], records: Iterator[bytes]
) -> Iterator[Result | HalfopError]:
    """The first record of a task says where its JVM gives out files. An error of ours is a result: Spark would keep
    no more of it than its text, and try the task again."""
    with ThroughJava(next(records)) as java:
        for record in records:
            for share in loads(record):
                yield _or_error(do, share, _AnyDisk(java))


def _or_error(do: Callable[[Share, Disk], Result], share: Share, disk: Disk) -> Result | HalfopError:
    try:
        return do(share, disk)
    except HalfopError as error:
        return error


class _AnyDisk:
    """This machine's disk, and all others through the JVM."""

    def __init__(self, java: ThroughJava) -> None:
        self._java, self._local = java, LocalDisk()

    def open(self, path: str) -> Any:
        return self._of(path).open(path)

    def create(self, path: str) -> NewFile:
        return self._of(path).create(path)

    def _of(self, path: str) -> Disk:
        return self._local if path.startswith("file:") else self._java


_LEAST_FILES = 100  # footers that a task reads


class _Look(NamedTuple):
    splits: Sequence[Split]
    columns: Sequence[str]


def ordered_parts(warehouse: KernelWarehouse, files: Sequence[Listed], tasks: int, *columns: str) -> list[list[Split]]:
    """The files in about so many parts of about the same size, ordered by the least values of these columns."""
    parts = splits_of(files, tasks)
    if len(parts) < 2:
        return parts
    splits = [split for part in parts for split in part]
    each = max(_LEAST_FILES, -(-len(splits) // tasks))
    looks = [_Look(splits[n : n + each], columns) for n in range(0, len(splits), each)]
    least = [values for found in in_workers(warehouse, looks, _least) for values in found]
    in_order = sorted(zip(least, splits, strict=True), key=lambda pair: (pair[0], pair[1]))
    return parts_of([split for _, split in in_order], tasks)


def _least(look: _Look, disk: Disk) -> list[list[tuple[bool, Any]]]:
    """The least values in each split; unknown ones come last."""
    return [[_lowest(ParquetPart(disk, split, pa.schema([])), name) for name in look.columns] for split in look.splits]


def _lowest(part: ParquetPart, column: str) -> tuple[bool, Any]:
    bounds = part.bounds(column)
    known = [low for low, _ in filter(None, bounds)]
    return (False, min(known)) if known and len(known) == len(bounds) else (True, "")
