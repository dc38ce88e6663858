"""Rows of topics, discards and questions brought back: each is a projection of what its run decided, written once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.examine.runs import append_lost
from halfop.planning.digest import Digest
from halfop.planning.plan import arrived, plan_of
from halfop.planning.run import Run
from halfop.runs.record import still_owed
from halfop.sinks.messages import in_tables_columns, messages
from halfop.sinks.targets import Target, WholeMessages, targets
from halfop.sinks.write import rejects
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import hold_rejected
from halfop.warehouse.rows import Kept
from halfop.warehouse.schema import REJECTED
from halfop.warehouse.tables import NO_TABLE, Marker
from halfop.warehouse.where import equal

_PLACES = {"COMMIT": ("half_queue_id", "half_queue_offset"), "DISCARD": ("queue_id", "queue_offset")}
_PLACES |= {"CHECK": ("half_queue_id", "tran_state_table_offset")}
_OF_REJECT = ["kind", "reason", "broker_name", "queue_id", "queue_offset", "item", "half_offset"]


@dataclass(frozen=True)
class Missing:
    """Messages of a run that a table lacks; `without_body`: of those, the ones that no half message is there for."""

    table: str
    run_id: int
    rows: int
    without_body: int = 0

    def __str__(self) -> str:
        return f"{self.table} lacks {self.rows} messages of run {self.run_id}"


class RowsWritten:
    """The number of rows of each run in each table, counted once."""

    def __init__(self, warehouse: KernelWarehouse) -> None:
        self._warehouse, self._counts = warehouse, dict[str, dict[int, int]]()

    def of(self, name: str, run_id: int) -> int:
        if name not in self._counts:
            rows = self._warehouse.read(name).groupBy("run_id").count().collect()
            self._counts[name] = {row["run_id"]: int(row["count"]) for row in rows}
        return self._counts[name].get(run_id, 0)


def bring_back_index(warehouse: KernelWarehouse, topics: Sequence[str]) -> int:
    """Writes the rows of `topics_index` that it lacks, from the topics' own tables; returns their number."""
    warehouse.make("topics_index")
    known = {f"topics/{row['directory']}" for row in warehouse.rows("topics_index")}
    rows = []
    for name in sorted(set(topics) - known):
        first = warehouse.read(name).orderBy("run_id").select("topic", "run_id", "committed_at").limit(1).collect()
        about = {"directory": name.partition("/")[2]}
        made = {"topic": "topic", "run_id": "run_id", "created_at": "committed_at"}
        rows += [about | {column: r[of] for column, of in made.items()} for r in first]
    warehouse.commit("topics_index", rows)
    return len(rows)


def missing(warehouse: KernelWarehouse, run: Run, written: RowsWritten) -> list[tuple[Target, Missing]]:
    """The tables that have fewer messages of a closed run than it decided."""
    digest = Digest.of(warehouse, run.run_id)
    owed = still_owed(warehouse, run.run_id)
    every = [target for target in targets(warehouse, run, digest) if target.name not in owed]
    counted = [(target, target.rows - written.of(target.path, run.run_id)) for target in every]
    return [(target, Missing(target.path, run.run_id, few)) for target, few in counted if few > 0]


def bring_back(warehouse: KernelWarehouse, run: Run, written: RowsWritten) -> list[Missing]:
    """Writes the messages that tables lack, each once, as far as their bodies are there."""
    done = []
    for target, few in missing(warehouse, run, written):
        number = _append_missing(warehouse, run, target)
        done.append(replace(few, without_body=max(few.rows - number, 0)))
    return done


def _append_missing(warehouse: KernelWarehouse, run: Run, target: Target) -> int:
    """The bodies are those of the newest version: they may have landed again since the run."""
    now = replace(run, inputs=dict(run.inputs) | {"half_messages": warehouse.version("half_messages")})
    whole = WholeMessages(warehouse, now, Digest.of(warehouse, run.run_id).of_any_landing, {0: target}, warehouse.stage)
    if warehouse.version(target.path) == NO_TABLE:
        warehouse.log.create(warehouse.path(target.path), target.spec)
    queue, offset = _PLACES[target.decision]
    there = warehouse.read(target.path, where=equal("run_id", run.run_id))
    keys = there.select(F.col(offset).alias("queue_offset"), F.col(queue).alias("queue_id"), "broker_name")
    with Kept(warehouse.stage) as kept:
        rows = messages(whole).join(keys, HALF_KEY, "left_anti").dropDuplicates(HALF_KEY)
        rows = kept.persisted(in_tables_columns(rows, whole))
        number = rows.count()
        if number:
            append_lost(warehouse, target.path, rows, Marker(target.app, run.run_id))
        return number


def bring_back_rejects(warehouse: KernelWarehouse, run: Run) -> int:
    """Writes the rejects of a closed run that the table lacks; returns their number."""
    if warehouse.version(REJECTED) == NO_TABLE:
        return 0
    stage = warehouse.stage
    with arrived(warehouse, run) as arrivals, rejects(warehouse, run, plan_of(arrivals)) as rows, Kept(stage) as kept:
        there = warehouse.read(REJECTED).where(F.col("run_id") == run.run_id)
        same = [rows[c].eqNullSafe(there[c]) for c in _OF_REJECT]
        lacking = kept.persisted(rows.join(there, same, "left_anti"))
        number = lacking.count()
        if number:
            with hold_rejected(warehouse):
                warehouse.commit(REJECTED, lacking)
        return number
