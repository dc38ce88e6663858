"""What one run reads: what landed since the run before, the open set, and what arrivals need from further back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from halfop.rules import halves as h
from halfop.rules import ops as o
from halfop.rules.words import HALF_KEY, RuleColumns
from halfop.runs.clocks import Clock, clocks
from halfop.runs.ranges import Meeting, Tally, covers, meeting, spans_of, tally
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

    @property
    def _open_here(self) -> DataFrame:
        return self.open_rows.where(in_slice(self.run.slice))

    @cached_property
    def open_elsewhere(self) -> dict[bool, int]:
        """Open rows that other slices of a backlog look at: halves (False) and waiting ops (True)."""
        if self.run.slice.of == 1:
            return {}
        is_op = (F.col("decision") == "EARLY_OP").alias("is_op")
        outside = self.open_rows.where(~in_slice(self.run.slice)).groupBy(is_op).count()
        return {row["is_op"]: row["count"] for row in outside.collect()}

    @cached_property
    def resumes(self) -> DataFrame:
        rows = _arrived(self.warehouse, self.run, "resumes")
        nth = F.row_number().over(Window.partitionBy(HALF_KEY).orderBy("resumed_at", "owner"))
        return rows.withColumn("nth", nth)

    @cached_property
    def any_resumes(self) -> bool:
        return self.run.inputs_before["resumes"] != self.run.inputs["resumes"] and not self.resumes.isEmpty()

    @cached_property
    def clocks(self) -> list[Clock]:
        """How far each queue has landed."""
        return clocks(self.warehouse.rows("landing_progress", self.run.inputs["landing_progress"]))

    @cached_property
    def queues(self) -> DataFrame:
        """The clocks as rows; `listed` tells a queue that has one from a queue that has none."""
        columns = "broker_name STRING, queue_id INT, known_until TIMESTAMP, next_offset BIGINT, first_offset BIGINT"
        return self.warehouse.frame(self.clocks, columns).withColumn("listed", F.lit(True))

    # ---- ops ----

    @cached_property
    def ops(self) -> DataFrame:
        """Arrived op rows with their faults, each once."""
        repeated = self._op_tally.repeated or self.run.slice.ops_repeat
        if self._ops_seen is None and not repeated:
            return self.arrived_ops
        seen = self.arrived_ops.limit(0) if self._ops_seen is None else self._ops_seen
        rows = _arrived_ops(self.warehouse, self.run) if self.run.slice.ops_repeat else self.arrived_ops
        return o.once_per_row(rows, seen).where(in_slice(self.run.slice, "half_offset"))

    @cached_property
    def op_rows(self) -> int:
        return self._op_tally.rows if self.ops is self.arrived_ops else self.ops.count()

    @cached_property
    def _op_tally(self) -> Tally:
        return _tally_of_ops(self.arrived_ops)

    @cached_property
    def _ops_seen(self) -> DataFrame | None:
        """Rows of earlier landings under the keys of arrived ones; None where there can be none."""
        before = self.run.inputs_before["op_messages"]
        if self.first or before == NO_TABLE or not self._op_tally.rows:
            return None
        near = covers(self._op_tally.spans, "queue_offset")
        files = self._files("op_messages", before, near)
        if files == 0:
            return None
        all_ops = self.warehouse.read("op_messages", self.run.inputs["op_messages"])
        older = all_ops.where(near & (F.col("_metadata.row_commit_version") <= before))
        self.looked_back["op_messages"] = len(older.inputFiles()) if files is None else files
        keys = self.arrived_ops.select(o.OP_KEY).distinct()
        return o.landed(older).join(keys, o.OP_KEY, "left_semi").select(self.arrived_ops.columns)

    def _files(self, name: str, version: int, condition: Column) -> int | None:
        """How many files of an earlier version may hold such rows, by their bounds; None where its log has gone."""
        try:
            return len(self.warehouse.read(name, version).where(condition).inputFiles())
        except PySparkException:
            return None

    @cached_property
    def named(self) -> DataFrame:
        """Ops under the half keys that they name: arrived ones and those that wait."""
        return _with_earlier(o.as_named(self.ops), None if self.first else o.waiting(self._open_here))

    @cached_property
    def meeting(self) -> Meeting:
        """Arrived halves and open ones, and the ops that name one."""
        keys = None if self.first else self._open_halves.select(HALF_KEY)
        return meeting(_with_earlier(self.arrived_halves.select(HALF_KEY), keys), self.named)

    @cached_property
    def _ops_by_half(self) -> DataFrame:
        """The ops of each half key: `op` where no key has two, else `ops`, an array in (op offset, item) order."""
        if not self.meeting.ops.repeated:
            return self.named.drop("arrived")
        return self.named.groupBy(HALF_KEY).agg(F.sort_array(F.collect_list("op")).alias("ops"))

    # ---- halves ----

    @cached_property
    def _open_halves(self) -> DataFrame:
        return h.carried(self._open_here)

    @cached_property
    def halves(self) -> DataFrame:
        """Every half message that this run may look at, one row a key."""
        rows = self.arrived_halves if self.first else self.arrived_halves.unionByName(self._open_halves)
        ended = self._ended
        if ended is None and not self.meeting.halves.repeated:
            return h.nothing_else(rows)
        return h.one_per_key(rows if ended is None else rows.unionByName(ended))

    @cached_property
    def halves_and_ops(self) -> DataFrame:
        """Every half message with the ops that name it, and ops that name none of them."""
        return self.halves.join(self._ops_by_half, HALF_KEY, "full")

    @cached_property
    def to_decide(self) -> DataFrame:
        """As `halves_and_ops`, without a shuffle where packed ops say all that bears on a decision.

        Fewer tasks, larger files; and Spark compiles what is below a coalesce apart, so it stays small enough.
        """
        met = self.meeting
        if met.ops.repeated or met.headers or not met.all_met:
            return self.halves_and_ops
        rows = o.with_packed(self.halves, o.packed(self.named, met.ops.rows))
        return rows.coalesce(self.warehouse.tasks(met.halves.rows))

    @cached_property
    def _ended(self) -> DataFrame | None:
        """What was decided about arrivals that match no open row: late ops, halves landed again, resumes.

        None where nothing was; the bounds of the files that hold earlier decisions tell so without reading them.
        """
        if self.first:
            return None
        strays = self._strays
        stray_spans = [] if strays is None else spans_of(strays, "queue_offset")
        wanted = covers(self.meeting.halves.spans, "queue_offset") | covers(stray_spans, "queue_offset")
        rows = self.decisions.where(~F.col("open") & wanted)
        self.looked_back["decisions"] = len(rows.inputFiles())
        if not self.looked_back["decisions"]:
            return None
        keys = self.arrived_halves.select(HALF_KEY)
        keys = keys if strays is None else keys.unionByName(strays)
        return h.ended(rows.join(keys.distinct(), HALF_KEY, "left_semi"))

    @cached_property
    def _strays(self) -> DataFrame | None:
        """Half keys that an op or a resume names and that are neither open nor arrived."""
        named = None if self.meeting.arrivals_met else o.as_named(self.ops).select(HALF_KEY)
        if named is not None:
            landed = self.arrived_halves.select(HALF_KEY).unionByName(self._open_halves.select(HALF_KEY))
            named = named.join(landed, HALF_KEY, "left_anti")
        if not self.any_resumes:
            return named
        resumed = self.resumes.select(HALF_KEY)
        return resumed if named is None else named.unionByName(resumed)


def _with_earlier(arrived: DataFrame, earlier: DataFrame | None) -> DataFrame:
    """Arrived rows and those of earlier runs, told apart by `arrived`."""
    rows = arrived.withColumn("arrived", F.lit(True))
    return rows if earlier is None else rows.unionByName(earlier.withColumn("arrived", F.lit(False)))


def in_slice(part: Slice, column: str = "queue_offset") -> Column:
    """Rows whose half offset lies in the slice; rows that name none go with the first."""
    low = F.lit(True) if part.from_offset is None else F.col(column) >= part.from_offset
    high = F.lit(True) if part.to_offset is None else F.col(column) < part.to_offset
    return F.coalesce(low & high, F.lit(part.from_offset is None))


@contextmanager
def pinned(warehouse: Warehouse, run: Run) -> Iterator[Inputs]:
    """The run's inputs; what arrived is kept at hand where reading it again costs more."""
    rules = RuleColumns(run.settings.rules, run.now)
    halves = h.landed(_arrived(warehouse, run, "half_messages"), rules)
    ops = _arrived_ops(warehouse, run).where(in_slice(run.slice, "half_offset"))
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


def ops_repeat(warehouse: Warehouse, run: Run) -> bool:
    """Whether two arrived op rows share a key, whatever half messages they name."""
    return _tally_of_ops(_arrived_ops(warehouse, run)).repeated


def _tally_of_ops(ops: DataFrame) -> Tally:
    """Bodies of one item run along the offsets, longer ones along the items."""
    single = F.col("item") == 0
    place = F.when(single, F.col("op_queue_offset")).otherwise(F.col("item").cast("bigint"))
    group = [F.col("source"), F.when(single, F.lit(-1)).otherwise(F.col("op_queue_offset"))]
    return tally(ops.withColumn("arrived", F.lit(True)), "op_queue_offset", place, group)


def _arrived_ops(warehouse: Warehouse, run: Run) -> DataFrame:
    """The op rows that landed since the run before, of all slices."""
    name = "op_messages"
    return o.landed(warehouse.landed_between(name, run.inputs_before[name], run.inputs[name]))


def _arrived(warehouse: Warehouse, run: Run, name: str) -> DataFrame:
    """What landed under half keys since the run before, of this run's slice."""
    rows = warehouse.landed_between(name, run.inputs_before[name], run.inputs[name])
    return rows.where(in_slice(run.slice))
