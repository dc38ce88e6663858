"""Whole messages to many tables in one pass over the bodies.

Each target's files lie in its folder and become part of its table by one commit of the log. The commits run side by
side. Three ways lead there: few messages are written by this process; others by Spark's Python workers, from files to
files; and what those cannot read, or must not, by Spark, into a staging folder from which the files are moved.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.frame.errors import HalfopError
from halfop.sinks.by_workers import writing_tasks, written_by_workers
from halfop.sinks.messages import TARGET, in_tables_columns, messages, of_target
from halfop.sinks.projections import Form, in_pieces, projected
from halfop.sinks.removed import refuse_lost, without_body
from halfop.sinks.targets import Target, WholeMessages
from halfop.warehouse.disk import DataFile
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.parquet import write_files
from halfop.warehouse.reading import FEW
from halfop.warehouse.rows import Kept
from halfop.warehouse.schema import VALUE_ERROR, TableSpec
from halfop.warehouse.spark_errors import OPERATIONAL_ERRORS, raise_mistake
from halfop.warehouse.table_files import STAGING, staging_folder, write_apart
from halfop.warehouse.tables import Marker, Warehouse

log = logging.getLogger("halfop.reconcile")
_ERASED = (
    "%s: %d messages have been erased before run %d decided %s about them, or lack a part of their half key, so they "
    "are not written there"
)


def write_messages(whole: WholeMessages) -> dict[str, Exception]:
    """Appends the messages to their tables, at most once for the run.

    Returns the targets that failed; the others are written.
    """
    if isinstance(whole.warehouse, KernelWarehouse):
        return _write_files(whole.warehouse, whole)
    return _write_each(whole.warehouse, whole)


def _write_each(store: Warehouse, whole: WholeMessages) -> dict[str, Exception]:
    """Lets Spark write each target from rows that are computed once."""
    with Kept(whole.stage) as kept:
        rows = kept.persisted(in_tables_columns(messages(whole), whole))
        errors = F.count(VALUE_ERROR) if VALUE_ERROR in rows.columns else F.lit(0)
        counted = rows.groupBy(TARGET).agg(F.count("*").alias("rows"), errors.alias("errors")).collect()
        unfit = {row[TARGET]: row["errors"] for row in counted}
        return _committed(
            whole,
            {row[TARGET]: row["rows"] for row in counted},
            lambda n, target: partial(_append, store, whole, target, of_target(rows, whole, n), unfit.get(n, 0)),
        )


def _append(store: Warehouse, whole: WholeMessages, target: Target, rows: DataFrame, errors: int) -> None:
    if (marker := store.marker(target.path, target.app)) >= 0:
        refuse_lost(store, target, marker)
    spec = target.spec if target.topic else None  # it has the topic's layout and comment
    store.commit(target.path, rows, Marker(target.app, whole.run.run_id), spec)
    whole.has_written(target, errors)


def _write_files(store: KernelWarehouse, whole: WholeMessages) -> dict[str, Exception]:
    """A target's files may have columns that it has not: all null, and unseen by its readers."""
    run = whole.run
    _clear(store, run.run_id)
    if whole.rows <= FEW.rows:
        with whole.stage.begun():
            rows = whole.stage.rows(messages(whole))
        if isinstance(rows, pa.Table):
            return _write_few(store, whole, rows)
    folder = staging_folder(store, run.run_id)
    try:
        staged = _staged(store, whole, folder)
        numbers = {
            n: sum(json.loads(file.stats or "{}")["numRecords"] for file in files) for n, files in staged.items()
        }
        return _committed(
            whole, numbers, lambda n, target: _committing(store, whole, target, partial(_moved, store, staged[n]))
        )
    finally:
        store.files.remove(folder)


def _staged(store: KernelWarehouse, whole: WholeMessages, folder: str) -> dict[int, list[DataFile]]:
    """Writes all rows, those by Spark into the folder; returns the files of each target."""
    staged = written_by_workers(store, whole)
    if staged is None:
        return _staged_by_spark(store, whole, folder, messages(whole))
    if whole.digest.repeated(whole.decisions) or whole.digest.by_copy(whole.decisions):
        others = _staged_by_spark(store, whole, f"{folder}/others", messages(whole, once=False))
        return {n: [*staged.get(n, ()), *others.get(n, ())] for n in staged.keys() | others.keys()}
    return staged


def _staged_by_spark(
    store: KernelWarehouse, whole: WholeMessages, folder: str, rows: DataFrame
) -> dict[int, list[DataFile]]:
    """Tables with values are written one after the other: their files have columns of the same name."""
    rows = in_tables_columns(rows.coalesce(writing_tasks(store, whole)), whole)
    valued = [n for n, target in whole.due.items() if target.reading]
    if not valued:
        return _staged_together(store, whole, folder, rows)
    with Kept(whole.stage) as kept:
        rows = kept.persisted(rows)
        others = rows.where(~F.col(TARGET).isin(valued)).drop(VALUE_ERROR, *(whole.forms[n].value for n in valued))
        staged = _staged_together(store, whole, f"{folder}/others", others)
        for n in valued:
            own = of_target(rows, whole, n).withColumn(TARGET, F.lit(n))
            staged |= _staged_together(store, whole, f"{folder}/{n}", own)
    return staged


def _staged_together(
    store: KernelWarehouse, whole: WholeMessages, folder: str, rows: DataFrame
) -> dict[int, list[DataFile]]:
    searched = sorted({column for target in whole.due.values() for column in target.spec.stats} & {*rows.columns})
    staged: dict[int, list[DataFile]] = {}
    for file in write_apart(store.files, rows, folder, [TARGET], searched):
        staged.setdefault(int(file.partition[TARGET]), []).append(replace(file, partition={}))
    return staged


def _write_few(store: KernelWarehouse, whole: WholeMessages, rows: pa.Table) -> dict[str, Exception]:
    """Writes rows that are here straight into each target's folder."""
    parts = {n: rows.filter(pc.equal(rows[TARGET], n)) for n in whole.due}
    return _committed(
        whole,
        {n: len(part) for n, part in parts.items()},
        lambda n, target: _committing(store, whole, target, partial(_write_part, store, whole, parts[n])),
    )


def _write_part(store: KernelWarehouse, whole: WholeMessages, part: pa.Table, target: Target) -> list[DataFile]:
    form, found = Form(target.decision, target.reading), list[DataFile]()
    for batch in part.select(whole.columns).combine_chunks().to_batches():
        for piece in in_pieces(batch, form, whole.about):
            columns = projected(piece, form, whole.about)
            rows = pa.table({name: columns[name] for name in target.spec.names})
            found += write_files(store.files, store.path(target.path), target.spec, rows)
    return found


def _clear(warehouse: KernelWarehouse, run_id: int) -> None:
    """Removes what dead drivers left of earlier runs, all closed; another driver may be staging this one."""
    for folder in warehouse.files.folders(warehouse.path(STAGING)):
        found = re.fullmatch(r"run-(\d+)-[0-9a-f]+", folder)
        if found and int(found[1]) < run_id:
            warehouse.files.remove(warehouse.path(f"{STAGING}/{folder}"))


def _committed(
    whole: WholeMessages, numbers: Mapping[int, int], committing: Callable[[int, Target], Callable[[], None]]
) -> dict[str, Exception]:
    """Commits the rows of each target by a task of its own, unless their `numbers` show that some are not at hand."""
    lacking = _lacking(whole, numbers)
    tasks = {each.name: committing(n, each) for n, each in whole.due.items() if each.name not in lacking}
    return lacking | all_at_once(tasks, whole.run.settings.topics.threads)


def _lacking(whole: WholeMessages, numbers: Mapping[int, int]) -> dict[str, Exception]:
    """Targets of which a decided message is not at hand: a run must not close if a body is missing.

    An erased one is: a discarded message that is committed, or asked about, after all.
    """
    lacking: dict[str, Exception] = {}
    for number, target in whole.due.items():
        found = numbers.get(number, 0)
        if found == target.rows:
            continue
        erased = without_body(whole, target)
        if found + erased == target.rows:
            log.warning(_ERASED, target.name, erased, whole.run.run_id, target.decision)
        else:
            lacking[target.name] = HalfopError(
                f"{target.name} must get {target.rows} messages, but half_messages has {found} of them; has it been "
                "trimmed, overwritten or restored? None was written"
            )
    return lacking


def all_at_once(tasks: Mapping[str, Callable[[], None]], threads: int) -> dict[str, Exception]:
    """Runs all tasks, of which none stops another; returns those that failed. A mistake in the code ends the run."""
    with ThreadPoolExecutor(threads) as pool:
        running = {name: pool.submit(task) for name, task in tasks.items()}
    failed: dict[str, Exception] = {}
    for name, future in running.items():
        error = future.exception()
        if isinstance(error, OPERATIONAL_ERRORS):
            raise_mistake(error)
            failed[name] = error
        elif error is not None:
            raise error
    return failed


def _committing(
    warehouse: KernelWarehouse, whole: WholeMessages, target: Target, files: Callable[[Target], list[DataFile]]
) -> Callable[[], None]:
    """Commits the files that `files` puts into the target's folder, unless the run's rows are in the table."""

    def commit() -> None:
        marker = warehouse.marker(target.path, target.app)
        if marker >= 0:
            refuse_lost(warehouse, target, marker)
        if marker >= whole.run.run_id:
            return
        made = files(target)  # VACUUM removes them if another driver finishes this run meanwhile
        warehouse.commit_files(target.path, made, Marker(target.app, whole.run.run_id), target.spec)
        whole.has_written(target, sum(map(_errors, made)) if target.reading else 0)

    return commit


def _errors(file: DataFile) -> int:
    """The number of messages in a file that do not fit."""
    stats = json.loads(file.stats or "{}")
    rows = int(stats["numRecords"])
    return rows - int(stats["nullCount"].get(VALUE_ERROR, rows))


def _moved(warehouse: KernelWarehouse, staged: Sequence[DataFile], target: Target) -> list[DataFile]:
    return [_move(warehouse, target, file) for file in staged]


def _move(warehouse: KernelWarehouse, target: Target, file: DataFile) -> DataFile:
    """A file in its table's folder, where nobody sees it before it is committed. Files by workers lie there."""
    folder = warehouse.uri(target.path)
    in_place = file.path.rpartition("/")[0] == folder
    path = file.path if in_place else warehouse.files.move(file.path, folder)
    return replace(file, path=path, stats=_stats(file.stats or "{}", target.spec))


def _stats(known: str, spec: TableSpec) -> str:
    """The file's bounds of those columns that its table has."""
    stats: dict[str, Any] = json.loads(known)
    for kind in ("minValues", "maxValues", "nullCount"):
        stats[kind] = {name: value for name, value in stats.get(kind, {}).items() if name in spec.stats}
    return json.dumps(stats)
