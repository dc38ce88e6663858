"""Commits that a table's log numbers for each of its writers: each number is written at most once."""

from __future__ import annotations

import uuid

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.warehouse.delta_log import AlreadyWrittenError
from halfop.warehouse.in_memory import frame_of
from halfop.warehouse.spark_errors import SPARK_ERRORS, overtaken
from halfop.warehouse.sql import delta_table
from halfop.warehouse.tables import Warehouse, spec_of

_LATELY = 100  # commits: as many may come between a commit and the look for it


def commit_next(warehouse: Warehouse, name: str, rows: pa.Table, app: str, number: int) -> None:
    """Appends rows as this app's commit of that number. Raises AlreadyWrittenError if another process made it."""
    path = warehouse.path(name)
    if warehouse.takes_files(name):
        warehouse.log.commit_files(path, spec_of(name), app, number, warehouse.files_of(name, rows))
    elif not _written_by_spark(warehouse.in_form(name, frame_of(warehouse.spark, rows)), path, app, number):
        raise AlreadyWrittenError(path)


def _written_by_spark(rows: DataFrame, path: str, app: str, number: int) -> bool:
    """Returns whether this call has written the rows: Delta passes in silence over a number that the table has."""
    mine = str(uuid.uuid4())
    writer = rows.write.format("delta").mode("append").option("userMetadata", mine)
    try:
        writer.option("txnAppId", app).option("txnVersion", number).save(path)
    except SPARK_ERRORS as error:
        if not overtaken(error):
            raise
        return False
    lately = rows.sparkSession.sql(f"DESCRIBE HISTORY {delta_table(path)} LIMIT {_LATELY}")
    return not lately.where(F.col("userMetadata") == mine).isEmpty()
