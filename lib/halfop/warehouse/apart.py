"""Files that Spark writes beside a table, to become part of it by a commit of Delta Kernel's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from halfop.warehouse.actions import DataFile
from halfop.warehouse.disk import written_locally
from halfop.warehouse.files import Files
from halfop.warehouse.parquet import stats_of
from halfop.warehouse.session import session_settings

# A task then has a file of each partition open at once, up to so many; else it sorts its rows by partition first.
_OPEN_AT_ONCE = {"spark.sql.maxConcurrentOutputFileWriters": "2"}


def write_apart(
    files: Files, rows: DataFrame, folder: str, by: Sequence[str], searched: Sequence[str]
) -> list[DataFile]:
    """Writes the rows to files, and returns these, with the values of their partitions as texts."""
    local = files.local(folder)
    if local is None:
        return list(_as_a_table(files, rows, folder, by, searched))
    with session_settings(rows.sparkSession, _OPEN_AT_ONCE):
        rows.write.partitionBy(*by).parquet(folder)
    return [_described(path, Path(local), searched) for path in sorted(Path(local).rglob("part-*.parquet"))]


def _described(path: Path, folder: Path, searched: Sequence[str]) -> DataFile:
    """The file's own footer has its bounds."""
    partition = dict(part.split("=") for part in path.relative_to(folder).parts[:-1])
    return DataFile(*written_locally(str(path)), stats_of(pq.read_metadata(path), searched), partition)


def _as_a_table(
    files: Files, rows: DataFrame, folder: str, by: Sequence[str], searched: Sequence[str]
) -> Iterator[DataFile]:
    """Reads it as a table of Delta's connector, whose log has the bounds: this process cannot read the files."""
    writer = rows.write.format("delta").option("delta.dataSkippingStatsColumns", ",".join(searched))
    writer.partitionBy(*by).save(folder)
    commit = files.read(f"{folder}/_delta_log/{0:020d}.json")
    for add in (action["add"] for action in map(json.loads, commit.splitlines()) if "add" in action):
        path = f"{folder}/{unquote(add['path'])}"
        yield DataFile(path, add["size"], add["modificationTime"], add["stats"], add["partitionValues"])
