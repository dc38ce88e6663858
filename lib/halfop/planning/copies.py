"""What only real brokers bring into a run: put-back copies, their own discards, and final messages."""

from __future__ import annotations

from functools import cached_property, reduce
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.columns.values import present
from halfop.planning.clocks import clocks
from halfop.planning.run import Run
from halfop.rules import halves as h
from halfop.rules import ops as o
from halfop.rules import transactions
from halfop.rules.cases import with_resumes
from halfop.rules.transactions import KIN, kin
from halfop.rules.words import own_immunity
from halfop.warehouse.tables import NO_TABLE, Warehouse

if TYPE_CHECKING:
    from halfop.planning.inputs import Inputs


def arrived_marks(warehouse: Warehouse, run: Run) -> bool:
    """Whether half messages of a backlog may be copies of others, so that each of its slices must look at all."""
    before, upto = run.inputs_before, run.inputs
    discards = warehouse.landed_between("broker_discards", before["broker_discards"], upto["broker_discards"])
    halves = warehouse.landed_between("half_messages", before["half_messages"], upto["half_messages"])
    opened = warehouse.read("decisions", upto["decisions"]).where("open AND (copies IS NOT NULL OR orphan)")
    if not halves.where(h.carries_a_mark(halves)).isEmpty():
        return True
    return not (discards.isEmpty() and opened.isEmpty())


class RealBroker:
    """A run's view of them.

    Each step joins the steps before it several times over, so each is computed once and its plan cut off
    (`localCheckpoint`): Spark would else analyse a plan that grows tenfold with every step.
    """

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs

    # ---- transactions of several half messages ----

    @cached_property
    def transactions(self) -> DataFrame | None:
        """Transactions with copies, and those that the broker discarded; None where there is none."""
        if not self._any:
            return None
        members = self._rows.join(self.kins, KIN, "left_semi").drop(KIN)
        history = self._history
        rows = members if history is None else members.unionByName(history.join(members, HALF_KEY, "left_anti"))
        return transactions.transactions(rows, self._discards).localCheckpoint()

    @cached_property
    def halves(self) -> DataFrame:
        """The run's half messages, of a transaction with copies one row."""
        copies = self.transactions
        if copies is None:
            return self._inputs.rows
        rows = transactions.standing(copies)
        if self._any_discards:
            resumes = self._inputs.resumes if self._inputs.any_resumes else None
            rows = transactions.given_up(with_resumes(rows, resumes), self._ending(copies), self._spent)
        return self._with_others(rows)

    def _with_others(self, standing: DataFrame) -> DataFrame:
        """And the half messages that are transactions by themselves."""
        others = self._rows.join(self.kins, KIN, "left_anti").drop(KIN)
        return standing.drop(KIN, "starter", "gone", "seen").unionByName(others, allowMissingColumns=True)

    def _ending(self, copies: DataFrame) -> DataFrame:
        """The half keys of transactions with copies that this run ends."""
        rules = self._inputs.rules
        rows = transactions.standing(copies).withColumn("immunity", own_immunity(rules.timeout))
        ended = rows.join(o.by_half(self.named), HALF_KEY).where(o.winner(rules).isNotNull())
        return ended.select(HALF_KEY).localCheckpoint()

    @cached_property
    def _rows(self) -> DataFrame:
        return self._inputs.rows.withColumn(KIN, kin()).localCheckpoint()

    @property
    def _any(self) -> bool:
        i = self._inputs
        if i.meeting.copies or self._any_discards or self._orphans is not None or self._taken_over is not None:
            return True
        return i.looked_up and not self._rows.where(F.col("state") == h.SUPERSEDED).isEmpty()

    @cached_property
    def kins(self) -> DataFrame:
        """Which half messages belong to such transactions."""
        found = [self._rows.where(h.put_back()).select(KIN), self._discards.select(KIN)]
        found += [each for each in (self._orphans, self._taken_over) if each is not None]
        return reduce(DataFrame.unionByName, found).distinct().localCheckpoint()

    @cached_property
    def _history(self) -> DataFrame | None:
        """What earlier runs decided about transactions of which neither an original nor an open copy is at hand."""
        state, marked = F.col("state"), F.col("marked")
        original = F.bool_or((state == h.NEW) & ~marked) & ~F.bool_or(state == h.SUPERSEDED)
        here = self._rows.join(self.kins, KIN, "left_semi").groupBy(KIN)
        alone = here.agg((original | F.bool_or(state == h.OPEN)).alias("at_hand")).where("NOT at_hand").select(KIN)
        alone = alone if self._orphans is None else alone.unionByName(self._orphans)
        closed = self._closed(F.col("decision") != "REJECT", alone.select(f"{KIN}.born_timestamp"))
        return None if closed is None else h.nothing_else(h.ended(closed.join(alone, KIN, "left_semi").drop(KIN)))

    def _closed(self, wanted: Column, born: DataFrame) -> DataFrame | None:
        """Closed decisions on messages that were born when those were, with their kin; None where there can be none."""
        i = self._inputs
        if i.first:
            return None
        between = _between(born, "born_timestamp")
        if between is None:
            return None
        rows = i.decisions.where(~F.col("open") & wanted & between)
        files = len(rows.inputFiles())
        i.looked_back["decisions"] = i.looked_back.get("decisions", 0) + files
        return rows.withColumn(KIN, kin()) if files else None

    @cached_property
    def _orphans(self) -> DataFrame | None:
        """The kin of ended copies whose original may land only now."""
        i = self._inputs
        if not self._late:
            return None
        closed = self._closed(F.col("orphan").isNotNull(), i.arrived_halves.select("born_timestamp"))
        return (
            None
            if closed is None
            else closed.select(KIN).join(i.arrived_halves.select(kin().alias(KIN)), KIN, "left_semi")
        )

    @cached_property
    def _taken_over(self) -> DataFrame | None:
        """The kin of discarded messages whose transactions the broker has resumed, and that have ended since."""
        if not self._inputs.looked_up:
            return None
        given_up = self._rows.where(F.col("state") == h.DISCARDED)
        closed = self._closed(F.col("copies").isNotNull(), given_up.select("born_timestamp"))
        if closed is None:
            return None
        copies = closed.select(KIN, "queue_id", F.col("queue_offset").alias("newer"), "copies")
        met = given_up.select(KIN, "queue_id", "queue_offset").join(copies, [KIN, "queue_id"])
        knows = transactions.takes_over(F.col("newer"), F.col("copies"), F.col("queue_offset"))
        found = met.where(knows).select(KIN).distinct().localCheckpoint()
        return None if found.isEmpty() else found

    @cached_property
    def _late(self) -> bool:
        """Whether half messages arrived below what had landed before: out of their order, or nobody knows."""
        i = self._inputs
        if i.first or i.run.inputs_before["half_messages"] == NO_TABLE:
            return False
        try:
            before = clocks(i.warehouse.rows("landing_progress", i.run.inputs_before["landing_progress"]))
        except (Py4JJavaError, PySparkException):  # the run before was so long ago that its version is gone
            return True
        landed = {(c.broker_name, c.queue_id): c.next_offset for c in before}
        spans = [(landed.get((s.broker_name, s.queue_id), s.low + 1), s.low) for s in i.meeting.halves.spans]
        return any(next_offset is not None and low < next_offset for next_offset, low in spans)

    # ---- the broker's own discards ----

    @property
    def _any_discards(self) -> bool:
        return self._is_there("broker_discards") and not self._discards.isEmpty()

    def _is_there(self, name: str) -> bool:
        """Only real brokers fill these tables; where they don't, no job looks for rows."""
        return self._inputs.run.inputs[name] != NO_TABLE

    @cached_property
    def _discards(self) -> DataFrame:
        """The broker's discards that this run is the first to see, and older ones that may be of what arrives late."""
        i, name = self._inputs, "broker_discards"
        arrived = i.warehouse.landed_between(name, i.run.inputs_before[name], i.run.inputs[name])
        born = arrived.select("born_timestamp").unionByName(i.arrived_halves.select("born_timestamp"))
        older = self._older(name, born) if self._seen_before else None
        rows = arrived.withColumn("seen", F.lit(i.run.slice.number > 1))
        rows = rows if older is None else rows.unionByName(older.withColumn("seen", F.lit(True)))
        rows = rows.withColumns({c: present(F.col(c)) for c in ("uniq_key", "producer_group")})
        named = rows.where(F.col("uniq_key").isNotNull()).groupBy(kin().alias(KIN), "queue_id", "queue_offset")
        found = named.agg(F.min("store_timestamp").alias("gone_at"), F.max("seen").alias("seen"))
        return found.select(KIN, "gone_at", "seen").localCheckpoint()

    @property
    def _seen_before(self) -> bool:
        """Whether this run looks at discards that earlier runs, or slices, have looked at."""
        return self._late or self._inputs.run.slice.number > 1

    @property
    def _spent(self) -> DataFrame | None:
        """What earlier runs have given up for discard records of a message, or of its twins."""
        if not self._seen_before:
            return None
        for_it = (F.col("decision") == "DISCARD") & (F.col("reason") == "BROKER_DISCARDED")
        closed = self._closed(for_it, self._discards.select(f"{KIN}.born_timestamp"))
        return None if closed is None else closed.groupBy(KIN).agg(F.collect_list(F.struct(*HALF_KEY)).alias("spent"))

    def _older(self, name: str, values: DataFrame) -> DataFrame | None:
        """Rows of earlier runs in which the column of that name lies among these values; None where there are none."""
        before, upto = self._inputs.run.inputs_before[name], self._inputs.run.inputs[name]
        near = None if before == NO_TABLE else _between(values, *values.columns)
        if near is None:
            return None
        return self._inputs.warehouse.read(name, upto).where(near & (F.col("_metadata.row_commit_version") <= before))

    # ---- final messages ----

    @cached_property
    def _finals(self) -> DataFrame:
        i, name = self._inputs, "final_messages"
        rows = i.warehouse.landed_between(name, i.run.inputs_before[name], i.run.inputs[name])
        spots = i.arrived_halves.select(F.col("commit_log_offset").alias("prepared_transaction_offset"))
        older = self._older(name, spots) if self._late else None
        rows = rows if older is None else rows.unionByName(older)
        key = present(F.col("uniq_key")).alias("uniq_key")
        return rows.select("broker_name", F.col("prepared_transaction_offset").alias("pto"), key)

    @cached_property
    def _any_finals(self) -> bool:
        return self._is_there("final_messages") and not self._finals.isEmpty()

    @cached_property
    def named(self) -> DataFrame:
        """All that may end a half message, under the key of the row that stands for it.

        Ops, and final messages that say what no op says.
        """
        return self._ops if self.proofs is None else self._ops.unionByName(self.proofs)

    @cached_property
    def _ops(self) -> DataFrame:
        ops = self._inputs.naming.drop("arrived")
        return ops if self.transactions is None else transactions.renamed(ops, self.transactions)

    @cached_property
    def proofs(self) -> DataFrame | None:
        """Final messages, as ops, of half messages that no op names; None where there is none."""
        met = self._inputs.meeting
        all_named = met.all_met and not met.ops.repeated and met.halves.rows == met.ops.rows
        if (all_named and self.transactions is None) or not self._any_finals:
            return None
        named = self._ops.where(~F.col("op")["header"]).select(HALF_KEY)
        copies = self.transactions
        halves = self._inputs.rows if copies is None else self._with_others(transactions.standing(copies))
        waiting = halves.where(F.col("state").isin(h.NEW, h.OPEN, h.DISCARDED))
        found = o.proofs(self._finals, waiting.join(named, HALF_KEY, "left_anti")).localCheckpoint()
        return None if found.isEmpty() else found

    @cached_property
    def keys_by_finals(self) -> DataFrame | None:
        """Half keys of discarded messages that a final message names; None where there is none."""
        i = self._inputs
        if i.first or not self._any_finals:
            return None
        copies = i.arrived_halves.unionByName(i.open_halves).select("broker_name", F.explode(h.own_copies()).alias("c"))
        known = copies.select("broker_name", F.col("c")["commit_log_offset"].alias("pto"))
        strays = self._finals.select("broker_name", "pto").join(known, ["broker_name", "pto"], "left_anti")
        near = _between(strays.select(F.col("pto").alias("commit_log_offset")), "commit_log_offset")
        if near is None:
            return None
        rows = i.decisions.where(~F.col("open") & F.col("decision").isin("DISCARD", "SUPERSEDED") & near)
        named = strays.withColumnRenamed("pto", "commit_log_offset")
        return rows.join(named, ["broker_name", "commit_log_offset"], "left_semi").select(HALF_KEY)


def _between(rows: DataFrame, column: str) -> Column | None:
    """Whether a column lies among these rows' values, as literals, so that Delta skips files; None of no rows."""
    low, high = (fun(column).cast("string").alias(name) for fun, name in ((F.min, "low"), (F.max, "high")))
    found = rows.agg(low, high).collect()[0]
    if found["low"] is None:
        return None
    kind = rows.schema[column].dataType
    return F.col(column).between(F.lit(found["low"]).cast(kind), F.lit(found["high"]).cast(kind))
