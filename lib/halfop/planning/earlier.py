"""The knowledge of earlier runs about the half messages and op rows that have arrived, as sets of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import functions as F

from halfop.columns.key_sets import NOWHERE, OffsetSet, all_of, combined
from halfop.columns.keys import Queue, in_micros
from halfop.planning.clocks import clocks, known_before
from halfop.planning.counts import OffsetRange, covers
from halfop.planning.decide_plain import Keys, Ops, RunFacts
from halfop.planning.key_scan import Decided, Decisions, OpPlace, decided_keys, op_offsets, ops_seen
from halfop.planning.run import Run
from halfop.warehouse.local import listed_files
from halfop.warehouse.splits import ANYWHERE, splits_of
from halfop.warehouse.tables import NO_TABLE, Warehouse
from halfop.warehouse.where import all_of as all_conditions
from halfop.warehouse.where import at_least, equal, is_set
from halfop.warehouse.workers import in_workers


@dataclass(frozen=True)
class Earlier:
    """Earlier runs of a warehouse, as a run finds them."""

    warehouse: Warehouse
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
        if self.warehouse.log.takes_files_away(self.warehouse.path(name), before, upto):
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
