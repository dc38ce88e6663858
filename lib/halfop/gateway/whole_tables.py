"""What the tables surely have: every message, in files that a power cut leaves as they are.

A gateway removes a file of its log only then: what it has acknowledged would be nowhere otherwise. landing_progress
alone shows only that a landing was there: a disk without sync can lose what it wrote before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from halfop.frame.errors import HalfopError
from halfop.frame.trouble import make_durable
from halfop.warehouse.damage import DamagedTable, TableOnDisk
from halfop.warehouse.disk import LocalDisk

_TRIMMED = "halfop.trimmedBefore"  # a property that `maintain` sets
_NO_END = 2**63 - 1


class LogLife(NamedTuple):
    """A life of the gateway's log: in one queue its messages are those from an offset on, up to a later life's."""

    name: str
    number: int
    since: int


def refuse_missing(
    table: DeltaTable, lives: Sequence[LogLife], queue: int, span: tuple[int, int], erased: DeltaTable | None = None
) -> None:
    """Raises HalfopError unless the table has a row for each offset of the queue: `span` is the first, and the end.

    Half messages may lack that are in `erased`, the table of what somebody has erased.

    `lives` are all, in their order: a store that was put back begins as an earlier life of it has landed.
    `maintain` trims what landed first: then what is before the first row that is left may lack.
    """
    first, end = span
    offset, mine = ds.field("queue_offset"), ds.field("queue_id") == queue
    between = mine & (offset >= first) & (offset < end)
    found = _offsets(table, lives, between)
    if erased is not None:
        gone = _offsets(erased, lives, between & (ds.field("table_name") == "half_messages"))
        found = pc.unique(pa.concat_arrays([found, gone]))
    if len(found) < end - first and _TRIMMED in table.metadata().configuration:
        left = pc.min(_offsets(table, lives, mine)).as_py()
        first = first if left is None else min(max(first, left), end)
    lacking = end - first - len(found)
    if lacking:
        parts = [(life.name, max(low, first), min(high, end)) for life, low, high in _parts(lives)]
        again = " ".join(f"{name}/{queue}/{low}-{high - 1}" for name, low, high in parts if low < high)
        of = f"{lives[-1].name} with offsets {first} to {end - 1} of queue {queue}"
        raise HalfopError(
            f"{table.table_uri}: {lacking} messages of {of} are not there, though landing_progress has passed them: no "
            f"file of the log is removed. Land them again: land broker … --again {again}"
        )


def _parts(lives: Sequence[LogLife]) -> list[tuple[LogLife, int, int]]:
    """The offsets of each life that are its own: the first, and the end."""
    ends = [min([_NO_END, *(later.since for later in lives[at + 1 :])]) for at in range(len(lives))]
    return [(life, life.since, end) for life, end in zip(lives, ends, strict=True) if life.since < end]


def _own(rows: pa.Table, lives: Sequence[LogLife]) -> pa.Table:
    """Rows of the lives that their offsets are of. An op that names an earlier life's message has that one's name."""
    numbers = rows["life"] if "life" in rows.column_names else pa.nulls(len(rows), pa.int32())
    mine = pa.nulls(len(rows), pa.bool_()).fill_null(False)
    for life, low, high in _parts(lives):
        of_name = pc.and_(pc.is_null(numbers), pc.equal(rows["broker_name"], life.name))
        own = pc.or_kleene(of_name, pc.fill_null(pc.equal(numbers, life.number), False))
        there = pc.and_(pc.greater_equal(rows["queue_offset"], low), pc.less(rows["queue_offset"], high))
        mine = pc.or_(mine, pc.and_(own, there))
    return rows.filter(mine)


def _offsets(table: DeltaTable, lives: Sequence[LogLife], rows: ds.Expression) -> pa.Array:
    known = {field.name for field in table.schema().fields}
    columns = [name for name in ("broker_name", "queue_offset", "life") if name in known]
    wanted = ds.field("broker_name").isin([life.name for life in lives]) & rows
    found = table.to_pyarrow_dataset().to_table(columns=columns, filter=wanted, use_threads=False)
    return pc.unique(_own(found, lives)["queue_offset"])


class Durable:
    """Makes tables on a local disk durable, whoever has written them. Each file is looked at and synced once."""

    def __init__(self) -> None:
        self._done: dict[str, set[str]] = {}

    def make(self, folder: str) -> None:
        """Syncs a table's data files, then its log's, then folders. Raises DamagedTable if one is not whole."""
        on_disk, done = TableOnDisk(LocalDisk(), folder), self._done.get(folder, set())
        data = {on_disk.whole(name): (name, sizes) for name, sizes in on_disk.live().items()}
        log = list(_since_checkpoint(on_disk))
        commits = on_disk.of_commits(on_disk.last_checkpoint(), max(on_disk.commits, default=-1))
        added = dict(each for path, each in data.items() if path not in done)
        for damage in chain(commits, on_disk.of_files(added)):
            raise DamagedTable(damage)
        make_durable(path for path in (*data, *log) if path not in done)
        self._done[folder] = {*data, *log}


def _since_checkpoint(on_disk: TableOnDisk) -> Iterator[str]:
    """The files of the log's last checkpoint, and the commits since."""
    last = on_disk.last_checkpoint()
    yield from on_disk.checkpoints.get(last, ())
    yield from (on_disk.commit_path(version) for version in on_disk.commits if version >= last)
