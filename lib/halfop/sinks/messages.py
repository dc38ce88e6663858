"""Whole messages of a run as rows of all their tables: committed, discarded, asked about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from halfop.columns.key_sets import look_up, packed
from halfop.columns.keys import HALF_KEY, made_of, present
from halfop.planning.counts import OffsetRange, covers
from halfop.planning.run import Run
from halfop.rules.halves import IDENTITY, read_copies
from halfop.sinks.projections import projected_each
from halfop.sinks.targets import WholeMessages
from halfop.warehouse.parquet import arrow_schema
from halfop.warehouse.schema import VALUE
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.upkeep import trimmed_before
from halfop.warehouse.where import equal

TARGET = "target"  # the number of the table that a row goes to


def messages(whole: WholeMessages, once: bool = True) -> DataFrame:
    """Half messages with what was decided about them and their table's number.

    Without `once`, those alone that landed more than once, or that another copy stands for.
    """
    return _numbered(whole, with_bodies(whole, once)).select(*whole.columns, TARGET)


def in_tables_columns(rows: DataFrame, whole: WholeMessages) -> DataFrame:
    """Those rows with the columns of all tables; those that a row's table lacks are null.

    Each table with values has a column of its own for them: `of_target` takes it.
    """
    struct, forms, about, given = _all_columns(whole), whole.forms, whole.about, whole.columns
    kind = pa.struct(list(arrow_schema(struct)))

    def project(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        return projected_each(batch, TARGET, kind, forms, about)

    with_target = StructType([StructField(TARGET, IntegerType()), *struct])
    return made_of(rows.select(TARGET, *given), project, with_target)


def _all_columns(whole: WholeMessages) -> StructType:
    fields: dict[str, StructField] = {}
    for number, target in whole.due.items():
        for each in target.spec.struct:
            name = whole.forms[number].value if each.name == VALUE else each.name
            fields[name] = StructField(name, each.dataType, True, each.metadata)
    return StructType(list(fields.values()))


def of_target(rows: DataFrame, whole: WholeMessages, number: int) -> DataFrame:
    """One table's rows of those, in its form."""
    own = {VALUE: F.col(whole.forms[number].value).alias(VALUE)} if whole.due[number].reading else {}
    names = whole.due[number].spec.names
    return rows.where(F.col(TARGET) == number).select(*[own.get(name, name) for name in names])


def _numbered(whole: WholeMessages, rows: DataFrame) -> DataFrame:
    """Rows with the number of the table that they go to; rows of tables that have them already are left out."""
    given = [(target.decision, target.topic, n) for n, target in whole.due.items()]
    numbers = whole.warehouse.frame(given, f"decision STRING, to_topic STRING, {TARGET} INT")
    by_topic = (F.col("decision") == "COMMIT") & F.lit(whole.a_table_a_topic)
    rows = rows.withColumn("to_topic", F.when(by_topic, F.col("real_topic")).otherwise(""))
    return rows.join(F.broadcast(numbers), ["decision", "to_topic"])


# Columns that distinguish a half message that landed more than once, and a copy that another stands for, from others.
_SAME = [*HALF_KEY, *IDENTITY, "real_topic", "real_queue_id", "producer_group"]
_SAME_COPY = [*HALF_KEY, "commit_log_offset", "producer_group", "uniq_key", "born_timestamp"]


def with_bodies(whole: WholeMessages, once: bool) -> DataFrame:
    """The half messages that the run decided so, each once, with the columns of their decisions that the tables get.

    Without `once`, those alone that landed more than once, or that another copy stands for; there must be some.
    """
    digest, decisions, payload = whole.digest, whole.decisions, ["decision", *whole.payload]
    mine = whole.read("decisions", None, equal("run_id", whole.run.run_id))
    decided = mine.where(F.col("decision").isin(decisions))
    halves = _halves(whole, digest.ranges(decisions))
    other = F.col("copy_offset").isNotNull()
    found = []
    if once:
        plain = packed(decided.where(~F.col("repeated") & ~other), whole.rows, payload)
        found.append(look_up(halves, plain, payload, "inner"))
    if digest.repeated(decisions):
        found.append(_picked(halves, decided.where(F.col("repeated") & ~other), payload, _SAME))
    if digest.by_copy(decisions):
        found.append(_copies(halves, decided.where(other), payload))
    return reduce(DataFrame.unionByName, found)


def _halves(whole: WholeMessages, ranges: Sequence[OffsetRange]) -> DataFrame:
    """The half messages of these ranges; of discarded ones that `maintain` has trimmed what was set aside."""
    run, near = whole.run, covers(ranges, "queue_offset")
    halves = whole.read("half_messages", run.inputs["half_messages"], near)
    floor = trimmed_before_those(whole.warehouse, run, ranges)
    if floor is None:
        return halves
    aside = whole.read("trans_check_max_time", None, near).where(F.col("run_id") < run.run_id)
    trimmed = aside.where(F.col("landed_at") < F.timestamp_micros(F.lit(floor))).dropDuplicates(HALF_KEY)
    trimmed = trimmed.join(halves.select(HALF_KEY), HALF_KEY, "left_anti")
    kept = [c for c in halves.columns if c in trimmed.columns]
    return halves.unionByName(trimmed.select(kept), allowMissingColumns=True)


def trimmed_before_those(warehouse: Warehouse, run: Run, ranges: Sequence[OffsetRange]) -> int | None:
    """The instant before which half messages of these ranges may have been trimmed; None if none has been."""
    floor = trimmed_before(warehouse, run.inputs["half_messages"])
    if floor is None or all(each.landed_at is not None and each.landed_at >= floor for each in ranges):
        return None
    return floor


def _copies(halves: DataFrame, decided: DataFrame, payload: list[str]) -> DataFrame:
    """The copies that were named, if other copies stand for their transactions."""
    copies = (
        decided.withColumn("key", F.struct(named_key()))
        .withColumn("copy", F.explode(read_copies()))
        .where(" AND ".join(f"copy.{name} = key.{name}" for name in HALF_KEY))
    )
    of_copy = {c: F.col("copy")[c] for c in (*HALF_KEY, "commit_log_offset")}
    return _picked(halves, copies.withColumns(of_copy), payload, _SAME_COPY)


def named_key() -> list[Column]:
    """The half key that a decision is about: that of the copy that was named, or its own."""
    copies = {"broker_name": "copy_broker", "queue_id": "copy_queue", "queue_offset": "copy_offset"}
    return [F.coalesce(of, name).alias(name) for name, of in copies.items()]


def _picked(halves: DataFrame, decided: DataFrame, payload: list[str], same: list[str]) -> DataFrame:
    """Exactly the half messages that were decided, by all columns of `same`; of equal rows, one."""
    picked = decided.select(*[F.col(c).alias(f"decided_{c}") for c in same], *payload)
    equal = [_comparable(c).eqNullSafe(F.col(f"decided_{c}")) for c in same]
    return halves.join(picked, equal).dropDuplicates(HALF_KEY).select(*halves.columns, *payload)


def _comparable(column: str) -> Column:
    texts = ("uniq_key", "real_topic", "producer_group")
    return present(F.col(column)) if column in texts else F.col(column)
