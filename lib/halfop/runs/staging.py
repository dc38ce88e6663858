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
    files = _Files(warehouse, f"_staging/run-{run_id}-{uuid.uuid4().hex}")
    try:
        stats = ",".join(table("real_topic").stats)
        staged_rows = rows.write.format("delta").option("delta.dataSkippingStatsColumns", stats)
        staged_rows.partitionBy(TOPIC_NUMBER).save(files.path)
        staged = files.by_topic()
        return side_by_side(
            {
                topics[number].topic: _commit(warehouse, run_id, files, topics[number], found)
                for number, found in staged.items()
            },
            threads,
        )
    finally:
        files.remove()


def side_by_side(tasks: Mapping[str, Callable[[], None]], threads: int) -> dict[str, Exception]:
    """Run all tasks, a failing one stops no other; returns what failed."""
    with ThreadPoolExecutor(threads) as pool:
        running = {name: pool.submit(task) for name, task in tasks.items()}
    failed = {name: future.exception() for name, future in running.items()}
    return {name: error for name, error in failed.items() if isinstance(error, Exception)}


def _commit(
    warehouse: Warehouse, run_id: int, files: _Files, topic: TopicWrite, staged: list[dict[str, Any]]
) -> Callable[[], None]:
    def commit() -> None:
        path, spec = warehouse.path(f"topics/{topic.directory}"), table("real_topic")
        if warehouse.log.marker(path, topic.app) >= run_id:
            return
        moved = [files.move(add, path) for add in staged]
        try:
            warehouse.log.commit_files(path, spec, topic.app, run_id, moved)
        except AlreadyWrittenError:
            return  # another driver finished this run; VACUUM removes our files

    return commit


class _Files:
    """The files of one staging table."""

    def __init__(self, warehouse: Warehouse, name: str) -> None:
        jvm: Any = warehouse.spark._jvm
        jsc: Any = warehouse.spark._jsc
        self.path = warehouse.path(name)
        self._new_path = jvm.org.apache.hadoop.fs.Path
        self._read = jvm.org.apache.commons.io.IOUtils.toString
        self._utf8 = jvm.java.nio.charset.StandardCharsets.UTF_8
        self._fs = self._new_path(self.path).getFileSystem(jsc.hadoopConfiguration())

    def by_topic(self) -> dict[int, list[dict[str, Any]]]:
        """The staged files by topic number, as the staging table's only commit lists them."""
        stream = self._fs.open(self._new_path(f"{self.path}/_delta_log/{0:020d}.json"))
        try:
            actions = [json.loads(line) for line in self._read(stream, self._utf8).splitlines()]
        finally:
            stream.close()
        staged: dict[int, list[dict[str, Any]]] = {}
        for add in (action["add"] for action in actions if "add" in action):
            staged.setdefault(int(add["partitionValues"][TOPIC_NUMBER]), []).append(add)
        return staged

    def move(self, add: dict[str, Any], folder: str) -> DataFile:
        """Move a staged file into a table's folder, where it is invisible until committed."""
        source = self._new_path(f"{self.path}/{unquote(add['path'])}")
        target = self._new_path(folder, source.getName())
        self._fs.mkdirs(target.getParent())
        if not self._fs.rename(source, target):
            raise OSError(f"could not move {source} to {target}")
        qualified = self._fs.makeQualified(target).toString()
        return DataFile(qualified, add["size"], add["modificationTime"], add.get("stats"))

    def remove(self) -> None:
        self._fs.delete(self._new_path(self.path), True)
