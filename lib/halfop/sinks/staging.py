"""Whole messages to many tables in one pass over the bodies.

One Spark job writes the Parquet files of all tables into a staging table, partitioned by target; then each target's
files move into its folder and become part of its table by one commit of the log. The commits run side by side.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from halfop.frame.errors import HalfopError
from halfop.sinks.targets import Target
from halfop.warehouse.actions import DataFile
from halfop.warehouse.delta_log import AlreadyWrittenError
from halfop.warehouse.in_memory import as_arrow
from halfop.warehouse.parquet import write_files
from halfop.warehouse.schema import TableSpec
from halfop.warehouse.spark_errors import OPERATIONAL_ERRORS
from halfop.warehouse.tables import Warehouse

TARGET = "target"
_STAGING = "_staging"


def write_staged(
    warehouse: Warehouse, run_id: int, rows: DataFrame, targets: Mapping[int, Target], threads: int
) -> dict[str, Exception]:
    """Append `rows` (with their target's number) to the targets, at most once for the run.

    Returns the targets that failed; the others are written. A target's files may have columns that it has not: all
    null, and unseen by its readers.
    """
    _clear(warehouse, run_id)
    if (few := as_arrow(rows)) is not None:
        return _write_few(warehouse, run_id, few, targets, threads)
    staging = warehouse.path(f"{_STAGING}/run-{run_id}-{uuid.uuid4().hex}")
    searched = sorted({column for target in targets.values() for column in target.spec.stats})
    try:
        staged_rows = rows.write.format("delta").option("delta.dataSkippingStatsColumns", ",".join(searched))
        staged_rows.partitionBy(TARGET).save(staging)
        staged = _by_target(warehouse.files.read(f"{staging}/_delta_log/{0:020d}.json"))
        numbers = {n: sum(json.loads(add["stats"])["numRecords"] for add in adds) for n, adds in staged.items()}
        lacking = _lacking(targets, numbers)
        tasks = {
            targets[number].name: _committing(warehouse, run_id, targets[number], _moving(warehouse, staging, adds))
            for number, adds in staged.items()
            if targets[number].name not in lacking
        }
        return lacking | side_by_side(tasks, threads)
    finally:
        warehouse.files.remove(staging)


def _write_few(
    warehouse: Warehouse, run_id: int, rows: pa.Table, targets: Mapping[int, Target], threads: int
) -> dict[str, Exception]:
    """The same for rows that are here: each target's go straight into its folder."""
    parts = {number: rows.filter(pc.equal(rows[TARGET], number)) for number in targets}
    lacking = _lacking(targets, {number: len(part) for number, part in parts.items()})

    def writing(part: pa.Table) -> Callable[[Target], list[DataFile]]:
        return lambda target: write_files(warehouse.files, warehouse.path(target.path), target.spec, part)

    tasks = {
        targets[number].name: _committing(warehouse, run_id, targets[number], writing(part))
        for number, part in parts.items()
        if targets[number].name not in lacking
    }
    return lacking | side_by_side(tasks, threads)


def _clear(warehouse: Warehouse, run_id: int) -> None:
    """Removes what dead drivers left of earlier runs, all closed; another driver may be staging this one."""
    for folder in warehouse.files.folders(warehouse.path(_STAGING)):
        found = re.fullmatch(r"run-(\d+)-[0-9a-f]+", folder)
        if found and int(found[1]) < run_id:
            warehouse.files.remove(warehouse.path(f"{_STAGING}/{folder}"))


def _lacking(targets: Mapping[int, Target], numbers: Mapping[int, int]) -> dict[str, Exception]:
    """Targets of which a decided message is not at hand: a run must not close if a body is missing."""
    lacking: dict[str, Exception] = {}
    for number, target in targets.items():
        found = numbers.get(number, 0)
        if found != target.rows:
            lacking[target.name] = HalfopError(
                f"{target.name} is due {target.rows} messages, but half_messages has {found} of them; has it been "
                "trimmed, overwritten or restored? None was written"
            )
    return lacking


def _by_target(commit: bytes) -> dict[int, list[dict[str, Any]]]:
    """The staged files by target number, as the staging table's only commit lists them."""
    actions = [json.loads(line) for line in commit.splitlines()]
    staged: dict[int, list[dict[str, Any]]] = {}
    for add in (action["add"] for action in actions if "add" in action):
        staged.setdefault(int(add["partitionValues"][TARGET]), []).append(add)
    return staged


def side_by_side(tasks: Mapping[str, Callable[[], None]], threads: int) -> dict[str, Exception]:
    """Runs all tasks, of which none stops another; returns those that failed. A mistake in the code ends the run."""
    with ThreadPoolExecutor(threads) as pool:
        running = {name: pool.submit(task) for name, task in tasks.items()}
    failed: dict[str, Exception] = {}
    for name, future in running.items():
        error = future.exception()
        if isinstance(error, OPERATIONAL_ERRORS):
            failed[name] = error
        elif error is not None:
            raise error
    return failed


def _committing(
    warehouse: Warehouse, run_id: int, target: Target, files: Callable[[Target], list[DataFile]]
) -> Callable[[], None]:
    """Commits the files that `files` puts into the target's folder, unless the run's rows are in the table."""

    def commit() -> None:
        path, marker = warehouse.path(target.path), warehouse.marker(target.path, target.app)
        if marker >= 0:
            warehouse.refuse_lost(target.path, marker)
        if marker >= run_id:
            return
        with suppress(AlreadyWrittenError):  # another driver finished this run; VACUUM removes our files
            warehouse.log.commit_files(path, target.spec, target.app, run_id, files(target))

    return commit


def _moving(warehouse: Warehouse, staging: str, staged: list[dict[str, Any]]) -> Callable[[Target], list[DataFile]]:
    return lambda target: [_move(warehouse, staging, target, add) for add in staged]


def _move(warehouse: Warehouse, staging: str, target: Target, add: dict[str, Any]) -> DataFile:
    """Moves a file into a table's folder; nobody sees it there before it is committed."""
    moved = warehouse.files.move(f"{staging}/{unquote(add['path'])}", warehouse.path(target.path))
    return DataFile(moved, add["size"], add["modificationTime"], _stats(add, target.spec))


def _stats(add: dict[str, Any], spec: TableSpec) -> str:
    """The file's bounds of those columns that its table has."""
    stats = json.loads(add["stats"])
    for kind in ("minValues", "maxValues", "nullCount"):
        stats[kind] = {name: value for name, value in stats.get(kind, {}).items() if name in spec.stats}
    return json.dumps(stats)
