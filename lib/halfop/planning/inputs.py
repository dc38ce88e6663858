"""What one run reads: what landed since the run before, the open set, and what arrivals need from further back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, QUEUE
from halfop.planning.clocks import Clock, clocks
from halfop.planning.copies import RealBroker
from halfop.planning.ranges import Meeting, Tally, covers, meeting, spans_of, tally
from halfop.planning.removed import telling_what_is_gone
from halfop.planning.run import Run, Slice
from halfop.rules import halves as h
from halfop.rules import ops as o
from halfop.rules import transactions
from halfop.rules.words import RuleColumns
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
        return self.open_rows if self.run.slice.copies else self.open_rows.where(in_slice(self.run.slice))

    @cached_property
    def open_elsewhere(self) -> dict[bool, int]:
        """Open rows that other slices of a backlog look at: halves (False) and waiting ops (True)."""
        if self.run.slice.of == 1 or self.run.slice.copies:
            return {}
        is_op = (F.col("decision") == "EARLY_OP").alias("is_op")
        outside = self.open_rows.where(~in_slice(self.run.slice)).groupBy(is_op).count()
        return {row["is_op"]: row["count"] for row in outside.collect()}

    @cached_property
    def open_outside(self) -> DataFrame:
        """Open rows that this slice does not look at."""
        copies, rows = self.broker.transactions, self.open_rows
        if copies is None or not self.run.slice.copies:
            return rows.where(~in_slice(self.run.slice))
        placed = rows.join(transactions.copy_map(copies).drop("copy"), HALF_KEY, "left")
        placed = placed.withColumn("stands_at", F.coalesce("stands_at", "queue_offset"))
        return placed.where(~in_slice(self.run.slice, "stands_at")).drop("stands_at")

    @cached_property
    def superseded(self) -> DataFrame | None:
        """Decisions on copies that another stands for now."""
        copies = self.broker.transactions
        if copies is None:
            return None
        rows = transactions.superseded(copies, self.rules)
        return rows.where(in_slice(self.run.slice, "superseded_by")) if self.run.slice.copies else rows

    @cached_property
    def _resumes(self) -> DataFrame:
        return _arrived(self.warehouse, self.run, "resumes")

    @cached_property
    def resumes(self) -> DataFrame:
        """Each with the key of the row that stands for the copy that it asks for, and its place among its like."""
        rows = self._resumes.withColumn("asked_offset", F.col("queue_offset"))
        copies = self.broker.transactions
        if copies is not None:
            found = rows.join(transactions.copy_map(copies).drop("copy"), HALF_KEY, "left")
            rows = found.withColumn("queue_offset", F.coalesce("stands_at", "queue_offset"))
        rows = self._in_slice(rows)
        nth = F.row_number().over(Window.partitionBy(HALF_KEY).orderBy("resumed_at", "owner"))
        return rows.withColumn("nth", nth)

    @cached_property
    def any_resumes(self) -> bool:
        return self.run.inputs_before["resumes"] != self.run.inputs["resumes"] and not self._resumes.isEmpty()

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
        return o.once_per_row(rows, seen).where(_looked_at(self.run, "half_offset"))

    @property
    def ops_of_slice(self) -> DataFrame:
        """Those that this slice rejects where they have a fault, while others look at them too."""
        return self._in_slice(self.ops, "half_offset")

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
    def naming(self) -> DataFrame:
        """Ops under the half keys that they name: arrived ones and those that wait."""
        return _with_earlier(o.as_named(self.ops), None if self.first else o.waiting(self._open_here))

    @cached_property
    def meeting(self) -> Meeting:
        """Arrived halves and open ones, and the ops that name one."""
        arrived = self.arrived_halves.select(*HALF_KEY, h.put_back().alias("put_back"))
        earlier = None if self.first else self.open_halves.select(*HALF_KEY, h.put_back().alias("put_back"))
        return meeting(_with_earlier(arrived, earlier), self.naming)

    @cached_property
    def named(self) -> DataFrame:
        """All that may end a half message, under the key of the row that stands for it."""
        return self._in_slice(self.broker.named)

    @cached_property
    def _ops_by_half(self) -> DataFrame:
        """The ops of each half key: `op` where no key has two, else `ops`, an array in (op offset, item) order."""
        if self._plain and not self.meeting.ops.repeated:
            return self.named
        return o.by_half(self.named)

    @property
    def _plain(self) -> bool:
        """No copies, no final message that proves what no op says."""
        return self.broker.transactions is None and self.broker.proofs is None

    # ---- halves ----

    @cached_property
    def broker(self) -> RealBroker:
        return RealBroker(self)

    @cached_property
    def open_halves(self) -> DataFrame:
        return h.carried(self._open_here)

    @cached_property
    def halves(self) -> DataFrame:
        """Every half message that this run may look at, one row a key, and of a transaction with copies one row."""
        return self._in_slice(self.broker.halves)

    def _in_slice(self, rows: DataFrame, column: str = "queue_offset") -> DataFrame:
        """Of rows of all slices, those of this one."""
        return rows.where(in_slice(self.run.slice, column)) if self.run.slice.copies else rows

    @cached_property
    def rows(self) -> DataFrame:
        """Every half message that bears on this run, one row a key."""
        rows = self.arrived_halves if self.first else self.arrived_halves.unionByName(self.open_halves)
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
        if not self._plain or met.ops.repeated or met.headers or not met.all_met:
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

    @property
    def looked_up(self) -> bool:
        """Whether rows hold decisions of earlier runs on messages that are not open."""
        return self._ended is not None

    @cached_property
    def _strays(self) -> DataFrame | None:
        """Half keys that an op, a final message or a resume names and that are neither open nor arrived."""
        found = [] if self.meeting.arrivals_met else [self._stray_ops]
        found += [] if self.broker.keys_by_finals is None else [self.broker.keys_by_finals]
        found += [self._resumes.select(HALF_KEY)] if self.any_resumes else []
        return reduce(DataFrame.unionByName, found) if found else None

    @property
    def _stray_ops(self) -> DataFrame:
        copies = self.open_halves.select(*QUEUE, F.explode(h.own_copies()).alias("copy"))
        opened = copies.select(*QUEUE, F.col("copy")["queue_offset"].alias("queue_offset"))
        landed = self.arrived_halves.select(HALF_KEY).unionByName(opened)
        return o.as_named(self.ops).select(HALF_KEY).join(landed, HALF_KEY, "left_anti")


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
    ops = _arrived_ops(warehouse, run).where(_looked_at(run, "half_offset"))
    inputs = Inputs(warehouse, run, rules, halves, ops)
    if not inputs.first:
        inputs = replace(inputs, arrived_halves=halves.persist(), arrived_ops=ops.persist())
    try:
        with telling_what_is_gone(run):
            yield inputs
    finally:
        inputs.arrived_halves.unpersist()
        inputs.arrived_ops.unpersist()


def _looked_at(run: Run, column: str = "queue_offset") -> Column:
    """Rows of the run's slice; of all slices where messages of one may be copies of messages of another."""
    return F.lit(True) if run.slice.copies else in_slice(run.slice, column)


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
    return rows.where(_looked_at(run))
