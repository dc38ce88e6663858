"""The first stage of a run: what landed between its pins, and the open set of the run before, counted once."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.columns.lives import all_lost
from halfop.planning.by_workers import TakenMessages, taken_by_workers
from halfop.planning.counts import KeyCount, KeyCounts, count_keys, counted, covers, in_slice
from halfop.planning.run import Clock, Run, clocks
from halfop.rocketmq.names import ROCKSDB_QUEUES
from halfop.rules import halves as h
from halfop.rules import ops as o
from halfop.rules import questions
from halfop.rules.questions import may_be_asked
from halfop.rules.reasons import Reason
from halfop.rules.settings_columns import RuleColumns
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.rows import Kept
from halfop.warehouse.tables import NO_TABLE, Selected, Warehouse
from halfop.warehouse.where import Compared, Where, all_of, equal

_CLOCK_COLUMNS = """broker_name STRING, queue_id INT, known_until TIMESTAMP, next_offset BIGINT, first_offset BIGINT,
    forgets_after BIGINT"""


@dataclass(frozen=True)
class OpenRows:
    """CHECK, WAIT and EARLY_OP rows of the run before: those of this slice, and those that other slices look at.

    `held_back` are of other slices, too: the last slice decides which of them are asked about.
    """

    here: DataFrame
    elsewhere: DataFrame | None
    halves_elsewhere: int = 0
    ops_elsewhere: int = 0
    held_back: DataFrame | None = None


@dataclass(frozen=True)
class Arrivals:
    """Narrow rows at the run's pins; `kept` holds what this stage and later ones keep at hand."""

    warehouse: Warehouse
    run: Run
    rules: RuleColumns
    kept: Kept
    halves: DataFrame
    ops: DataFrame  # with the fault that a row has in itself, each row once
    op_rows: int
    faulty_ops: bool  # a row of `ops` is rejected for a fault of its own
    named: DataFrame  # sound ops, arrived ones and those that wait, under the half key that they name
    resumes: DataFrame | None  # None if none arrived
    open: OpenRows | None  # None for the first run
    clocks: list[Clock]
    counts: KeyCounts
    files: int  # of op_messages that an earlier run had read and this one has to look into again
    here: bool  # the stage was, after all of it was read
    taken: TakenMessages | None  # what workers have decided, and is not in the frames here

    def closed_decisions(self, where: Where) -> Selected:
        """The decisions of earlier runs that ended messages and meet the condition."""
        return self.warehouse.select(
            "decisions",
            self.run.inputs["decisions"],
            all_of(equal("open", False), Compared("run_id", "<=", self.run.run_id - 1), where),
        )

    @property
    def open_halves(self) -> DataFrame | None:
        """The open set; None for the first run."""
        return None if self.open is None else h.carried(self.open.here)

    @property
    def queues(self) -> DataFrame:
        """The clocks as rows; `has_clock` is true in each."""
        return self.warehouse.frame(self.clocks, _CLOCK_COLUMNS).withColumn("has_clock", F.lit(True))

    @property
    def several_brokers(self) -> bool:
        """Returns whether a message may have escaped from one broker to another."""
        arrived = {each.broker_name for each in self.counts.halves.ranges}
        return len(arrived | {clock.broker_name for clock in self.clocks}) > 1

    @property
    def half_rows(self) -> int:
        """The number of half messages that arrived, with those that workers have taken."""
        return self.counts.halves.arrived + _messages(self.taken)

    @property
    def open_messages(self) -> int:
        """The number of half messages that the run before left open, in all slices."""
        elsewhere = 0 if self.open is None else self.open.halves_elsewhere
        return self.counts.halves.rows - self.counts.halves.arrived + elsewhere

    @property
    def may_exceed_a_limit(self) -> bool:
        """Returns whether the run may ask about more half messages than a group may get questions."""
        if self.resumes is not None:
            return bool(self.rules.checks_limits)
        elsewhere = 0 if self.open is None else self.open.halves_elsewhere
        return any(self.counts.may_be_asked + elsewhere > limit for limit in self.rules.checks_limits)

    @property
    def waiting_ops(self) -> int:
        """The number of ops that wait for their half messages, in all slices."""
        elsewhere = 0 if self.open is None else self.open.ops_elsewhere
        return self.counts.ops.rows - self.counts.ops.arrived + elsewhere

    def __str__(self) -> str:
        resumed = "" if self.resumes is None else ", and resumes"
        return (
            f"{self.half_rows} half messages and {self.op_rows} op rows arrived{resumed}; "
            f"{self.open_messages} half messages open, {self.waiting_ops} ops waiting"
        )


def arrivals(warehouse: Warehouse, run: Run, kept: Kept, to_commit: bool) -> Arrivals:
    """Reads and counts what the run looks at; what costs more to read again is kept.

    Of a plan that is to be committed, workers may write a large part first.
    """
    progress = progress_rows(warehouse, run.inputs["landing_progress"])
    forgets = any(row["queue_id"] >= ROCKSDB_QUEUES for row in progress)
    rules = RuleColumns(run.settings.rules, run.now, run.watched, run.counting_delivered, all_lost(progress), forgets)
    taken = taken_by_workers(warehouse, run, kept) if to_commit and isinstance(warehouse, KernelWarehouse) else None
    halves, op_rows = _landed(warehouse, run, rules, taken)
    open_rows = _open_rows(warehouse, run, kept)
    here = warehouse.stage.is_here
    if not here and not run.first:
        halves, op_rows = kept.persisted(halves), kept.persisted(op_rows)
    ops, rows, faulty, files = _each_once(warehouse, run, op_rows)
    named = _with_earlier(o.as_named(ops), None if open_rows is None else o.waiting(open_rows.here))
    open_keys = None if open_rows is None else _keys(h.carried(open_rows.here), rules)
    return Arrivals(
        warehouse,
        run,
        rules,
        kept,
        halves,
        ops,
        rows + _messages(taken),
        faulty,
        named,
        _resumes(warehouse, run),
        open_rows,
        clocks(progress),
        counted(_with_earlier(_keys(halves, rules), open_keys), named),
        files,
        here,
        taken,
    )


def _messages(taken: TakenMessages | None) -> int:
    """The number of half messages that workers have taken, each with its op."""
    return 0 if taken is None else taken.messages


def _landed(
    warehouse: Warehouse, run: Run, rules: RuleColumns, taken: TakenMessages | None
) -> tuple[DataFrame, DataFrame]:
    """The half messages and op rows of the run's slice that workers have left."""
    halves = _arrived(warehouse, run, "half_messages") if taken is None else taken.halves
    op_rows = arrived_ops(warehouse, run) if taken is None else o.landed(taken.ops)
    return h.landed(halves.where(in_slice(run.slice)), rules), op_rows.where(in_slice(run.slice, "half_offset"))


def ops_repeat(warehouse: Warehouse, run: Run) -> bool:
    """Returns whether two arrived op rows share a key, whatever half messages they name."""
    return _count_ops(arrived_ops(warehouse, run))[0].repeated


def arrived_ops(warehouse: Warehouse, run: Run) -> DataFrame:
    """The op rows that landed since the run before, of all slices."""
    return o.landed(_arrived(warehouse, run, "op_messages"))


def _arrived(warehouse: Warehouse, run: Run, name: str) -> DataFrame:
    return warehouse.landed_between(name, run.inputs_before[name], run.inputs[name])


def _keys(halves: DataFrame, rules: RuleColumns) -> DataFrame:
    return halves.select(*HALF_KEY, h.put_back().alias("put_back"), may_be_asked(rules).alias("may_be_asked"))


def _with_earlier(arrived: DataFrame, earlier: DataFrame | None) -> DataFrame:
    """Arrived rows and those of earlier runs; `arrived` marks the former."""
    rows = arrived.withColumn("arrived", F.lit(True))
    return rows if earlier is None else rows.unionByName(earlier.withColumn("arrived", F.lit(False)))


def _resumes(warehouse: Warehouse, run: Run) -> DataFrame | None:
    if run.inputs_before["resumes"] == run.inputs["resumes"]:
        return None
    rows = _arrived(warehouse, run, "resumes").where(in_slice(run.slice))
    return None if rows.isEmpty() else rows


# ---- the open set ----


def _open_rows(warehouse: Warehouse, run: Run, kept: Kept) -> OpenRows | None:
    if run.first:
        return None
    before = all_of(equal("open", True), equal("run_id", run.run_id - 1))
    rows = _with_deliveries(warehouse, run, warehouse.read("decisions", run.inputs["decisions"], before), kept)
    if run.slice.of == 1:
        return OpenRows(rows, None)
    elsewhere = rows.where(~in_slice(run.slice))
    is_op = (F.col("decision") == "EARLY_OP").alias("is_op")
    numbers = {row["is_op"]: row["count"] for row in elsewhere.groupBy(is_op).count().collect()}
    here, of_both = rows.where(in_slice(run.slice)), (numbers.get(False, 0), numbers.get(True, 0))
    if run.slice.to_offset is not None:
        return OpenRows(here, elsewhere, *of_both)
    waits = F.col("reason").eqNullSafe(Reason.CHECK_LIMIT.name)
    return OpenRows(here, elsewhere.where(~waits), *of_both, held_back=elsewhere.where(waits))


# ---- op rows, each once ----


def _each_once(warehouse: Warehouse, run: Run, arrived: DataFrame) -> tuple[DataFrame, int, bool, int]:
    """Op rows without those that landed again; their number, whether one has a fault, and the files looked into."""
    if run.inputs_before["op_messages"] == run.inputs["op_messages"]:
        return arrived, 0, False, 0
    count, faulty = _count_ops(arrived)
    earlier, files = _landed_before(warehouse, run, arrived, count)
    if earlier is None and not count.repeated and not run.slice.ops_repeat:
        return arrived, count.rows, faulty, files
    rows = arrived_ops(warehouse, run) if run.slice.ops_repeat else arrived
    once = o.once_per_row(rows, arrived.limit(0) if earlier is None else earlier)
    once = once.where(in_slice(run.slice, "half_offset"))
    rows, faulty = once.agg(F.count("*"), F.bool_or(o.is_faulty())).collect()[0]
    return once, rows, bool(faulty), files


def _count_ops(ops: DataFrame) -> tuple[KeyCount, bool]:
    """Counts bodies of one item along the offsets, longer ones along the items; and finds whether one has a fault."""
    single = F.col("item") == 0
    place = F.when(single, F.col("op_queue_offset")).otherwise(F.col("item").cast("bigint"))
    group = [F.col("source"), F.when(single, F.lit(-1)).otherwise(F.col("op_queue_offset"))]
    return count_keys(ops.withColumn("arrived", F.lit(True)), "op_queue_offset", place, group, o.is_faulty())


def _landed_before(warehouse: Warehouse, run: Run, arrived: DataFrame, count: KeyCount) -> tuple[DataFrame | None, int]:
    """Op rows of earlier landings under keys of arrived ones, None if there are none; and the files to look into."""
    name, before = "op_messages", run.inputs_before["op_messages"]
    if run.first or before == NO_TABLE or not count.rows or not warehouse.lands_again:
        return None, 0
    near = covers(count.ranges, "queue_offset")
    older = None if near is None else warehouse.landed_until(name, before, run.inputs[name], near)
    if older is None or not older.files:
        return None, 0
    keys = arrived.select(o.OP_KEY).distinct()
    return o.landed(older.rows).join(keys, o.OP_KEY, "left_semi").select(arrived.columns), older.files


_DELIVERIES = "check_deliveries"


def _with_deliveries(warehouse: Warehouse, run: Run, open_rows: DataFrame, kept: Kept) -> DataFrame:
    """Returns the open set with the deliveries counted that arrived.

    A delivery that is read twice counts once: an open row forgets a question when it counts.
    """
    before, upto = run.inputs_before[_DELIVERIES], run.inputs[_DELIVERIES]
    if before == upto:
        return open_rows
    found = kept.computed(questions.sent(open_rows, warehouse.landed_between(_DELIVERIES, before, upto)))
    return open_rows if found.isEmpty() else questions.counted(open_rows, found, run.now)
