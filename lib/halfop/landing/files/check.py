"""One pass over all rows before anything is written: bad rows, and the queues and offsets of good ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from halfop.frame.errors import InputRefused
from halfop.landing.columns.op_items import item_texts
from halfop.landing.files.rows import Rows, refused_reading
from halfop.landing.paths import one_form, shown_path
from halfop.landing.queues import OffsetSpan, Queue

_EXAMPLES = 5


@dataclass
class Checked:
    """Rows of one kind, counted: good rows (of ops: items) and bad ones by file, the span of offsets by queue."""

    kind: str
    read: int = 0
    good: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    spans: dict[Queue, OffsetSpan] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)


def check(every: Sequence[Rows]) -> list[Checked]:
    """Reads all rows once and counts them, kind by kind; nothing is written."""
    found = {rows.kind: Checked(rows.kind) for rows in every}
    for row in _totals(every) if every else ():
        _add(found[row.row_kind], row)
    for rows in every:
        found[rows.kind].unknown |= rows.unknown
    return list(found.values())


def _add(checked: Checked, row: Row) -> None:
    checked.read += row.rows
    file = one_form(row.file)
    checked.bad[file] += row.bad
    checked.good[file] += row.good
    checked.unknown.update(name for names in row.unknown for name in names)
    if row.broker_name is not None:
        queue, span = Queue(row.broker_name, row.queue_id), OffsetSpan(row.lowest, row.highest, row.newest)
        checked.spans[queue] = span.joined(checked.spans.get(queue, span))


def _totals(every: Sequence[Rows]) -> Sequence[Row]:
    """One row for each file and queue, and one for each file's bad rows; all in one query."""
    totals = reduce(DataFrame.unionByName, map(_totals_of, every))
    try:
        return totals.collect()
    except (PySparkException, Py4JJavaError) as error:
        refused = refused_reading(error, [file for rows in every for file in rows.files])
        raise error if refused is None else refused from error


def _totals_of(rows: Rows) -> DataFrame:
    good = F.col("problem").isNull()
    landed = F.size(item_texts()) if rows.kind == "op" else F.lit(1)
    checked = rows.frame.withColumns({"good": good, "landed": F.when(good, landed).otherwise(0)})
    return checked.groupBy("file", _where(good, "broker_name"), _where(good, "queue_id")).agg(
        F.count("*").alias("rows"),
        F.count_if(~F.col("good")).alias("bad"),
        F.sum("landed").alias("good"),
        F.min("queue_offset").alias("lowest"),
        F.max("queue_offset").alias("highest"),
        F.unix_micros(F.max("store_timestamp")).alias("newest"),
        F.collect_set("unknown").alias("unknown"),
        F.lit(rows.kind).alias("row_kind"),
    )


def _where(good: Column, name: str) -> Column:
    return F.when(good, F.col(name)).alias(name)


def refuse_bad(rows: Rows, checked: Checked) -> None:
    """Raises InputRefused, naming the first bad rows, if there are any."""
    total = checked.bad.total()
    if total:
        examples = [_example(row) for row in _worded(rows, _EXAMPLES)]
        path, line, text = examples[0]
        raise InputRefused(path, line, text, _rest(examples[1:], total, checked.read))


def _worded(rows: Rows, most: int) -> list[Row]:
    bad = rows.bad(most).orderBy("file", "line")
    return bad.select("file", "line", "problem.*", F.col("block").isNull().alias("parquet")).collect()


def _example(row: Row) -> tuple[str, int | None, str]:
    path, text = shown_path(row.file), f"{row.reason}: {row.detail}"
    return (path, None, f"row_index {row.line}: {text}") if row.parquet else (path, row.line, text)


def _rest(others: Iterable[tuple[str, int | None, str]], total: int, read: int) -> str:
    lines = [f"{path}{'' if line is None else f':{line}'}: {text}" for path, line, text in others]
    many = f"{total} bad of {read} rows; nothing has landed, --skip-bad lands the others"
    return "\n".join([*lines, many])
