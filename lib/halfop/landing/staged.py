"""Files of what lands, written by workers beside the tables, until a commit makes them part of one.

Only on a local disk: what other file systems hold is written by Spark.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame

from halfop.landing.table_rows import Form, form_of
from halfop.landing.tables import TABLES
from halfop.warehouse.actions import DataFile
from halfop.warehouse.few import FEW
from halfop.warehouse.in_memory import frame_of
from halfop.warehouse.listing import Listed
from halfop.warehouse.local import append_files_once, files_apart, takes_local_files
from halfop.warehouse.parquet import ParquetReader, arrow_schema, searched
from halfop.warehouse.schema import table
from halfop.warehouse.session import few_rows_settings
from halfop.warehouse.tables import Warehouse

_STAGING, _OURS = "_staging", "land-"


@dataclass(frozen=True)
class Staging:
    """The folder of a landing's files."""

    warehouse: Warehouse
    path: str

    @cached_property
    def by_workers(self) -> bool:
        """Whether workers may write the tables."""
        return all(takes_local_files(self.warehouse, name) for name in TABLES.values())

    def append_once(self, name: str, files: Iterable[DataFile], rows: DataFrame | None, app: str, mark: int) -> None:
        """Makes the files, and rows as files of their own, part of a table: once for an app and its mark."""
        warehouse, folder = self.warehouse, self.warehouse.path(name)
        added = [replace(file, path=warehouse.files.move(file.path, folder)) for file in files]
        if rows is not None:
            added += files_apart(warehouse, name, rows, f"{self.path}/apart-{uuid.uuid4().hex}")
        append_files_once(warehouse, name, added, app, mark)

    def frame(self, name: str, files: Sequence[DataFile]) -> DataFrame:
        """The rows of files that have a table's columns."""
        struct, spark = table(name).struct, self.warehouse.spark
        listed = [Listed(file.path, file.size, {}) for file in files]
        few = ParquetReader(self.warehouse.files).table(listed, arrow_schema(struct), FEW.rows)
        if few is not None:
            return frame_of(spark, few)
        few_rows_settings(spark).leave()
        paths = [re.sub(r"([][{}*?\\])", r"\\\1", file.path) for file in files]  # Spark takes patterns
        return spark.read.schema(struct).parquet(*paths)


@contextmanager
def staging(warehouse: Warehouse) -> Iterator[Staging]:
    """A folder that lasts as long as the block. What killed landings left is removed; hold the lock of landings."""
    files, top = warehouse.files, warehouse.path(_STAGING)
    if files.local(top) is not None:
        for left in files.folders(top):
            if left.startswith(_OURS):
                files.remove(f"{top}/{left}")
    made = Staging(warehouse, files.qualified(f"{top}/{_OURS}{uuid.uuid4().hex}"))
    try:
        yield made
    finally:
        files.remove(made.path)


def forms(broker_name: str, source: str, landed_at: int) -> dict[str, Form]:
    """The forms of rows by their kind."""
    return {kind: form_of(name, broker_name, source, landed_at) for kind, name in TABLES.items()}


def searched_columns() -> Mapping[str, Sequence[str]]:
    """The columns of each kind whose bounds the tables keep."""
    return {kind: searched(table(name)) for kind, name in TABLES.items()}
