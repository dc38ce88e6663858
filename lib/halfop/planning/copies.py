"""Rows of earlier runs that may belong to half messages which arrived: out of their order, or as copies of others.

Copies are found by their kin: what the copies of one message agree in. Each step here is joined several times over by
the next ones, so each is computed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, QUEUE, present
from halfop.planning.arrivals import Arrivals, arrived_ops
from halfop.planning.by_workers import escapes_ended
from halfop.planning.counts import between_values, covers, ranges_of
from halfop.planning.run import BROKERS_OWN, Run, clocks, known_before, sources
from halfop.rules import halves as h
from halfop.rules import ops as o
from halfop.rules import transactions as t
from halfop.rules.transactions import KIN, kin
from halfop.warehouse.progress import GATEWAY
from halfop.warehouse.rows import Kept
from halfop.warehouse.tables import NO_TABLE, Selected, Warehouse
from halfop.warehouse.where import Where, all_of, any_of, equal, is_set

_NAMING = ("final_messages", "broker_discards")
_LANDED = ("half_messages", *_NAMING)
_IN_ORDER = (*BROKERS_OWN, GATEWAY)  # sources that land half messages first


def arrived_late(arrivals: Arrivals) -> bool:
    """Returns whether rows that earlier runs have read may name half messages that arrived; true also if nobody knows.

    They may if half messages arrived below what had landed before, or if their source lands in any order.
    """
    before = arrivals.run.inputs_before
    if arrivals.run.first or not (arrivals.counts.halves.ranges and any(before[name] != NO_TABLE for name in _LANDED)):
        return False
    progress = known_before(arrivals.warehouse, arrivals.run)
    if progress is None:
        return True
    landed = {(clock.broker_name, clock.queue_id): clock.next_offset for clock in clocks(progress)}
    lows = {(each.broker_name, each.queue_id): each.low for each in arrivals.counts.halves.ranges}
    # of a queue whose half messages are the first, ops and final messages may have landed before them
    offsets = [(landed.get(queue), low) for queue, low in lows.items()]
    below = any(next_offset is None or low < next_offset for next_offset, low in offsets)
    return below or _named_in_no_order(arrivals, sources(progress))


def _named_in_no_order(arrivals: Arrivals, source_of: Mapping[str, str | None]) -> bool:
    """Returns whether final messages or discard records may have landed before their half messages.

    Files and a user's own pipeline may land them so, and no run keeps them waiting as it does ops.
    """
    if all(arrivals.run.inputs_before[name] == NO_TABLE for name in _NAMING):
        return False
    return any(source_of.get(each.broker_name) not in _IN_ORDER for each in arrivals.counts.halves.ranges)


class LookedBack(Counter[str]):
    """Counts the files of each table that a run had to look back into."""

    def read(self, name: str, found: Selected) -> DataFrame | None:
        """The rows, whose files are counted; None if no file can hold one."""
        self[name] += found.files or 0
        return found.rows if found.files else None


def ops_before(arrivals: Arrivals, looked_back: LookedBack) -> DataFrame | None:
    """Sound ops of earlier landings, under the key of the arrived half message that each names; None if none does.

    An earlier run may have rejected them because their half message had not landed, or was faulty.
    """
    halves = arrivals.halves.select(*QUEUE, F.col("queue_offset").alias("half_offset"))
    found = _older(arrivals, "op_messages", covers(arrivals.counts.halves.ranges, "half_offset"), looked_back)
    if found is None:
        return None
    naming = arrivals.kept.computed(o.landed(found).join(halves.distinct(), halves.columns, "left_semi"))
    places = ranges_of(naming.withColumnRenamed("op_queue_offset", "queue_offset"), "queue_offset")
    near = _older(arrivals, "op_messages", covers(places, "queue_offset"), looked_back)
    if near is None:
        return None
    same = o.landed(near).join(naming.select(o.OP_KEY).distinct(), o.OP_KEY, "left_semi")
    return o.as_named(o.once_per_row(naming, same))


def older(arrivals: Arrivals, name: str, values: DataFrame, looked_back: LookedBack) -> DataFrame | None:
    """Rows of earlier landings whose column of that name lies among these values; None if there are none."""
    if arrivals.run.inputs_before[name] == NO_TABLE:
        return None
    return _older(arrivals, name, between_values(values, *values.columns), looked_back)


def _older(arrivals: Arrivals, name: str, near: Where | None, looked_back: LookedBack) -> DataFrame | None:
    before, upto = arrivals.run.inputs_before[name], arrivals.run.inputs[name]
    if near is None or before == NO_TABLE:
        return None
    return looked_back.read(name, arrivals.warehouse.landed_until(name, before, upto, near))


# ---- copies, and what a real broker has discarded ----


@dataclass(frozen=True)
class Copies:
    """Half messages that may be one transaction with others, apart from all others of the run."""

    members: DataFrame  # at hand and looked up, one row a key
    others: DataFrame  # each a transaction of its own
    discards: DataFrame  # the broker's discard records by kin
    any_discards: bool
    spent: DataFrame | None  # by kin, the half keys that earlier runs gave up for a discard record


@dataclass(frozen=True)
class ClosedDecisions:
    """Looks up closed decisions by the time when their messages were born."""

    arrivals: Arrivals
    looked_back: LookedBack

    def among(self, wanted: Column, born: DataFrame, also: Where | None = None) -> DataFrame | None:
        """Closed decisions with their kin on messages that were born when those were; None if there can be none."""
        near = None if self.arrivals.run.first else between_values(born, "born_timestamp")
        if near is None:
            return None
        near = near if also is None else all_of(near, also)
        rows = self.looked_back.read("decisions", self.arrivals.closed_decisions(near))
        return None if rows is None else rows.where(wanted).withColumn(KIN, kin())


def copies_arrived(warehouse: Warehouse, run: Run) -> bool:
    """Returns whether half messages of a backlog may be copies of others, which lie anywhere among the others.

    Or whether what arrived names such copies of earlier runs.
    """
    before, upto = run.inputs_before, run.inputs
    halves = warehouse.landed_between("half_messages", before["half_messages"], upto["half_messages"])
    if not halves.where(h.carries_a_mark(halves) | h.may_have_escaped(halves)).isEmpty():
        return True
    discards = warehouse.landed_between("broker_discards", before["broker_discards"], upto["broker_discards"])
    carried = all_of(equal("open", True), equal("run_id", run.run_id - 1))
    opened = warehouse.read("decisions", upto["decisions"], carried).where(
        "copies IS NOT NULL OR orphan IS NOT NULL OR escaped_key IS NOT NULL"
    )
    found = not (discards.isEmpty() and opened.isEmpty()) or escapes_ended(warehouse, run)
    return found or _closed_copies_named(warehouse, run)


def _closed_copies_named(warehouse: Warehouse, run: Run) -> bool:
    """Returns whether ops, resumes or final messages arrived for a transaction of several copies that is not open."""
    if run.first:
        return False
    before, upto = run.inputs_before, run.inputs
    finals, resumes = (
        warehouse.landed_between(name, before[name], upto[name]) for name in ("final_messages", "resumes")
    )
    places = finals.select("broker_name", F.col("prepared_transaction_offset").alias("commit_log_offset"))
    keys = o.as_named(arrived_ops(warehouse, run)).select(HALF_KEY).unionByName(resumes.select(HALF_KEY))
    near = [covers(ranges_of(keys, "queue_offset"), "queue_offset"), between_values(places, "commit_log_offset")]
    wanted = [where for where in near if where is not None]
    if not wanted:
        return False
    closed = warehouse.read("decisions", upto["decisions"], all_of(equal("open", False), any_of(wanted)))
    several = closed.where(F.col("copies").isNotNull() | (F.col("decision") == "SUPERSEDED"))
    named = [several.join(rows, rows.columns, "left_semi") for rows in (keys, places)]
    return not all(rows.isEmpty() for rows in named)


def copies(
    arrivals: Arrivals, halves: DataFrame, late: bool, looked_up: bool, looked_back: LookedBack
) -> Copies | None:
    """The run's transactions of several half messages; None if there are none.

    `late`: half messages arrived out of their order; `looked_up`: `halves` hold decisions of earlier runs.
    """
    kept, closed = arrivals.kept, ClosedDecisions(arrivals, looked_back)
    discards = _discards(arrivals, late, looked_back)
    orphans = _orphans(arrivals, closed, late)
    rows = halves.withColumn(KIN, kin())
    rows = kept.computed(rows) if looked_up else rows
    taken_over = _taken_over(rows, closed, kept) if looked_up else None
    others = [each for each in (discards, orphans, taken_over) if each is not None]
    if not (arrivals.counts.copies or others or (looked_up and _any_superseded(rows))):
        return None
    rows = rows if looked_up else kept.computed(rows)
    found = [rows.where(h.put_back()).select(KIN), *[each.select(KIN) for each in others]]
    kins = kept.computed(reduce(DataFrame.unionByName, found).distinct())
    spent = _spent(discards, closed) if late and discards is not None else None
    return Copies(
        members=_members(rows, kins, orphans, closed),
        others=rows.join(kins, KIN, "left_anti").drop(KIN),
        discards=_no_discards(arrivals) if discards is None else discards,
        any_discards=discards is not None,
        spent=spent,
    )


def _any_superseded(rows: DataFrame) -> bool:
    return not rows.where(F.col("state") == h.SUPERSEDED).isEmpty()


def _members(rows: DataFrame, kins: DataFrame, orphans: DataFrame | None, closed: ClosedDecisions) -> DataFrame:
    """The half messages of these kins, at hand and looked up."""
    here = rows.join(kins, KIN, "left_semi")
    earlier = _earlier_members(here, orphans, closed)
    here = here.drop(KIN)
    return here if earlier is None else here.unionByName(earlier.join(here, HALF_KEY, "left_anti"))


def _orphans(arrivals: Arrivals, closed: ClosedDecisions, late: bool) -> DataFrame | None:
    """The kin of ended copies whose original may land only now: in a queue out of its order, or on another broker."""
    born, escaped = arrivals.halves.select("born_timestamp"), F.col("escaped_key").isNotNull()
    if late:
        found = closed.among(F.col("orphan").isNotNull() | escaped, born)
    else:
        found = closed.among(escaped, born, is_set("escaped_key")) if arrivals.several_brokers else None
    if found is None:
        return None
    return found.select(KIN).join(arrivals.halves.select(kin().alias(KIN)), KIN, "left_semi")


def _taken_over(rows: DataFrame, closed: ClosedDecisions, kept: Kept) -> DataFrame | None:
    """The kin of discarded messages whose transactions the broker has resumed, and that have ended since."""
    given_up = rows.where(F.col("state") == h.DISCARDED)
    ended = closed.among(F.col("copies").isNotNull(), given_up.select("born_timestamp"))
    if ended is None:
        return None
    newer = ended.select(KIN, F.struct(*HALF_KEY, h.read_copies().alias("copies")).alias("newer"))
    met = given_up.select(KIN, F.struct(*HALF_KEY).alias("older")).join(newer, KIN)
    found = kept.computed(met.where(t.takes_over(F.col("newer"), F.col("older"))).select(KIN).distinct())
    return None if found.isEmpty() else found


def _earlier_members(members: DataFrame, orphans: DataFrame | None, closed: ClosedDecisions) -> DataFrame | None:
    """Decisions of earlier runs on transactions of which neither an original nor an open copy is at hand."""
    state, marked = F.col("state"), F.col("marked")
    is_head, is_open = (state == h.NEW) & ~marked & ~F.col("escaped"), state == h.OPEN
    # a copy belongs to the nearest head below it, so the lowest of a queue must be one, or know of one
    own = F.filter(
        h.own_copies(),
        lambda copy: (copy["broker_name"] == F.col("broker_name")) & (copy["queue_id"] == F.col("queue_id")),
    )
    lowest = F.array_min(F.transform(own, lambda copy: copy["queue_offset"]))
    # only the row that stands for a superseded one shows that it is not a twin's
    at_hand = (F.min_by(is_head | is_open, lowest) & ~F.bool_or(state == h.SUPERSEDED)).alias("at_hand")
    alone = members.groupBy(KIN, *QUEUE).agg(at_hand).where("NOT at_hand").select(KIN).distinct()
    alone = alone if orphans is None else alone.unionByName(orphans)
    found = closed.among(F.col("decision") != "REJECT", alone.select(f"{KIN}.born_timestamp"))
    return None if found is None else h.nothing_else(h.closed(found.join(alone, KIN, "left_semi").drop(KIN)))


# ---- the broker's own discards ----


def _discards(arrivals: Arrivals, late: bool, looked_back: LookedBack) -> DataFrame | None:
    """Discard records that this run is the first to see, and older ones that may be of what arrives late, by kin."""
    name, run = "broker_discards", arrivals.run
    if run.inputs[name] == NO_TABLE:  # only real brokers fill this table
        return None
    arrived = arrivals.warehouse.landed_between(name, run.inputs_before[name], run.inputs[name])
    born = arrived.select("born_timestamp").unionByName(arrivals.halves.select("born_timestamp"))
    earlier = older(arrivals, name, born, looked_back) if late else None
    rows = arrived.withColumn("seen", F.lit(False))
    rows = rows if earlier is None else rows.unionByName(earlier.withColumn("seen", F.lit(True)))
    rows = rows.withColumns({c: present(F.col(c)) for c in ("uniq_key", "producer_group")})
    named = rows.where(F.col("uniq_key").isNotNull()).groupBy(kin().alias(KIN), *HALF_KEY)
    found = named.agg(F.min("store_timestamp").alias("discarded_at"), F.max("seen").alias("seen"))
    records = arrivals.kept.computed(found.select(KIN, "discarded_at", "seen"))
    return None if records.isEmpty() else records


def _no_discards(arrivals: Arrivals) -> DataFrame:
    rows = arrivals.halves.select(
        kin().alias(KIN), F.col("store_timestamp").alias("discarded_at"), F.lit(False).alias("seen")
    )
    return rows.limit(0)


def _spent(discards: DataFrame, closed: ClosedDecisions) -> DataFrame | None:
    """Half keys that earlier runs have given up for discard records of a message, or of its twins."""
    by_record = (F.col("decision") == "DISCARD") & (F.col("reason") == "BROKER_DISCARDED")
    found = closed.among(by_record, discards.select(f"{KIN}.born_timestamp"))
    return None if found is None else found.groupBy(KIN).agg(F.collect_list(F.struct(*HALF_KEY)).alias("spent"))
