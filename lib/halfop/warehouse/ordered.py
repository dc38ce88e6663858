"""Files of any number in the order of what is in them, so that a task reads rows that lie close together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from halfop.warehouse.disk import Disk
from halfop.warehouse.listing import Listed
from halfop.warehouse.splits import ParquetPart, Split, parts_of, splits_of
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.workers import in_workers

_LEAST_FILES = 100  # footers that a task reads


class _Look(NamedTuple):
    splits: Sequence[Split]
    columns: Sequence[str]


def ordered_parts(warehouse: Warehouse, files: Sequence[Listed], tasks: int, *columns: str) -> list[list[Split]]:
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
