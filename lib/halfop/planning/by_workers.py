"""The plain half messages of a large run, decided by Spark's Python workers before anything else looks at it.

Workers count first: the sets of all keys travel to this process, which then knows exactly what is plain. The
others are left in files of their own and go through the rules' Columns as if nothing else had arrived. So a message
is plain only if nothing that any run knows bears on it but its one op.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from halfop.columns.key_sets import NOWHERE, OffsetSet, all_of, combined, number
from halfop.columns.keys import Queue, in_micros
from halfop.planning.counts import OffsetRange, covers
from halfop.planning.decide_plain import ENDED, HALF, HALVES_LEFT, OPS_LEFT, Halves, Keys, Ops, RunFacts, decide, leave
from halfop.planning.key_scan import (
    Decided,
    Decisions,
    HalvesSeen,
    OpPlace,
    OpsSeen,
    decided_keys,
    halves_seen,
    op_offsets,
    ops_seen,
    topics,
)
from halfop.planning.run import Run, Slice, clocks, known_before
from halfop.rules import halves as h
from halfop.warehouse.disk import DataFile, Listed
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.parquet import arrow_schema, searched
from halfop.warehouse.reading import are_few
from halfop.warehouse.rows import Kept
from halfop.warehouse.schema import table
from halfop.warehouse.splits import ANYWHERE, Split, splits_of
from halfop.warehouse.table_files import (
    frame_of_files,
    listed_between,
    listed_files,
    staging_folder,
)
from halfop.warehouse.tables import NO_TABLE, Warehouse
from halfop.warehouse.where import all_of as all_conditions
from halfop.warehouse.where import at_least, equal, is_set
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


def taken_by_workers(warehouse: KernelWarehouse, run: Run, kept: Kept) -> TakenMessages | None:
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


def _arrived(warehouse: KernelWarehouse, run: Run, name: str) -> list[Listed] | None:
    return listed_between(warehouse, name, run.inputs_before[name], run.inputs[name])


def _taken(
    warehouse: KernelWarehouse, run: Run, kept: Kept, halves: Sequence[Listed], ops: Sequence[Listed]
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
    named_by = (all_of(each.named for each in seen)[0] for seen in of_parts)
    left = [Ops(about, *each) for each in _pairs(op_parts, named_by, plain)]
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


def _refuse_what_bears_on_all(warehouse: KernelWarehouse, run: Run) -> None:
    if run.slice.ops_repeat:
        raise _LeftError("a slice of a backlog with repeated ops")
    if not warehouse.takes_files("decisions"):
        raise _LeftError("Spark must write the decisions")
    for name in ("resumes", "broker_discards"):
        before, upto = run.inputs_before[name], run.inputs[name]
        if before != upto and not warehouse.landed_between(name, before, upto).isEmpty():
            raise _LeftError(f"{name} arrived")


def _about(warehouse: KernelWarehouse, run: Run, folder: str) -> RunFacts:
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


def _deliverable(warehouse: KernelWarehouse, topics: Iterable[str | None]) -> list[str]:
    """The real topics to which the rules let messages be delivered."""
    rows = warehouse.frame([(topic, 0) for topic in topics], "real_topic STRING, real_queue_id INT")
    return [row["real_topic"] for row in rows.where(h.undeliverable().isNull()).select("real_topic").collect()]


@dataclass(frozen=True)
class Earlier:
    """Earlier runs of a warehouse, as a run finds them."""

    warehouse: KernelWarehouse
    run: Run

    def copies_are_open(self) -> bool:
        """Returns whether the open set holds copies, or messages that have some, or those may arrive of what ended."""
        if self.run.first:
            return False
        before = all_conditions(equal("open", True), equal("run_id", self.run.run_id - 1))
        rows = self.warehouse.read("decisions", self.run.inputs["decisions"], before)
        some = reduce(lambda a, b: a | b, [F.col(c).isNotNull() for c in ("copies", "orphan", "escaped_key")])
        return not rows.where(some).isEmpty() or escapes_ended(self.warehouse, self.run)

    def decided(self, keys: Keys) -> Decided | None:
        """Those of the keys that earlier runs knew; None if Spark alone can read the decisions."""
        near = covers(_ranges(keys), "queue_offset")
        if self.run.first or near is None:
            return Decided({}, {})
        files = listed_files(self.warehouse, "decisions", self.run.inputs["decisions"], near)
        if files is None:
            return None
        shares = [Decisions(part) for part in splits_of(files, self.warehouse.tasks_for(files))]
        found = in_workers(self.warehouse, shares, decided_keys)
        known = (all_of(each.waiting for each in found)[0], all_of(each.others for each in found)[0])
        return Decided(*(combined(keys, each, OffsetSet.both) for each in known))

    def late(self, keys: Keys) -> Keys:
        """Those of the keys that lie below what had landed before; of a queue of which nobody knows that, all."""
        before = self.run.inputs_before
        if self.run.first or before["half_messages"] == NO_TABLE:
            return {}
        progress = known_before(self.warehouse, self.run)
        if progress is None:
            return keys
        landed = {(clock.broker_name, clock.queue_id): clock.next_offset for clock in clocks(progress)}
        late = {queue: self._late(offsets, queue, landed) for queue, offsets in keys.items()}
        return {queue: offsets for queue, offsets in late.items() if len(offsets.blocks)}

    def _late(self, offsets: OffsetSet, queue: Queue, landed: Mapping[Queue, int | None]) -> OffsetSet:
        next_offset = landed.get(queue)
        if next_offset is not None:
            return offsets.below(next_offset)
        return offsets if any(queue[0] == broker for broker, _ in landed) or self._knows(queue[0]) else NOWHERE

    def _knows(self, broker: str) -> bool:
        """Returns whether an earlier run may have decided about the broker's messages."""
        files = listed_files(self.warehouse, "decisions", self.run.inputs["decisions"], equal("broker_name", broker))
        return files is None or bool(files)

    def op_rows_landed(self, places: Mapping[OpPlace, OffsetSet], about: RunFacts) -> bool:
        """Returns whether one of the op rows had landed before; true also if nobody can know."""
        name, before, upto = "op_messages", self.run.inputs_before["op_messages"], self.run.inputs["op_messages"]
        near = covers([OffsetRange(*queue, *span) for queue, span in op_offsets(places)], "queue_offset")
        if self.run.first or before == NO_TABLE or near is None:
            return False
        if self.warehouse.replaced(name, before, upto):
            return True
        files = listed_files(self.warehouse, name, before, near)
        if files is None:
            return True
        everywhere = about._replace(low=ANYWHERE[0], high=ANYWHERE[1])
        shares = [Ops(everywhere, part) for part in splits_of(files, self.warehouse.tasks_for(files))]
        older = [seen.places for each in in_workers(self.warehouse, shares, ops_seen) for seen in each]
        return bool(combined(places, all_of(older)[0], OffsetSet.both))


def _ranges(keys: Keys) -> list[OffsetRange]:
    return [OffsetRange(*queue, *offsets.span) for queue, offsets in keys.items()]


def escapes_ended(warehouse: Warehouse, run: Run) -> bool:
    """Returns whether messages have ended that may have escaped from a broker whose half message has not landed."""
    if run.first:
        return False
    since = run.now_micros - in_micros(run.settings.rules.file_reserved_time)
    ended = all_conditions(equal("open", False), is_set("escaped_key"), at_least("born_timestamp", since))
    return not warehouse.read("decisions", run.inputs["decisions"], ended).isEmpty()
