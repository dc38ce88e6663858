"""Entries of maps as Arrow columns of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfop.warehouse.schema import TableSpec


def entries(maps: pa.MapArray, names: Sequence[str]) -> dict[str, pa.Array]:
    """The texts that maps have under these names; null if a map has none. The first counts if a name is there twice."""
    ends, keys, items = _flat(maps)
    codes = pc.fill_null(pc.index_in(keys, value_set=pa.array(names, keys.type)), -1).to_numpy()
    places = np.flatnonzero(codes >= 0)[::-1]
    owners = np.searchsorted(ends, places, side="right") - 1
    found = {}
    for code, name in enumerate(names):
        at = np.full(len(maps), -1, np.int64)
        mine = codes[places] == code
        at[owners[mine]] = places[mine]
        found[name] = items.take(pa.array(at, mask=at < 0))
    return found


def owners(maps: pa.MapArray, names: Sequence[str]) -> dict[str, npt.NDArray[np.int64]]:
    """The places of the maps that have an entry of each of these names."""
    ends, keys, _ = _flat(maps)
    wanted = pa.array(names, keys.type)
    places = pc.indices_nonzero(pc.is_in(keys, value_set=wanted))
    codes = pc.index_in(keys.take(places), value_set=wanted).to_numpy()
    of_maps = np.searchsorted(ends, places.to_numpy().astype(np.int64), side="right") - 1
    return {name: of_maps[codes == code] for code, name in enumerate(names)}


def without(maps: pa.MapArray, keys: pa.Array) -> pa.MapArray:
    """The maps without the entries of these keys."""
    ends, found, items = _flat(maps)
    kept = pc.invert(pc.is_in(found, value_set=keys))
    mask = pc.is_null(maps) if maps.null_count else None
    offsets = pa.array(_numbered(kept)[ends])
    return pa.MapArray.from_arrays(offsets, found.filter(kept), items.filter(kept), mask=mask)


def _flat(maps: pa.MapArray) -> tuple[npt.NDArray[np.int32], pa.Array, pa.Array]:
    """The keys and items of all maps, and where those of each end, a 0 first."""
    ends = maps.offsets.to_numpy()
    first, size = int(ends[0]), int(ends[-1] - ends[0])
    return ends - first, maps.keys.slice(first, size), maps.items.slice(first, size)


def _numbered(flags: pa.BooleanArray) -> npt.NDArray[np.int32]:
    """How many flags are set before each place, and in all."""
    numbers = np.zeros(len(flags) + 1, np.int32)
    np.cumsum(flags.to_numpy(zero_copy_only=False), out=numbers[1:])
    return numbers


def with_made(rows: pa.RecordBatch, spec: TableSpec) -> pa.RecordBatch:
    """The rows with those columns of the table that are made of others, and that they lack."""
    lacking = {c.name: c.made for c in spec.columns if c.made is not None and c.name not in rows.schema.names}
    for column in sorted({made.map for made in lacking.values()}):
        names = {name: made.entry for name, made in lacking.items() if made.map == column}
        found = entries(rows[column], list(names.values()))
        for name, entry in names.items():
            rows = rows.append_column(name, found[entry])
    return rows
