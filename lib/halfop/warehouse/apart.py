"""Files that Spark writes beside a table, to become part of it by a commit of Delta Kernel's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import unquote

from pyspark.sql import DataFrame

from halfop.warehouse.actions import DataFile
from halfop.warehouse.files import Files


def write_apart(
    files: Files, rows: DataFrame, folder: str, by: Sequence[str], searched: Sequence[str]
) -> list[DataFile]:
    """Writes the rows as a table of its own, and returns its files, with the values of their partitions as texts."""
    writer = rows.write.format("delta").option("delta.dataSkippingStatsColumns", ",".join(searched))
    writer.partitionBy(*by).save(folder)
    commit = files.read(f"{folder}/_delta_log/{0:020d}.json")
    adds = [action["add"] for action in map(json.loads, commit.splitlines()) if "add" in action]
    return [
        DataFile(
            f"{folder}/{unquote(add['path'])}",
            add["size"],
            add["modificationTime"],
            add["stats"],
            add["partitionValues"],
        )
        for add in adds
    ]
