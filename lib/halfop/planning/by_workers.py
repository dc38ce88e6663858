"""A large run's plain half messages, decided by Spark's Python workers where its files lie on a local disk."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from halfop.columns.keys import HALF_KEY
from halfop.planning.plain import ENDED, LEFT, NARROW, OP, Decided, Share, decide_share
from halfop.planning.run import Slice
from halfop.planning.transactions import Transactions
from halfop.rules import halves as h
from halfop.warehouse.actions import DataFile
from halfop.warehouse.local import local_files_between, takes_local_files
from halfop.warehouse.parquet import arrow_schema, searched
from halfop.warehouse.schema import table
from halfop.warehouse.splits import Split, splits_of
from halfop.warehouse.workers import in_workers

_LONGEST = (-(2**63), 2**63 - 1)


@dataclass(frozen=True)
class PlainDecided:
    """Files of decisions, not yet part of the table, and the rows that are left to the rules."""

    files: list[DataFile]
    halves: DataFrame
    named: DataFrame


def unfit(transactions: Transactions) -> str | None:
    """Why workers cannot decide anything; None if they can."""
    arrivals = transactions.arrivals
    if not transactions.plain or transactions.history.looked_up or arrivals.counts.halves.repeated:
        return "copies, final messages or messages of earlier runs count"
    if arrivals.counts.ops.repeated or not arrivals.ops_as_landed:
        return "ops repeat"
    if not arrivals.counts.all_met:
        return "ops name half messages that are not here"
    if arrivals.resumes is not None:
        return "messages are resumed"
    return None if takes_local_files(arrivals.warehouse, "decisions") else "Spark must write the decisions"


def decided_by_workers(transactions: Transactions) -> PlainDecided | None:
    """Decides the plain ones; None if their files are not at hand."""
    arrivals = transactions.arrivals
    folder = arrivals.warehouse.path(f"_staging/run-{arrivals.run.run_id}-{uuid.uuid4().hex}")
    shares = _shares(transactions, folder)
    if shares is None:
        return None
    arrivals.kept.callback(arrivals.warehouse.files.remove, folder)
    done = in_workers(arrivals.warehouse, shares, decide_share)
    left = _left(transactions, _of(done, LEFT))
    some_named = any(each.named for each in done) or arrivals.open is not None
    keys = left.select(HALF_KEY)
    named = transactions.named.join(keys, HALF_KEY, "left_semi") if some_named else transactions.named.limit(0)
    return PlainDecided([replace(file, partition={"open": False}) for file in _of(done, ENDED)], left, named)


def _of(done: Sequence[Decided], kind: str) -> list[DataFile]:
    return [file for each in done for file in each.files.get(kind, ())]


def _shares(transactions: Transactions, folder: str) -> list[Share] | None:
    arrivals = transactions.arrivals
    warehouse, run = arrivals.warehouse, arrivals.run
    found = [
        local_files_between(warehouse, name, run.inputs_before[name], run.inputs[name])
        for name in ("half_messages", "op_messages")
    ]
    halves, ops = found
    if not halves or ops is None:
        return None
    schemas = {name: arrow_schema(table(name).struct) for name in ("half_messages", "op_messages", "decisions")}
    low, high = _offsets(run.slice)
    share = Share(
        halves=(),
        ops=[Split(file.path, 0, file.size) for file in ops],
        half_schema=pa.schema([schemas["half_messages"].field(name) for name in NARROW]),
        op_schema=pa.schema([schemas["op_messages"].field(name) for name in OP]),
        decisions=pa.schema([field for field in schemas["decisions"] if field.name != "open"]),
        deliverable=_deliverable(transactions),
        run_id=run.run_id,
        now=pa.scalar(run.now).cast(pa.timestamp("us", tz="UTC")).value,
        low=low,
        high=high,
        folders={
            ENDED: warehouse.files.qualified(f"{warehouse.path('decisions')}/open=false"),
            LEFT: warehouse.files.qualified(folder),
        },
        searched=searched(table("decisions")),
    )
    tasks = warehouse.tasks(arrivals.counts.halves.arrived)
    return [share._replace(halves=part) for part in splits_of([(f.path, f.size) for f in halves], tasks)]


def _offsets(part: Slice) -> tuple[int, int]:
    low, high = part.from_offset, part.to_offset
    return _LONGEST[0] if low is None else low, _LONGEST[1] if high is None else high - 1


def _deliverable(transactions: Transactions) -> list[str]:
    """The real topics to which the rules let messages be delivered."""
    topics = transactions.halves.select("real_topic").distinct().withColumn("real_queue_id", F.lit(0))
    return [row["real_topic"] for row in topics.where(h.undeliverable().isNull()).select("real_topic").collect()]


def _left(transactions: Transactions, files: Sequence[DataFile]) -> DataFrame:
    """The half messages that are left, and the open set."""
    arrivals = transactions.arrivals
    struct = StructType([field for field in table("half_messages").struct if field.name in NARROW])
    spark = arrivals.warehouse.spark
    paths = [re.sub(r"([][{}*?\\])", r"\\\1", file.path) for file in files]  # Spark takes patterns
    rows = spark.read.schema(struct).parquet(*paths) if paths else spark.createDataFrame([], struct)
    rows = h.landed(rows, arrivals.rules)
    return h.nothing_else(rows if arrivals.open_halves is None else rows.unionByName(arrivals.open_halves))
