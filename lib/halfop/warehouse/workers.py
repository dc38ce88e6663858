"""Functions over descriptions of tasks, run by Spark's Python workers, which read and write files themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from halfop.warehouse.disk import Disk, LocalDisk
from halfop.warehouse.tables import Warehouse

Share = TypeVar("Share")
Result = TypeVar("Result")


def in_workers(warehouse: Warehouse, shares: Sequence[Share], do: Callable[[Share, Disk], Result]) -> list[Result]:
    """What the function gives for each share, in their order: a task a share."""
    if not shares:
        return []
    tasks = warehouse.spark.sparkContext.parallelize(shares, len(shares))
    return tasks.map(partial(_done, do)).collect()


def _done(do: Callable[[Share, Disk], Result], share: Share) -> Result:
    return do(share, LocalDisk())
