"""The plain half messages of a large run, decided by Spark's Python workers before anything else looks at it.

Workers count first: the sets of all keys travel to this process, which then knows exactly what is plain. The
others are left in files of their own and go through the rules' Columns as if nothing else had arrived. So a message
is plain only if nothing that any run knows bears on it but its one op.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from halfop.columns.key_sets import OffsetSet, all_of, combined, number
from halfop.planning.decide_plain import ENDED, HALF, HALVES_LEFT, OPS_LEFT, Halves, Keys, Ops, RunFacts, decide, leave
from halfop.planning.earlier import Earlier
from halfop.planning.key_scan import HalvesSeen, OpsSeen, halves_seen, ops_seen, topics
from halfop.planning.run import Run, Slice
from halfop.rules import halves as h
from halfop.warehouse.disk import DataFile, Listed
from halfop.warehouse.local import (
    frame_of_files,
    listed_between,
    staging_folder,
)
from halfop.warehouse.parquet import arrow_schema, searched
from halfop.warehouse.reading import are_few
from halfop.warehouse.rows import Kept
from halfop.warehouse.schema import table
from halfop.warehouse.splits import ANYWHERE, Split
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.workers import in_workers, ordered_parts

log = logging.getLogger("halfop.planning")

# A task reads the op files that name its half messages; of rows in no order, each task would read all.
_MOST_READ = 4


@dataclass(frozen=True)
class TakenMessages:
    """The part of a run that workers have taken: files of decisions, not part of the table yet; and the rows left."""

    files: Sequence[DataFile]
    messages: int
    halves: DataFrame
    ops: DataFrame

    def __str__(self) -> str:
        return f"{self.messages} half messages are plain"


class _LeftError(Exception):
    """All of a run is left to the rules' Columns, for this reason."""


def taken_by_workers(warehouse: Warehouse, run: Run, kept: Kept) -> TakenMessages | None:
    """Decides the plain half messages of a run; None if it is small, or if workers can decide nothing."""
    halves = _arrived(warehouse, run, "half_messages")
    if not halves or are_few(halves):
        return None
    ops = _arrived(warehouse, run, "op_messages")
    if not ops:
        return None
    try:
        return _taken(warehouse, run, kept, halves, ops)
    except _LeftError as why:
        log.info("workers decide nothing: %s", why)
        return None


def _arrived(warehouse: Warehouse, run: Run, name: str) -> list[Listed] | None:
    return listed_between(warehouse, name, run.inputs_before[name], run.inputs[name])


def _taken(
    warehouse: Warehouse, run: Run, kept: Kept, halves: Sequence[Listed], ops: Sequence[Listed]
) -> TakenMessages:
    _refuse_what_bears_on_all(warehouse, run)
    parts, op_parts = (
        ordered_parts(warehouse, files, warehouse.tasks_for(files), "broker_name", offset)
        for files, offset in ((halves, "queue_offset"), (ops, "half_offset"))
    )
    folder = staging_folder(warehouse, run.run_id)
    kept.callback(warehouse.files.remove, folder)
    about = _about(warehouse, run, folder)
    found = in_workers(warehouse, [Halves(about, part) for part in parts], topics)
    about = about._replace(deliverable=_deliverable(warehouse, set().union(*found)))
    seen = in_workers(warehouse, [Halves(about, part) for part in parts], halves_seen)
    of_parts = in_workers(warehouse, [Ops(about, part) for part in op_parts], ops_seen)
    named = [pair for part, each in zip(op_parts, of_parts, strict=True) for pair in zip(part, each, strict=True)]
    plain = _plain(Earlier(warehouse, run), about, seen, [each for _, each in named])
    left_columns = _left(any(each.properties for each in seen))
    about = about._replace(half_schema=arrow_schema(left_columns))
    shares = [_with_ops(Halves(about, *each), named) for each in _pairs(parts, (s.fit for s in seen), plain)]
    if sum(split.end - split.start for share in shares for split in share.ops) > _MOST_READ * sum(f.size for f in ops):
        raise _LeftError("op files name half messages in no order")
    left = [Ops(about, *each) for each in _pairs(op_parts, map(_named, of_parts), plain)]
    left = [share for share, each in zip(left, of_parts, strict=True) if _leaves(each, plain)]
    decided, others = in_workers(warehouse, shares, decide), in_workers(warehouse, left, leave)
    return TakenMessages(
        [replace(file, partition={"open": False}) for each in decided for file in each.get(ENDED, ())],
        number(plain),
        frame_of_files(warehouse, left_columns, [file for each in decided for file in each.get(HALVES_LEFT, ())]),
        frame_of_files(warehouse, table("op_messages").struct, [file for each in others for file in each]),
    )


def _pairs(parts: Sequence[list[Split]], keys: Iterable[Keys], plain: Keys) -> Iterator[tuple[list[Split], Keys]]:
    """Each part with those of its keys that are plain."""
    return ((part, combined(mine, plain, OffsetSet.both)) for part, mine in zip(parts, keys, strict=True))


def _named(seen: Iterable[OpsSeen]) -> Keys:
    return all_of(each.named for each in seen)[0]


def _leaves(seen: Iterable[OpsSeen], plain: Keys) -> bool:
    """Returns whether one of the ops ends no plain half message."""
    return any(each.unsound or combined(each.named, plain, OffsetSet.without) for each in seen)


def _with_ops(share: Halves, named: Sequence[tuple[Split, OpsSeen]]) -> Halves:
    """The task with the files of ops that name its plain half messages."""
    return replace(share, ops=[split for split, seen in named if combined(share.plain, seen.named, OffsetSet.both)])


def _plain(earlier: Earlier, about: RunFacts, halves: Sequence[HalvesSeen], ops: Sequence[OpsSeen]) -> Keys:
    """The half messages that workers may decide."""
    if any(seen.copies for seen in halves) or earlier.copies_are_open():
        raise _LeftError("copies count")
    places, place_met = all_of(seen.places for seen in ops)
    if place_met or any(seen.rows_twice for seen in ops) or earlier.op_rows_landed(places, about):
        raise _LeftError("op rows landed twice")
    keys, met = all_of(seen.keys for seen in halves)
    before = earlier.decided(keys)
    if before is None or before.others:
        raise _LeftError("messages of earlier runs landed again")
    named, named_twice = all_of(seen.named for seen in ops)
    barred = [met, named_twice, before.waiting, earlier.late(keys), *(seen.twice for seen in halves)]
    barred_by_ops, _ = all_of(seen.barred for seen in ops)
    fit = combined(all_of(seen.fit for seen in halves)[0], named, OffsetSet.both)
    plain = combined(fit, all_of([*barred, barred_by_ops])[0], OffsetSet.without)
    if not plain:
        raise _LeftError("no half message is plain")
    return plain


def _refuse_what_bears_on_all(warehouse: Warehouse, run: Run) -> None:
    if run.slice.ops_repeat:
        raise _LeftError("a slice of a backlog with repeated ops")
    if not warehouse.takes_files("decisions"):
        raise _LeftError("Spark must write the decisions")
    for name in ("resumes", "broker_discards"):
        before, upto = run.inputs_before[name], run.inputs[name]
        if before != upto and not warehouse.landed_between(name, before, upto).isEmpty():
            raise _LeftError(f"{name} arrived")


def _about(warehouse: Warehouse, run: Run, folder: str) -> RunFacts:
    schemas = {name: arrow_schema(table(name).struct) for name in ("op_messages", "decisions")}
    ended, left = (warehouse.files.qualified(path) for path in (f"{warehouse.path('decisions')}/open=false", folder))
    low, high = _offsets(run.slice)
    return RunFacts(
        run_id=run.run_id,
        now=run.now_micros,
        low=low,
        high=high,
        half_schema=arrow_schema(_left(True)),
        op_schema=schemas["op_messages"],
        decisions=pa.schema([field for field in schemas["decisions"] if field.name != "open"]),
        deliverable=(),
        folders={ENDED: ended, HALVES_LEFT: left, OPS_LEFT: left},
        searched=searched(table("decisions")),
    )


def _left(properties: bool) -> StructType:
    """The columns of half messages that are left: properties, the longest to read, only if others need them."""
    columns = {*HALF, "properties"} if properties else {*HALF}
    return StructType([field for field in table("half_messages").struct if field.name in columns])


def _offsets(part: Slice) -> tuple[int, int]:
    low, high = part.from_offset, part.to_offset
    return ANYWHERE[0] if low is None else low, ANYWHERE[1] if high is None else high - 1


def _deliverable(warehouse: Warehouse, topics: Iterable[str | None]) -> list[str]:
    """The real topics to which the rules let messages be delivered."""
    rows = warehouse.frame([(topic, 0) for topic in topics], "real_topic STRING, real_queue_id INT")
    return [row["real_topic"] for row in rows.where(h.undeliverable().isNull()).select("real_topic").collect()]
