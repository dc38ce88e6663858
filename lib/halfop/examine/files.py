"""Files whose rows a table has lost: they are marked in `landed_files`, and land again as if they had not landed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from halfop.landing.files.landed_files import KEY, TABLE
from halfop.landing.progress import instant
from halfop.landing.table_rows import TABLES
from halfop.warehouse.files import shown_path
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import NO_TABLE
from halfop.warehouse.upkeep import trimmed_before

_FILE = ("kind", "path")
_CONTENT = ("kind", "size", "sha256")


class LostFile(NamedTuple):
    """A file that has to land again, because its table has lost rows which landed from it, with so many contents."""

    kind: str
    path: str
    contents: int

    @property
    def shown(self) -> str:
        return shown_path(self.path)

    def __str__(self) -> str:
        before = ", with what it held before, too" if self.contents > 1 else ""
        return f"{self.shown} has to land again{before}: {TABLES[self.kind]} has lost rows that had landed from it"


def to_land_again(warehouse: KernelWarehouse) -> list[LostFile]:
    """The files that are marked as lost, and of which nothing has landed since, from whatever path."""
    is_mark = F.col("rows").isNull()
    same = Window.partitionBy(*_CONTENT)
    files = warehouse.read(TABLE).withColumn("landed", F.max(F.when(~is_mark, F.col("landed_at"))).over(same))
    marked = F.max(F.when(is_mark, F.col("landed_at")))
    found = files.groupBy(*_FILE).agg(marked.alias("marked"), F.max("landed").alias("landed"), _contents())
    return _files(found.where("marked > landed"))


def lost(warehouse: KernelWarehouse) -> list[LostFile]:
    """The files whose last landing has fewer rows in its table than it wrote, and that are not marked yet.

    Rows of a landing have its instant, so that rows which another one wrote again do not count.
    """
    return [file for kind in ("half", "op") for file in _lost(warehouse, kind)]


def _lost(warehouse: KernelWarehouse, kind: str) -> list[LostFile]:
    files = warehouse.read(TABLE).where(F.col("kind") == kind)
    written = files.groupBy("landed_at").agg(F.sum("rows").alias("written"))
    there = warehouse.read(TABLES[kind]).groupBy("landed_at").agg(F.count("*").alias("there"))
    few = written.join(there, "landed_at", "left").where("written > coalesce(there, 0)")
    newest = (F.max("landed_at").alias("landed_at"), F.max_by("rows", "landed_at").alias("rows"))
    contents = _not_trimmed(warehouse, TABLES[kind], files.groupBy(*_CONTENT).agg(*newest).where("rows > 0"))
    short = files.join(contents.join(few, "landed_at", "left_semi"), list(_CONTENT), "left_semi")
    return _files(files.join(short.select(*_FILE).distinct(), list(_FILE)).groupBy(*_FILE).agg(_contents()))


def _contents() -> Column:
    return F.countDistinct("size", "sha256").alias("contents")


def _files(rows: DataFrame) -> list[LostFile]:
    found = rows.select(*LostFile._fields).collect()
    return sorted(LostFile(row["kind"], row["path"], row["contents"]) for row in found)


def _not_trimmed(warehouse: KernelWarehouse, name: str, files: DataFrame) -> DataFrame:
    """Files whose rows no retention has taken out of the table."""
    version = warehouse.version(name)
    before = None if version == NO_TABLE else trimmed_before(warehouse, version, name)
    return files if before is None else files.where(F.unix_micros("landed_at") >= before)


def forget(warehouse: KernelWarehouse, files: Sequence[LostFile], at: int) -> None:
    """Marks files as lost, whatever content they landed with: what is at their paths lands again."""
    if files:
        asked = warehouse.frame([(file.path, file.kind) for file in files], "path STRING, kind STRING")
        known = warehouse.read(TABLE).join(asked, list(_FILE), "left_semi").select(*KEY).distinct().collect()
        warehouse.commit(TABLE, [row.asDict() | {"landed_at": instant(at)} for row in known])
