"""What one run reads: what landed since the run before, the open set, and what arrivals need from further back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from halfop.rules import halves as h
from halfop.rules import ops as o
from halfop.rules.words import BLOCK_BITS, HALF_KEY, QUEUE, RuleColumns
from halfop.runs.ranges import covers, spans_of
from halfop.runs.record import Run, Slice
from halfop.warehouse.tables import NO_TABLE, Warehouse


@dataclass(frozen=True)
class Inputs:
    """The pinned rows of a run, narrow. Frames are lazy; each call reads the same versions."""

    warehouse: Warehouse
    run: Run
    rules: RuleColumns
    arrived_halves: DataFrame
    arrived_ops: DataFrame
    looked_back: dict[str, int] = field(default_factory=dict)

    @property
    def first(self) -> bool:
        """No run has decided anything yet, so there is nothing further back."""
        return self.run.inputs["decisions"] == NO_TABLE or self.run.run_id == 1

    @cached_property
    def decisions(self) -> DataFrame:
        return self.warehouse.read("decisions", self.run.inputs["decisions"])

    @cached_property
    def open_rows(self) -> DataFrame:
        """CHECK, WAIT and EARLY_OP rows of the run before."""
        return self.decisions.where(F.col("open") & (F.col("run_id") == F.lit(self.run.run_id - 1)))

    @cached_property
    def resumes(self) -> DataFrame:
        rows = self._landed("resumes").where(in_slice(self.run.slice))
        nth = F.row_number().over(Window.partitionBy(HALF_KEY).orderBy("resumed_at", "owner"))
        return rows.withColumn("nth", nth)

    def _landed(self, name: str) -> DataFrame:
        return self.warehouse.landed_between(name, self.run.inputs_before[name], self.run.inputs[name])

    @cached_property
    def queues(self) -> DataFrame:
        """How far each queue has landed, one row a queue."""
        of_half, of_op = F.col("topic") == HALF_TOPIC, F.col("topic") == OP_TOPIC
        known = F.max(F.when(of_op, F.struct("known_until")))["known_until"]
        other = F.when(F.max(of_op), known).otherwise(F.max("known_until"))
        return (
            self.warehouse.read("landing_progress", self.run.inputs["landing_progress"])
            .groupBy(QUEUE)
            .agg(
                other.alias("known_until"),
                F.max(F.when(of_half, F.col("next_offset"))).alias("next_offset"),
                F.min(F.when(of_half, F.col("first_offset"))).alias("first_offset"),
                F.lit(True).alias("listed"),
            )
        )

    @cached_property
    def ops(self) -> DataFrame:
        """Arrived op rows with their faults, each once."""
        if self.first and not _repeated(self.arrived_ops):
            return self.arrived_ops
        return o.once_per_row(self.arrived_ops, self._ops_seen)

    @cached_property
    def _ops_seen(self) -> DataFrame:
        """Rows of earlier landings under the keys of arrived ones."""
        ranges = None if self.first else spans_of(self.arrived_ops, "op_queue_offset")
        before = self.run.inputs_before["op_messages"]
        if not ranges or before == NO_TABLE:
            return self.arrived_ops.limit(0)
        all_ops = self.warehouse.read("op_messages", self.run.inputs["op_messages"])
        older = all_ops.where(covers(ranges, "queue_offset") & (F.col("_metadata.row_commit_version") <= before))
        self.looked_back["op_messages"] = len(older.inputFiles())
        keys = self.arrived_ops.select(o.OP_KEY).distinct()
        return o.landed(older).join(keys, o.OP_KEY, "left_semi").select(self.arrived_ops.columns)

    @cached_property
    def named(self) -> DataFrame:
        """Ops under the half keys that they name: arrived ones and those that wait."""
        return o.as_named(self.ops).unionByName(o.waiting(self.open_rows.where(in_slice(self.run.slice))))

    @cached_property
    def ops_by_half(self) -> DataFrame:
        """The ops of each half key: `op` where no key has two, else `ops`, an array in (op offset, item) order."""
        if _one_each(self.named):
            return self.named
        return self.named.groupBy(HALF_KEY).agg(F.sort_array(F.collect_list("op")).alias("ops"))

    @cached_property
    def halves(self) -> DataFrame:
        """Every half message that this run may look at, one row a key."""
        new = self.arrived_halves
        if self.first and _one_each(new):
            extras = F.array().cast(new.select(F.array(F.struct(h.COLUMNS)).alias("x")).schema["x"].dataType)
            return new.withColumn("extras", extras)
        known = h.carried(self.open_rows.where(in_slice(self.run.slice)))
        rows = new.unionByName(known)
        return h.one_per_key(rows if self.first else rows.unionByName(self._ended(known)))

    def _ended(self, known: DataFrame) -> DataFrame:
        """What was decided about arrivals that match no open row: late ops, halves landed again, resumes."""
        keys = self.arrived_halves.select(HALF_KEY)
        landed = keys.unionByName(known.select(HALF_KEY))
        strays = o.as_named(self.ops).select(HALF_KEY).join(landed, HALF_KEY, "left_anti")
        strays = strays.unionByName(self.resumes.select(HALF_KEY))
        wanted = [spans_of(keys, "queue_offset"), spans_of(strays, "queue_offset")]
        if not any(wanted):
            return known.limit(0)
        rows = self.decisions.where(
            ~F.col("open") & (covers(wanted[0], "queue_offset") | covers(wanted[1], "queue_offset"))
        )
        self.looked_back["decisions"] = len(rows.inputFiles())
        return h.ended(rows.join(keys.unionByName(strays).distinct(), HALF_KEY, "left_semi"))


def in_slice(part: Slice, column: str = "queue_offset") -> Column:
    """Rows whose half offset lies in the slice; rows that name none go with the first."""
    low = F.lit(True) if part.from_offset is None else F.col(column) >= part.from_offset
    high = F.lit(True) if part.to_offset is None else F.col(column) < part.to_offset
    return F.coalesce(low & high, F.lit(part.from_offset is None))


@contextmanager
def pinned(warehouse: Warehouse, run: Run) -> Iterator[Inputs]:
    """The run's inputs; what arrived is kept at hand where reading it again costs more."""
    rules = RuleColumns(run.settings.rules, run.now)
    halves = h.landed(_arrived(warehouse, run, "half_messages").where(in_slice(run.slice)), rules)
    ops = o.landed(_arrived(warehouse, run, "op_messages").where(in_slice(run.slice, "half_offset")))
    inputs = Inputs(warehouse, run, rules, halves, ops)
    if inputs.first:
        yield inputs
        return
    inputs = replace(inputs, arrived_halves=halves.persist(), arrived_ops=ops.persist())
    try:
        yield inputs
    finally:
        inputs.arrived_halves.unpersist()
        inputs.arrived_ops.unpersist()


def _arrived(warehouse: Warehouse, run: Run, name: str) -> DataFrame:
    return warehouse.landed_between(name, run.inputs_before[name], run.inputs[name])


def _one_each(rows: DataFrame) -> bool:
    """No two rows under one half key: counted by bits, 64 offsets a group, so that next to nothing is shuffled."""
    return not _collide(rows, [*map(F.col, QUEUE), F.shiftright("queue_offset", BLOCK_BITS)], F.col("queue_offset"))


def _repeated(ops: DataFrame) -> bool:
    """Two rows under one op key. Bodies of one item run along the offsets, longer ones along the items."""
    single = F.col("item") == 0
    place = F.when(single, F.col("op_queue_offset")).otherwise(F.col("item").cast("bigint"))
    group = [F.when(single, F.lit(-1)).otherwise(F.col("op_queue_offset")), F.shiftright(place, BLOCK_BITS)]
    return _collide(ops, [*map(F.col, QUEUE), F.col("source"), *group], place)


def _collide(rows: DataFrame, group: list[Column], place: Column) -> bool:
    bit = F.expr(f"shiftleft(1L, cast(place & {(1 << BLOCK_BITS) - 1} as int))")
    groups = (
        rows.withColumn("place", place).groupBy(*group).agg(F.count("*").alias("rows"), F.bit_or(bit).alias("bits"))
    )
    return not groups.where(F.col("rows") != F.bit_count("bits")).isEmpty()
