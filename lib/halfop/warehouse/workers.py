"""Functions over descriptions of tasks, run by Spark's Python workers, which read and write files themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from pyspark import RDD
from pyspark.serializers import NoOpSerializer

from halfop.warehouse.disk import Disk, LocalDisk, Output
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.through_java import ThroughJava

Share = TypeVar("Share")
Result = TypeVar("Result")
Loads = Callable[[bytes], Sequence[Share]]


def in_workers(warehouse: Warehouse, shares: Sequence[Share], do: Callable[[Share, Disk], Result]) -> list[Result]:
    """The function's results for all shares, in their order: a task a share."""
    if not shares:
        return []
    context = warehouse.spark.sparkContext
    jvm: Any = context._jvm
    tasks: Any = context.parallelize(shares, len(shares))
    java = jvm.halfop.WorkerFiles(context._jsc)
    try:
        records: RDD[bytes] = RDD(tasks._jrdd.mapPartitions(java), context, NoOpSerializer())
        return records.mapPartitions(partial(_done, do, tasks._jrdd_deserializer.serializer.loads)).collect()
    finally:
        java.close()


def _done(do: Callable[[Share, Disk], Result], loads: Loads[Share], records: Iterator[bytes]) -> Iterator[Result]:
    """The first record of a task says where its JVM gives out files."""
    with ThroughJava(next(records)) as java:
        for record in records:
            for share in loads(record):
                yield do(share, _AnyDisk(java))


class _AnyDisk:
    """This machine's disk, and all others through the JVM."""

    def __init__(self, java: ThroughJava) -> None:
        self._java, self._local = java, LocalDisk()

    def open(self, path: str) -> Any:
        return self._of(path).open(path)

    def create(self, path: str) -> Output:
        return self._of(path).create(path)

    def _of(self, path: str) -> Disk:
        return self._local if path.startswith("file:") else self._java
