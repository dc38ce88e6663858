"""Committed messages to one table a topic, in one pass over the bodies.

One Spark job writes the Parquet files of all topics into a staging table, partitioned by topic; then each topic's files
move into its folder and become part of its table by one commit of the log. The commits run side by side.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame

from halfop.warehouse.delta_log import AlreadyWrittenError, DataFile
from halfop.warehouse.schema import table
from halfop.warehouse.tables import Warehouse

TOPIC_NUMBER = "topic_no"


@dataclass(frozen=True)
class TopicWrite:
    topic: str
    directory: str
    app: str


def write_topics(
    warehouse: Warehouse, run_id: int, rows: DataFrame, topics: Mapping[int, TopicWrite], threads: int
) -> dict[str, Exception]:
    """Append `rows` (with the topic's number) to the topics' tables, at most once for the run.

    Returns the topics that failed; the others are written.
    """
    staging = warehouse.path(f"_staging/run-{run_id}-{uuid.uuid4().hex}")
    try:
        stats = ",".join(table("real_topic").stats)
        staged_rows = rows.write.format("delta").option("delta.dataSkippingStatsColumns", stats)
        staged_rows.partitionBy(TOPIC_NUMBER).save(staging)
        staged = _by_topic(warehouse.files.read(f"{staging}/_delta_log/{0:020d}.json"))
        return side_by_side(
            {
                topics[number].topic: _commit(warehouse, run_id, staging, topics[number], found)
                for number, found in staged.items()
            },
            threads,
        )
    finally:
        warehouse.files.remove(staging)


def _by_topic(commit: bytes) -> dict[int, list[dict[str, Any]]]:
    """The staged files by topic number, as the staging table's only commit lists them."""
    actions = [json.loads(line) for line in commit.splitlines()]
    staged: dict[int, list[dict[str, Any]]] = {}
    for add in (action["add"] for action in actions if "add" in action):
        staged.setdefault(int(add["partitionValues"][TOPIC_NUMBER]), []).append(add)
    return staged


def side_by_side(tasks: Mapping[str, Callable[[], None]], threads: int) -> dict[str, Exception]:
    """Run all tasks, a failing one stops no other; returns what failed."""
    with ThreadPoolExecutor(threads) as pool:
        running = {name: pool.submit(task) for name, task in tasks.items()}
    failed = {name: future.exception() for name, future in running.items()}
    return {name: error for name, error in failed.items() if isinstance(error, Exception)}


def _commit(
    warehouse: Warehouse, run_id: int, staging: str, topic: TopicWrite, staged: list[dict[str, Any]]
) -> Callable[[], None]:
    def commit() -> None:
        path, spec = warehouse.path(f"topics/{topic.directory}"), table("real_topic")
        if warehouse.log.marker(path, topic.app) >= run_id:
            return
        moved = [_move(warehouse, f"{staging}/{unquote(add['path'])}", path, add) for add in staged]
        try:
            warehouse.log.commit_files(path, spec, topic.app, run_id, moved)
        except AlreadyWrittenError:
            return  # another driver finished this run; VACUUM removes our files

    return commit


def _move(warehouse: Warehouse, source: str, folder: str, add: dict[str, Any]) -> DataFile:
    """Into a table's folder, where the file is invisible until committed."""
    return DataFile(warehouse.files.move(source, folder), add["size"], add["modificationTime"], add.get("stats"))
