"""The rules tried on frames in memory: no landing, no Delta, no planning.

All that ever landed and was decided is at hand in each run, so nothing has to be looked up. Many cases are decided side
by side in one run, each under a broker name of its own; so hundreds of them cost a few Spark jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from halfop.columns.keys import HALF_KEY, QUEUE
from halfop.columns.lives import Lost
from halfop.rules import cases as c
from halfop.rules import halves as h
from halfop.rules import ops as o
from halfop.rules.settings_columns import RuleColumns
from halfop.warehouse.schema import table
from model import reference as m
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from support import rows as r
from support.rules.copies import Copies

Rows = list[dict[str, Any]]
_QUEUES = """broker_name STRING, queue_id INT, known_until TIMESTAMP, next_offset BIGINT, first_offset BIGINT,
    forgets_after BIGINT"""


class InMemory:
    """Tables as lists of rows: `land` and `resume`, then `run`; again and again."""

    def __init__(self, spark: SparkSession, rules: m.Settings, lost: Sequence[Lost] = ()) -> None:
        self._spark, self._settings, self._lost = spark, r.settings(rules).rules, tuple(lost)
        self._rows: dict[str, Rows] = {name: [] for name in _INPUTS}
        self._seen = dict.fromkeys(_INPUTS, 0)  # how many rows of each earlier runs have seen
        self._queues: dict[m.Queue, dict[str, Any]] = {}
        self._watched: set[str] = set()
        self._decided: list[pa.Table] = []
        self.rejected: Counter[r.Cells] = Counter()
        self.details: set[tuple[str, str]] = set()  # brokers, and what rejects say of their rows

    # ---- what lands ----

    def land(
        self,
        halves: Iterable[m.Half],
        ops: Iterable[m.Op],
        at: int,
        known_until: Mapping[m.Queue, int | None],
        *,
        finals: Iterable[m.Final] = (),
        discards: Iterable[m.BrokerDiscard] = (),
        sources: Mapping[str, str] | None = None,
        forgets_after: Mapping[m.Queue, int] | None = None,
    ) -> None:
        """Adds one landing; a queue that is not in `known_until` has no clock of its own."""
        landed = list(halves)
        self._watched |= {broker for broker, source in (sources or {}).items() if source == "STORE"}
        self._rows["half_messages"] += [r.half_cells(half, at) for half in landed]
        self._rows["op_messages"] += [r.op_cells(op, at) for op in ops]
        self._rows["final_messages"] += [r.final_cells(final, at) for final in finals]
        self._rows["broker_discards"] += [r.discard_cells(discard, at) for discard in discards]
        spans = r.spans(landed)
        for queue, until in known_until.items():
            self._know(queue, until, spans.get(queue))
            self._queues[queue]["forgets_after"] = (forgets_after or {}).get(queue, 0) * 1000 or None

    def _know(self, queue: m.Queue, until: int | None, span: tuple[int, int] | None) -> None:
        clock = self._queues.setdefault(queue, {"broker_name": queue[0], "queue_id": queue[1]})
        untils = [at for at in (clock.get("known_until"), until) if at is not None]
        clock["known_until"] = max(untils, default=None)
        if span:
            clock["first_offset"] = min(clock.get("first_offset", m.LONG_MAX), span[0])
            clock["next_offset"] = max(clock.get("next_offset", 0), span[1])

    def resume(self, keys: Iterable[m.Key], at: int) -> None:
        self._rows["resumes"] += [r.resume_cells(key, at) for key in keys]

    # ---- a run ----

    def run(self, now: int) -> list[m.Decision]:
        """Decides all that is open, and returns the run's decisions as the model words them."""
        rules = self._rules(now)
        ops = self._ops()
        rows = self._halves(rules)
        named = o.as_named(ops).unionByName(o.waiting(self._open())).unionByName(self._ops_before())
        copies = self._copies(rows, named, rules)
        resumes = self._resumes(copies)
        both = copies.halves(resumes).join(o.by_half(copies.named), HALF_KEY, "full")
        cases = c.cases(both, resumes, self._clocks(), rules).localCheckpoint()
        self._keep(c.decisions(cases, rules), copies.superseded)
        self._reject(cases, ops, resumes, rules)
        self._seen = {name: len(rows) for name, rows in self._rows.items()}
        return r.as_decisions(_in_millis(self._decided[-1]), len(self._decided))

    @property
    def cells(self) -> Rows:
        """The last run's rows with all their cells."""
        return _in_millis(self._decided[-1])

    def carried_over(self, now: int) -> Rows:
        """What a run makes of all that is open, if none of it is in the run's slice."""
        return _in_millis(c.carried_over(self._open(), self._rules(now)).toArrow())

    def _rules(self, now: int) -> RuleColumns:
        forgets = any(queue >= m.ROCKSDB_QUEUES for _, queue in self._queues)
        watched = frozenset(self._watched)
        return RuleColumns(self._settings, r.instant(now), watched, lost=self._lost, forgets=forgets)

    def _halves(self, rules: RuleColumns) -> DataFrame:
        """All half messages, one row a key: what arrived, what is open, what has ended."""
        arrived = h.landed(self._arrived("half_messages"), rules)
        closed = self._decisions(*self._decided).where(~F.col("open"))
        return h.one_per_key(arrived.unionByName(h.carried(self._open())).unionByName(h.closed(closed)))

    def _ops(self) -> DataFrame:
        arrived, before = (o.landed(rows) for rows in (self._arrived("op_messages"), self._before("op_messages")))
        return o.once_per_row(arrived, before)

    def _ops_before(self) -> DataFrame:
        """Ops of earlier landings that name half messages which arrived now."""
        before = o.landed(self._before("op_messages"))
        arrived = self._arrived("half_messages").select(*QUEUE, F.col("queue_offset").alias("half_offset")).distinct()
        return o.as_named(o.once_per_row(before.join(arrived, arrived.columns, "left_semi"), before))

    def _copies(self, rows: DataFrame, named: DataFrame, rules: RuleColumns) -> Copies:
        arrived, before = self._arrived("broker_discards"), self._before("broker_discards")
        closed = self._decisions(*self._decided)
        finals = self._frame("final_messages", self._rows["final_messages"])
        return Copies(rows.localCheckpoint(), named, arrived, before, closed, finals, rules)

    def _resumes(self, copies: Copies) -> DataFrame | None:
        if len(self._rows["resumes"]) == self._seen["resumes"]:
            return None
        rows = copies.standing_at(self._arrived("resumes").withColumn("asked", F.struct(*HALF_KEY)))
        nth = F.row_number().over(Window.partitionBy(HALF_KEY).orderBy("resumed_at", "owner", "asked"))
        return rows.withColumn("nth", nth)

    def _clocks(self) -> DataFrame:
        struct = cast(StructType, StructType.fromDDL(_QUEUES))
        return r.in_memory(self._spark, struct, list(self._queues.values())).withColumn("has_clock", F.lit(True))

    def _keep(self, decided: DataFrame, superseded: DataFrame | None) -> None:
        rows = decided if superseded is None else decided.unionByName(superseded, allowMissingColumns=True)
        run_id = F.lit(len(self._decided) + 1).cast("bigint")
        self._decided.append(rows.withColumn("run_id", run_id).select(table("decisions").names).toArrow())

    def _reject(self, cases: DataFrame, ops: DataFrame, resumes: DataFrame | None, rules: RuleColumns) -> None:
        rows = c.may_have_rejects(cases, rules)
        found = [c.rejected_ops(rows, rules), c.faulty_ops(ops), c.reused_keys(rows)]
        found += [] if resumes is None else [c.refused_resumes(rows, resumes)]
        both = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), found)
        for *cells, detail in both.select(*r.REJECTED, "detail").collect():
            self.rejected[tuple(cells)] += 1
            self.details.add((cells[2], detail))
        # a run writes half messages that it rejects beside the others
        bad = [row for row in self._decided[-1].to_pylist() if row["decision"] == "REJECT"]
        for row in bad:
            cells = row | {"kind": "HALF", "item": None, "half_offset": row["queue_offset"]}
            self.rejected[tuple(cells[name] for name in r.REJECTED)] += 1

    # ---- frames ----

    def _open(self) -> DataFrame:
        return self._decisions(*self._decided[-1:]).where("open")

    def _decisions(self, *runs: pa.Table) -> DataFrame:
        if not runs:
            return r.in_memory(self._spark, table("decisions").struct, [])
        return self._spark.createDataFrame(pa.concat_tables(runs))

    def _arrived(self, name: str) -> DataFrame:
        return self._frame(name, self._rows[name][self._seen[name] :])

    def _before(self, name: str) -> DataFrame:
        return self._frame(name, self._rows[name][: self._seen[name]])

    def _frame(self, name: str, rows: Rows) -> DataFrame:
        written = set(table(name).given)
        return r.in_memory(self._spark, StructType([f for f in table(name).struct if f.name in written]), rows)


def _in_millis(decided: pa.Table) -> Rows:
    """Returns the rows with their instants as epoch milliseconds."""
    for number, field in enumerate(decided.schema):
        if pa.types.is_timestamp(field.type):
            millis = pc.divide(decided[number].cast(pa.int64()), 1000)
            decided = decided.set_column(number, field.name, millis)
    return list(decided.to_pylist())


_INPUTS = ("half_messages", "op_messages", "final_messages", "broker_discards", "resumes")
