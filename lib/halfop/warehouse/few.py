"""Few rows of a table, read in this process: no Spark job, and nothing of Delta's connector, which costs seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from halfop.warehouse.delta_log import DeltaLog
from halfop.warehouse.listing import Limits, Listed, TableFiles
from halfop.warehouse.parquet import ParquetReader, arrow_schema
from halfop.warehouse.schema import TableSpec
from halfop.warehouse.where import Where

# More is Spark's: its tasks read side by side, and with compiled code. By bench/few.py a warm run over 10,000 messages,
# of some 260 bytes each, takes as long either way. A thousand files of three rows, which a day of cycles leaves, take
# half as long as by Spark.
FEW = Limits(files=1_024, bytes=4 * 1024 * 1024, rows=16_000)
ANY = Limits(files=2**31, bytes=2**62, rows=2**62)
# A listener of Spark's that must see all that is read and written.
_LISTENER = "openlineage"


def goes_past_spark(spark: SparkSession) -> bool:
    """Returns whether few rows may be read and written without Delta's connector."""
    listeners = spark.conf.get("spark.extraListeners", "") or ""
    return _LISTENER not in listeners.lower()


def are_few(files: Sequence[Listed]) -> bool:
    """Returns whether these files are so few that this process reads them."""
    return len(files) <= FEW.files and sum(file.size for file in files) <= FEW.bytes


class Found(NamedTuple):
    """Rows, and the number of files that may hold them."""

    rows: pa.Table
    files: int


@dataclass(frozen=True)
class FewRows:
    """Reads of one warehouse's tables; None if the rows are not few."""

    log: DeltaLog
    reader: ParquetReader

    def of(self, path: str, spec: TableSpec, version: int | None, where: Where | None) -> Found | None:
        """The rows of a version that meet the condition."""
        found = self._read(spec, TableFiles(self.log, path, spec, FEW).of(version, where))
        if found is None or where is None:
            return found
        return found._replace(rows=found.rows.filter(where.expression(spec.struct)))

    def added(self, path: str, spec: TableSpec, after: int, upto: int) -> Found | None:
        """The rows that the commits after version `after`, up to `upto`, appended."""
        return self._read(spec, TableFiles(self.log, path, spec, FEW).added(after, upto))

    def of_files(self, files: Sequence[Listed], struct: StructType) -> pa.Table | None:
        """The rows of these files."""
        return self.reader.table(files, arrow_schema(struct), FEW.rows)

    def _read(self, spec: TableSpec, files: Sequence[Listed] | None) -> Found | None:
        rows = None if files is None else self.of_files(files, spec.struct)
        return None if files is None or rows is None else Found(rows, len(files))
