"""`maintain --values`: a topic's values made again by its setting, or the schema of its bodies found.

All rows are written again in one commit, so a reader sees the values of before or those of after. Who is killed leaves
those of before, and the next call begins again. It works while a run is open, too: that run may wait for it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from halfop.columns.keys import made_of
from halfop.frame.errors import UsageError
from halfop.frame.nearest import did_you_mean
from halfop.frame.summary import Summary
from halfop.runs.record import still_writing
from halfop.settings.load import default_config
from halfop.settings.model import Settings
from halfop.settings.topics import INFER, ValueSettings
from halfop.sinks.layout import with_bounds
from halfop.sinks.pieces import PLAIN, plain_pieces
from halfop.sinks.rebuilt import next_rebuild
from halfop.sinks.targets import TOPIC_APP
from halfop.sql.views import named_in_sql
from halfop.values.columns import UnfitTable, form_of
from halfop.values.reading import Reading
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import hold
from halfop.warehouse.schema import STATS, VALUE, VALUE_ERROR, TableSpec
from halfop.warehouse.session import session_settings
from halfop.warehouse.tables import spec_of
from halfop.warehouse.upkeep import UPKEEP, TableUpkeep

_SAMPLE, _SAMPLE_BYTES = 10_000, 64 << 20


def make_values(warehouse: KernelWarehouse, settings: Settings, topic: str, config: Path | None) -> Summary:
    """Makes the values of a topic again; if its schema is `infer`, writes one into the settings' file instead."""
    summary = Summary("maintain")
    setting = settings.topics.values.get(topic)
    if setting is None:
        raise UsageError(f"--values {topic}: set topics.{topic}.value.format first, and what it needs")
    lock = hold(warehouse, "run", settings.lock.wait)
    with session_settings(warehouse.spark, UPKEEP), summary.shown_in_failure(), lock, summary.phase("values"):
        path = _path(warehouse, topic)
        if setting.infers:
            _infer(_bodies(warehouse, path), topic, config, summary)
        else:
            _remake(warehouse, topic, path, setting, summary)
    return summary


def _path(warehouse: KernelWarehouse, topic: str) -> str:
    known = {row["topic"]: row["directory"] for row in warehouse.rows("topics_index")}
    if topic not in known:
        raise UsageError(f"--values {topic}: no message was committed to that topic{did_you_mean(topic, known)}")
    return f"topics/{known[topic]}"


def _bodies(warehouse: KernelWarehouse, path: str) -> DataFrame:
    return warehouse.connector.read(warehouse.path(path), spec_of(path))


# ---- made again ----


def _remake(warehouse: KernelWarehouse, topic: str, path: str, setting: ValueSettings, summary: Summary) -> None:
    spec, reading = form_of(topic, setting, spec_of(path))
    _refuse_stuck(warehouse, topic, spec)
    marker, recorded = next_rebuild(warehouse, path, warehouse.marker(path, TOPIC_APP), setting)
    others = _bodies(warehouse, path).drop(VALUE, VALUE_ERROR)
    form = _with_values(others.schema, spec.struct)
    table = TableUpkeep(warehouse, path)
    laid_out_by = with_bounds(table.clustered_by, form)
    table.rewrite(made_of(others, _Remaking(reading), form), marker, recorded | _bounds(table, form))
    if laid_out_by:  # Delta forgets the columns when rows are replaced
        table.cluster(laid_out_by)
    counted = warehouse.read(path).agg(F.count("*").alias("rows"), F.count(VALUE_ERROR).alias("errors")).collect()[0]
    summary.rows_written["topics"] = counted["rows"]
    if counted["errors"]:
        summary.extra["value_errors"] = {topic: counted["errors"]}
        summary.extra["value_errors_in"] = named_in_sql(warehouse, [topic])


def _refuse_stuck(warehouse: KernelWarehouse, topic: str, spec: TableSpec) -> None:
    """Raises UsageError if a run that has not written all would not fit the table's new form."""
    for run in still_writing(warehouse, f"topics/{topic}"):
        its = run.settings.topics.values.get(topic)
        try:
            if its is not None and not its.infers:
                form_of(topic, its, spec)
        except UnfitTable as error:
            raise UsageError(
                f"--values {topic}: run {run.run_id} still writes there by its own topics.{topic}.value, and could not "
                "end with these values: reconcile first"
            ) from error


def _with_values(others: StructType, ours: StructType) -> StructType:
    """The columns of a table, also those that only it has, and its values as the last ones."""
    has = [ours[field.name] if field.name in ours.names else field for field in others]
    return StructType([*has, ours[VALUE], ours[VALUE_ERROR]])


def _bounds(table: TableUpkeep, form: StructType) -> dict[str, str]:
    """The property of the columns that have bounds, without those that the new form lacks: Delta would refuse it."""
    names = table.properties.get(STATS, "").split(",")
    lost = {n for n in names if n.split(".")[0] == VALUE} - {*with_bounds(names, form)}
    return {STATS: ",".join(n for n in names if n not in lost)} if lost else {}


class _Remaking:
    """What a worker does with rows of a topic."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def __call__(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for piece in plain_pieces(rows):
            values, reasons = self._reading.values(piece[PLAIN])
            columns = [*(piece[name] for name in rows.schema.names), values, reasons]
            yield pa.RecordBatch.from_arrays(columns, names=[*rows.schema.names, VALUE, VALUE_ERROR])


# ---- inferred ----


def _infer(rows: DataFrame, topic: str, config: Path | None, summary: Summary) -> None:
    from halfop.values.infer import inferred  # noqa: PLC0415 - its library is the format's

    sample = _sample(rows)
    pieces = (piece for batch in sample.to_batches() for piece in plain_pieces(batch))
    ddl, left_out = inferred(body for piece in pieces for body in piece[PLAIN].to_pylist() if body is not None)
    if not ddl:
        raise UsageError(
            f"topics.{topic}.value.schema: no body of {len(sample)} is a JSON object with fields of one type"
        )
    written = _written(config, topic, ddl)
    where = f"written to {written}: review it, then" if written else f"set topics.{topic}.value.schema to it, then"
    summary.notes.append(f"{topic}: {ddl}")
    summary.notes.append(f"{where} maintain --values {topic} makes the values of what was delivered before")
    if left_out:
        summary.notes.append(
            f"left out, because no type fits all: {', '.join(sorted(set(left_out)))}; to have one, add it to the "
            "schema with the type of most bodies: the others get a value_error"
        )


def _sample(rows: DataFrame) -> pa.Table:
    """The newest bodies, at least one: so many that this process can take them."""
    keys = (F.desc("run_id"), "half_queue_offset", "half_queue_id", "broker_name")
    sizes = rows.withColumn("body", F.length("body")).orderBy(*keys).limit(_SAMPLE).select("body").toArrow()["body"]
    taken = sum(total <= _SAMPLE_BYTES for total in accumulate(size or 0 for size in sizes.to_pylist()))
    return rows.orderBy(*keys).limit(max(taken, 1)).select("body", "sys_flag").toArrow()


def _written(config: Path | None, topic: str, ddl: str) -> str | None:
    """The file in which the schema is now; None if it does not come from there."""
    file = Path(default_config(os.environ)[0]) if config is None else config
    try:
        text = file.read_text(encoding="utf-8")
        node: Any = yaml.compose(text, yaml.SafeLoader)
        for name in ("topics", topic, "value", "schema"):
            node = next(value for key, value in node.value if key.value == name)
        if node.value != INFER:
            return None
        before, after = text[: node.start_mark.index], text[node.end_mark.index :]
        file.write_text(before + json.dumps(ddl, ensure_ascii=False) + after, encoding="utf-8")
    except (AttributeError, StopIteration, TypeError, ValueError, OSError):
        return None
    return str(file)
