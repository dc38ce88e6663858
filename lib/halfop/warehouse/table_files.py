"""A table's files for Spark's Python workers, and files of decisions that became apart."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from halfop.warehouse.disk import DataFile, Listed, written_locally
from halfop.warehouse.files import Files
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.parquet import stats_of
from halfop.warehouse.reading import ANY, FEW, TableFiles, are_few, parquet
from halfop.warehouse.rows import Kept
from halfop.warehouse.schema import STATS
from halfop.warehouse.session import session_settings
from halfop.warehouse.spark_errors import READ_ERRORS, or_else
from halfop.warehouse.tables import NO_TABLE, spec_of
from halfop.warehouse.where import Where, equal

STAGING = "_staging"
# Settings of a large run, whose session is Spark's own: here the rules are interpreted, in one thread.
_MOST_HERE = 5_000
_NOWHERE = {None, "__HIVE_DEFAULT_PARTITION__"}


def listed_files(
    warehouse: KernelWarehouse, name: str, version: int | None, where: Where | None
) -> list[Listed] | None:
    """Returns the files that may hold such rows, however many; None if Spark alone can read them."""
    return _files(warehouse, name).of(version, where)


def listed_between(warehouse: KernelWarehouse, name: str, before: int, upto: int) -> list[Listed] | None:
    """Returns the files that landed after version `before`; None also if commits did more than append."""
    if before == upto:
        return []
    if before == NO_TABLE:
        return listed_files(warehouse, name, upto, None)
    with or_else(f"reading {name}", *READ_ERRORS):  # its log, or files, may be cleaned up
        return _files(warehouse, name).added(before, upto)


def staging_folder(warehouse: KernelWarehouse, run_id: int) -> str:
    """A folder for files of a run that do not belong to a table yet."""
    return warehouse.path(f"{STAGING}/run-{run_id}-{uuid.uuid4().hex}")


def frame_of_files(warehouse: KernelWarehouse, struct: StructType, files: Sequence[DataFile]) -> DataFrame:
    """The rows of Parquet files that are not part of a table; here if they are very few."""
    listed = [Listed(file.path, file.size, {}) for file in files]
    number = sum(json.loads(file.stats or "{}").get("numRecords", 0) for file in files)
    rows = warehouse.few_of_files(listed, struct) if number <= _MOST_HERE else None
    if rows is None:
        rows = parquet(warehouse.spark, struct, [file.path for file in files])
    return warehouse.stage.take(rows)


def files_or_few(
    warehouse: KernelWarehouse, name: str, struct: StructType, run_id: int, kept: Kept
) -> tuple[Sequence[Listed], pa.Table | None]:
    """Files that may hold a run's rows of a table; or the rows themselves, if they are few.

    What Spark alone can read, Spark writes to files that last as long as `kept`.
    """
    where = equal("run_id", run_id)
    files = listed_files(warehouse, name, None, where)
    if files is None:
        rows = warehouse.read(name, where=where).select(struct.names)
        few = rows.limit(FEW.rows + 1).toArrow()
        if len(few) <= FEW.rows:
            return [], few
        folder = staging_folder(warehouse, run_id)
        kept.callback(warehouse.files.remove, folder)
        files = [Listed(file.path, file.size, {}) for file in write_apart(warehouse.files, rows, folder, [], [])]
    return files, warehouse.few_of_files(files, struct) if are_few(files) else None


def files_apart(warehouse: KernelWarehouse, name: str, rows: DataFrame, folder: str) -> list[DataFile]:
    """Writes rows of any number to files in the table's folder, by way of another folder."""
    found = warehouse.rows_of(name, rows)
    if isinstance(found, DataFrame):
        return files_by_spark(warehouse, name, found, folder)[0]
    return warehouse.files_from(name, found)


def files_by_spark(warehouse: KernelWarehouse, name: str, rows: DataFrame, folder: str) -> tuple[list[DataFile], bool]:
    """Writes rows that are there, in the table's form; files of no partition stay in the other folder.

    Also returns whether there are any of these.
    """
    spec = spec_of(name)
    found = write_apart(warehouse.files, rows, folder, spec.partitioned_by, spec.stats)
    mine = [file for file in found if not _NOWHERE.intersection(file.partition.values())]
    return [_moved(warehouse.files, warehouse.path(name), file) for file in mine], len(mine) < len(found)


def _files(warehouse: KernelWarehouse, name: str) -> TableFiles:
    return TableFiles(warehouse.log, warehouse.path(name), spec_of(name), ANY)


def _moved(files: Files, folder: str, file: DataFile) -> DataFile:
    """Moves a file of Spark's, of which partitions are texts, to where the table has it: partitions are booleans."""
    below = "".join(f"/{name}={value}" for name, value in file.partition.items())
    typed = {name: value == "true" for name, value in file.partition.items()}
    return replace(file, path=files.move(file.path, f"{folder}{below}"), partition=typed)


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
    writer = rows.write.format("delta").option(STATS, ",".join(searched))
    writer.partitionBy(*by).save(folder)
    commit = files.read(f"{folder}/_delta_log/{0:020d}.json")
    for add in (action["add"] for action in map(json.loads, commit.splitlines()) if "add" in action):
        path = f"{folder}/{unquote(add['path'])}"
        yield DataFile(path, add["size"], add["modificationTime"], add["stats"], add["partitionValues"])
