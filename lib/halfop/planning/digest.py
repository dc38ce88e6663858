"""A run's own decisions in short, read back from the plan, whoever committed it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from halfop.columns.keys import in_one, made_of
from halfop.planning.counts import OffsetRange
from halfop.warehouse.disk import Disk
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.parquet import arrow_schema
from halfop.warehouse.rows import Kept
from halfop.warehouse.schema import table
from halfop.warehouse.splits import ParquetPart, Split, repeating, splits_of
from halfop.warehouse.table_files import files_or_few
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import equal
from halfop.warehouse.workers import in_workers

Counts = dict[str, dict[str, int]]
# Bounds of commit latency, in seconds.
LATENCIES = (1, 2, 5, 10, 20, 30, 60, 120, 300, 900, 3_600, 86_400)


_GROUP = ["decision", "reason", "topic", "broker_name", "queue_id", "landing"]
_TEXTS = ["decision", "reason", "real_topic", "broker_name", "copy_broker"]
_READ = [*_TEXTS, "run_id", "queue_id", "queue_offset", "copy_queue", "copy_offset", "half_landed_at", "repeated"]
_READ += ["born_timestamp"]
_WITHIN = [f"within_{bound}" for bound in LATENCIES]
_MERGED = {"low": "min", "high": "max", "born": "min", "repeated": "max", "by_copy": "max"}
_MERGED |= dict.fromkeys(["rows", "timed", "took", *_WITHIN], "sum")
_TYPES = dict.fromkeys(["decision", "reason", "topic", "broker_name"], pa.string()) | {"queue_id": pa.int32()}
_SPANS = pa.schema([(name, _TYPES.get(name, pa.int64())) for name in [*_GROUP, *_MERGED]])


@dataclass(frozen=True)
class Latency:
    """The time that messages took from their birth to their commit: how many at most each of LATENCIES, and in all."""

    within: tuple[int, ...] = (0,) * len(LATENCIES)
    messages: int = 0
    seconds: float = 0.0

    def plus(self, other: Latency) -> Latency:
        within = tuple(map(sum, zip(self.within, other.within, strict=True)))
        return Latency(within, self.messages + other.messages, round(self.seconds + other.seconds, 3))


@dataclass(frozen=True)
class Digest:
    """Rows by decision, reason, queue, landing and (of committed ones) topic, with the offsets that they span."""

    rows: list[dict[str, Any]]

    @staticmethod
    def of(warehouse: Warehouse, run_id: int, at: datetime | None = None) -> Digest:
        """Reads a run's decisions; `at` is when its messages are committed, if that counts for their latency."""
        now = None if at is None else int(at.timestamp() * 1_000)
        struct = StructType([table("decisions").struct[name] for name in _READ])
        if not isinstance(warehouse, KernelWarehouse):
            rows = warehouse.read("decisions", where=equal("run_id", run_id)).select(struct.names)
            return Digest(_in_batches(rows, run_id, now))
        with Kept(warehouse.stage) as kept:
            files, few = files_or_few(warehouse, "decisions", struct, run_id, kept)
            if few is not None:
                return Digest(together(_by_group(batch, run_id, now) for batch in few.to_batches()).to_pylist())
            parts = splits_of(files, warehouse.tasks_for(files))
            shares = [DigestTask(run_id, now, arrow_schema(struct), splits) for splits in parts]
            return Digest(together(in_workers(warehouse, shares, digested)).to_pylist())

    @property
    def counts(self) -> Counts:
        return by_reason((row["decision"], row["reason"], row["rows"]) for row in self.rows)

    @property
    def recorded(self) -> dict[str, int]:
        """The counts as `runs` has them, by DECISION.REASON."""
        return {f"{decision}.{reason}": n for decision, of in self.counts.items() for reason, n in of.items()}

    @property
    def totals(self) -> dict[str, int]:
        return {decision: sum(reasons.values()) for decision, reasons in self.counts.items()}

    def rows_for(self, decision: str, topic: str) -> int:
        """Returns the number of messages decided so, of one topic if it is named."""
        return self.topics.get(topic, 0) if topic else self.totals.get(decision, 0)

    def repeated(self, decisions: Collection[str]) -> bool:
        """Returns whether one of the messages landed more than once."""
        return any(row["repeated"] for row in self.rows if row["decision"] in decisions)

    def by_copy(self, decisions: Collection[str]) -> bool:
        """Returns whether a copy is delivered that another row stands for."""
        return any(row["by_copy"] for row in self.rows if row["decision"] in decisions)

    @property
    def of_any_landing(self) -> Digest:
        """Returns the digest for half messages that may have landed again since the run."""
        return Digest([row | {"landing": None} for row in self.rows])

    def ranges(self, decisions: Collection[str]) -> list[OffsetRange]:
        """Ranges of offsets in which the half messages lie that were decided so."""
        found: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
        for row in self.rows:
            if row["decision"] in decisions and None not in (row["broker_name"], row["queue_id"], row["low"]):
                found.setdefault((row["broker_name"], row["queue_id"], row["landing"]), []).append(row)
        return [
            OffsetRange(broker, queue, min(r["low"] for r in rows), max(r["high"] for r in rows), landing)
            for (broker, queue, landing), rows in found.items()
        ]

    def oldest(self, decisions: Collection[str]) -> int | None:
        """Returns when the oldest message that was decided so was born, in epoch milliseconds."""
        born = [row["born"] for row in self.rows if row["decision"] in decisions and row["born"] is not None]
        return min(born, default=None)

    @property
    def latency(self) -> Latency:
        """Returns how long the committed messages took."""
        timed = [
            Latency(tuple(r[name] for name in _WITHIN), r["timed"], r["took"] / 1_000) for r in self.rows if r["timed"]
        ]
        return reduce(Latency.plus, timed, Latency())

    @property
    def topics(self) -> dict[str, int]:
        """The topics that messages were committed to, with their number."""
        found: dict[str, int] = {}
        for row in self.rows:
            if row["topic"] is not None:
                found[row["topic"]] = found.get(row["topic"], 0) + row["rows"]
        return dict(sorted(found.items()))


def by_reason(rows: Iterable[tuple[str, str | None, int]]) -> Counts:
    """Rows by decision and reason, in the order of their names: a run that is done again records the same."""
    counts: Counts = {}
    for decision, reason, n in sorted((decision, reason or "NONE", n) for decision, reason, n in rows):
        reasons = counts.setdefault(decision, {})
        reasons[reason] = reasons.get(reason, 0) + n
    return counts


# ---- by tasks ----


class DigestTask(NamedTuple):
    """Files of decisions that one task reads, and what it looks for in them; `now` in epoch milliseconds."""

    run_id: int
    now: int | None
    schema: pa.Schema
    splits: Sequence[Split]


def digested(share: DigestTask, disk: Disk) -> pa.Table:
    """The files' rows of the run, in groups."""
    schema = repeating(share.schema, *_TEXTS)
    parts = (ParquetPart(disk, split, schema).between("run_id", share.run_id, share.run_id) for split in share.splits)
    return together(_by_group(batch, share.run_id, share.now) for part in parts for batch in part.batches())


def together(parts: Iterable[pa.Table]) -> pa.Table:
    """One row a group of all parts."""
    return _merged(pa.concat_tables([_SPANS.empty_table(), *parts]))


def _merged(rows: pa.Table) -> pa.Table:
    grouped = rows.group_by(_GROUP, use_threads=False).aggregate(list(_MERGED.items()))
    return grouped.rename_columns([*_GROUP, *_MERGED])


def _in_batches(rows: DataFrame, run_id: int, now: int | None) -> list[dict[str, Any]]:
    """The groups of rows that only Spark reaches."""
    found = made_of(rows, lambda batch: [in_one(_by_group(batch, run_id, now))], from_arrow_schema(_SPANS)).toArrow()
    return list(together([found.cast(_SPANS)]).to_pylist())


def _by_group(batch: pa.RecordBatch, run_id: int, now: int | None) -> pa.Table:
    mine = batch.filter(pc.equal(batch["run_id"], run_id))
    decision, reason, topic, broker, other_broker = (mine[name].cast(pa.string()) for name in _TEXTS)
    committed, born = pc.equal(decision, "COMMIT"), _millis(mine["born_timestamp"])
    took = pc.if_else(committed, _since(born, now), None)
    half, copied = pc.coalesce(mine["copy_offset"], mine["queue_offset"]), pc.is_valid(mine["copy_offset"])
    cells = {
        "decision": decision,
        "reason": reason,
        "topic": pc.if_else(committed, topic, None),
        "broker_name": pc.coalesce(other_broker, broker),
        "queue_id": pc.coalesce(mine["copy_queue"], mine["queue_id"]),
        "landing": mine["half_landed_at"].cast(pa.int64()),
        "low": half,
        "high": half,
        "born": born,
        "repeated": _as_number(mine["repeated"]),
        "by_copy": _as_number(copied),
        "rows": pa.repeat(pa.scalar(1), len(mine)),
        "timed": _as_number(pc.is_valid(took)),
        "took": pc.fill_null(took, 0),
    }
    within = {f"within_{bound}": _as_number(pc.less_equal(took, bound * 1_000)) for bound in LATENCIES}
    return _merged(pa.table(cells | within))


def _as_number(flags: pa.Array) -> pa.Array:
    return pc.fill_null(flags, False).cast(pa.int64())


def _since(born: pa.Array, now: int | None) -> pa.Array:
    if now is None:
        return pa.nulls(len(born), pa.int64())
    return pc.max_element_wise(pc.subtract(now, born), 0, skip_nulls=False)


def _millis(times: pa.Array) -> pa.Array:
    micros = times.cast(pa.int64())
    found = np.floor_divide(pc.fill_null(micros, 0).to_numpy(zero_copy_only=False), 1_000)
    return pc.if_else(pc.is_valid(micros), pa.array(found), None)
