"""landed_files: the table of files that have landed, by path and content, so that each lands once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import functions as F

from halfop.landing.files.check import Checked
from halfop.landing.files.sources import InputFile
from halfop.warehouse.tables import Warehouse

TABLE = "landed_files"
_KEY_TYPES = "path STRING, size BIGINT, sha256 STRING, kind STRING"
_KEY = ("path", "size", "sha256", "kind")


def already_landed(warehouse: Warehouse, files: Sequence[InputFile]) -> set[InputFile]:
    """The files that landed before under the same path, with the same content."""
    asked = warehouse.frame([_key(f) for f in files], _KEY_TYPES)
    known = asked.join(warehouse.read(TABLE).select(*_KEY), list(_KEY), "left_semi")
    landed = {tuple(row) for row in known.collect()}
    return {file for file in files if _key(file) in landed}


def _key(file: InputFile) -> tuple[str, int, str, str]:
    return file.uri, file.size, file.sha256, file.kind


def record(warehouse: Warehouse, files: Iterable[InputFile], checked: Iterable[Checked], landed_at: int) -> None:
    """Appends the files with their numbers of good and bad rows."""
    by_kind = {each.kind: each for each in checked}
    rows = [(*_key(f), by_kind[f.kind].good[f.uri], by_kind[f.kind].bad[f.uri], landed_at) for f in files]
    frame = warehouse.frame(rows, f"{_KEY_TYPES}, rows BIGINT, bad_rows BIGINT, landed_at BIGINT")
    warehouse.make(TABLE)
    warehouse.append(TABLE, frame.withColumn("landed_at", F.timestamp_micros("landed_at")))
