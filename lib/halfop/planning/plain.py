"""The plain half messages of a large run, as Spark's Python workers see them, and what their tasks are about.

Plain is a deliverable half message without a mark that lands once and that one op without a header names: it ends as
the op says, whatever else the rules hold (lines 2 and 3). All others are left to the rules' own Columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfop.columns.by_key import Queue
from halfop.columns.key_sets import OffsetSet
from halfop.rocketmq import names
from halfop.rocketmq.names import END_TAG
from halfop.rules.halves import AS_LANDED
from halfop.warehouse.maps import entries, owners
from halfop.warehouse.splits import ANYWHERE, Split

ENDED, HALVES_LEFT, OPS_LEFT = "ended", "halves_left", "ops_left"  # the kinds of files that tasks write
HALF = [*AS_LANDED, "landed_check_times", "landed_prepared_offset", "landed_wait", "landed_at"]
HEADER = ["producer_group", "tran_state_table_offset", "commit_log_offset", "uniq_key"]
_MARKS = {"landed_check_times": names.CHECK_TIMES, "landed_prepared_offset": names.PREPARED_QUEUE_OFFSET}
_PROPERTIES = {"check_immunity": names.CHECK_IMMUNITY, "landed_wait": names.WAIT, **_MARKS}
Mask = npt.NDArray[np.bool_]
Keys = Mapping[Queue, OffsetSet]


class About(NamedTuple):
    """The facts about a run that its tasks need. A slice takes half offsets from `low` to `high`, both included."""

    run_id: int
    now: int
    low: int
    high: int
    half_schema: pa.Schema
    op_schema: pa.Schema
    decisions: pa.Schema
    deliverable: Sequence[str]
    folders: Mapping[str, str]
    searched: Sequence[str]  # columns of decisions whose bounds are kept


@dataclass(frozen=True)
class Halves:
    """Files of half messages that one task reads; `plain` are those that it decides, `ops` the files that name them."""

    about: About
    splits: Sequence[Split]
    plain: Keys = field(default_factory=dict)
    ops: Sequence[Split] = ()


@dataclass(frozen=True)
class Ops:
    """Files of ops that one task reads; it leaves those that do not end a half message of `plain`."""

    about: About
    splits: Sequence[Split]
    plain: Keys = field(default_factory=dict)


def sound(ops: pa.RecordBatch) -> Mask:
    """Whether each op names a half offset and has an outcome; only such ops end anything."""
    ends = pc.is_in(ops["outcome"].cast(pa.string()), value_set=pa.array(["COMMIT", "ROLLBACK"]))
    named = pc.greater_equal(ops["half_offset"], 0)
    return true(pc.and_(pc.and_(named, ends), pc.equal(ops["tag"].cast(pa.string()), END_TAG)))


def without_header(ops: pa.RecordBatch) -> Mask:
    """Whether each op has no header to check."""
    bare = np.ones(len(ops), bool)
    for name in HEADER:
        bare &= true(pc.is_null(ops[name]))
    return bare


def in_slice(batch: pa.RecordBatch, about: About, offset: str = "queue_offset") -> pa.RecordBatch:
    """Rows without an offset belong to the first slice."""
    if (about.low, about.high) == ANYWHERE:
        return batch
    mine = pc.and_(pc.greater_equal(batch[offset], about.low), pc.less_equal(batch[offset], about.high))
    return batch.filter(pc.fill_null(mine, about.low == ANYWHERE[0]))


def fit(halves: pa.RecordBatch, deliverable: Sequence[str]) -> Mask:
    """Whether each half message is deliverable."""
    fit = true(pc.is_in(halves["real_topic"].cast(pa.string()), value_set=pa.array(deliverable, pa.string())))
    return fit & true(pc.greater_equal(halves["real_queue_id"], 0))


def only_in_properties(halves: pa.RecordBatch) -> dict[str, Mask]:
    """For each column, the rows in which it is null though the properties have it: a user's pipeline filled them.

    For `landed_wait` only rows that escaped: nearly all producers send WAIT=true.
    """
    null = {column: true(pc.is_null(halves[column])) for column in _PROPERTIES}
    columns = {name: column for column, name in _PROPERTIES.items() if np.any(null[column])}
    found = {column: np.zeros(len(halves), bool) for column in _PROPERTIES}
    for name, rows in owners(halves["properties"], [*columns]).items():
        found[columns[name]][rows] = True
        found[columns[name]] &= null[columns[name]]
    waiting = np.flatnonzero(found["landed_wait"])
    wait = entries(halves["properties"].take(pa.array(waiting)), [names.WAIT])[names.WAIT]
    found["landed_wait"][waiting] = true(pc.equal(wait, "false"))
    return found


def marked(halves: pa.RecordBatch, only: Mapping[str, Mask]) -> Mask:
    """Whether each half message carries a mark of a check or of an escape, in columns or properties."""
    marked = only["landed_wait"] | true(pc.equal(halves["landed_wait"], "false"))
    for name in _MARKS:
        marked |= only[name] | true(pc.not_equal(halves[name], ""))
    return marked


def some_columns(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in columns])


def true(column: pa.Array) -> Mask:
    """Null is False."""
    found: Mask = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return found
