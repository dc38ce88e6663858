"""Entries of maps as Arrow columns of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfop.warehouse.schema import TableSpec


def entries(maps: pa.MapArray, names: Sequence[str]) -> dict[str, pa.Array]:
    """The texts that maps have under these names; null if a map has none. Of a name that is there twice, the first."""
    ends = maps.offsets.to_numpy()
    first, size = int(ends[0]), int(ends[-1] - ends[0])
    keys, items = maps.keys.slice(first, size), maps.items.slice(first, size)
    codes = pc.fill_null(pc.index_in(keys, value_set=pa.array(names, keys.type)), -1).to_numpy()
    places = np.flatnonzero(codes >= 0)[::-1]
    owners = np.searchsorted(ends - first, places, side="right") - 1
    found = {}
    for code, name in enumerate(names):
        at = np.full(len(maps), -1, np.int64)
        mine = codes[places] == code
        at[owners[mine]] = places[mine]
        found[name] = items.take(pa.array(at, mask=at < 0))
    return found


def with_made(rows: pa.RecordBatch, spec: TableSpec) -> pa.RecordBatch:
    """The rows with those columns of the table that are made of others, and that they lack."""
    lacking = {c.name: c.made for c in spec.columns if c.made is not None and c.name not in rows.schema.names}
    for column in sorted({made.map for made in lacking.values()}):
        names = {name: made.entry for name, made in lacking.items() if made.map == column}
        found = entries(rows[column], list(names.values()))
        for name, entry in names.items():
            rows = rows.append_column(name, found[entry])
    return rows
