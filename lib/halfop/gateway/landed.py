"""What the warehouse surely has of the log: every message of it, in files that a power cut leaves as they are.

A gateway removes a file of its log only then: what it has acknowledged would be nowhere otherwise. `landing_progress`
alone shows no more than that a landing was there: a disk without sync can lose what it wrote before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from halfop.frame.errors import HalfopError
from halfop.warehouse.damage import DamagedTable, TableOnDisk
from halfop.warehouse.disk import LocalDisk
from halfop.warehouse.durable import make_durable

_TRIMMED = "halfop.trimmedBefore"  # a property that `maintain` sets


def refuse_missing(table: DeltaTable, broker: str, queue: int, span: tuple[int, int]) -> None:
    """Raises HalfopError unless the table has a row for each offset of the queue: `span` is the first, and the end.

    `maintain` trims what landed first: then what is before the first row that is left may lack.
    """
    first, end = span
    offset, mine = ds.field("queue_offset"), (ds.field("broker_name") == broker) & (ds.field("queue_id") == queue)
    found = _offsets(table, mine & (offset >= first) & (offset < end))
    if len(found) < end - first and _TRIMMED in table.metadata().configuration:
        left = pc.min(_offsets(table, mine)).as_py()
        first = first if left is None else min(max(first, left), end)
    lacking = end - first - len(found)
    if lacking:
        problem = f"{lacking} messages of {broker} with offsets {first} to {end - 1} of queue {queue} are not there"
        raise HalfopError(
            f"{table.table_uri}: {problem}, though landing_progress has passed them: no file of the log is removed. "
            f"Land them again: land broker … --again {broker}/{queue}/{first}-{end - 1}"
        )


def _offsets(table: DeltaTable, rows: ds.Expression) -> pa.ChunkedArray:
    found = table.to_pyarrow_dataset().to_table(columns=["queue_offset"], filter=rows, use_threads=False)
    return pc.unique(found["queue_offset"])


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
