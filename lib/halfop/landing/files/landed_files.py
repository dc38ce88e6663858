"""landed_files: the table of files that have landed, by path and content, so that each lands once.

If the tables have lost rows of a file, it gets a row without a number of rows, and lands again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import functions as F

from halfop.landing.files.check import Checked
from halfop.landing.files.sources import InputFile
from halfop.landing.progress import instant
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import Where, between, one_of

TABLE = "landed_files"
_KEY_TYPES = "path STRING, size BIGINT, sha256 STRING, kind STRING"
KEY = ("path", "size", "sha256", "kind")
_FEW = 50


def already_landed(warehouse: Warehouse, files: Sequence[InputFile]) -> dict[InputFile, int]:
    """The files that landed before under the same path, with the same content: when last, in epoch microseconds.

    A file whose rows have been lost since has not landed.
    """
    if not files:
        return {}
    asked = warehouse.frame([_key(f) for f in files], _KEY_TYPES)
    known = warehouse.read(TABLE, where=_near(files)).join(asked, list(KEY), "left_semi")
    last = known.groupBy(*KEY).agg(F.max("landed_at").alias("last"), F.max_by("rows", "landed_at").alias("rows"))
    there = last.where("rows IS NOT NULL").select(*KEY, F.unix_micros("last"))
    landed = {tuple(key): at for *key, at in there.collect()}
    return {file: landed[_key(file)] for file in files if _key(file) in landed}


def _near(files: Sequence[InputFile]) -> Where:
    """Rows that may be about these files.

    Few files are found by their hashes: bounds in Delta's log have the first 32 characters, which many paths share.
    """
    if len(files) <= _FEW:
        return one_of("sha256", [file.sha256 for file in files])
    paths = sorted(file.uri for file in files)
    return between("path", paths[0], paths[-1])


def _key(file: InputFile) -> tuple[str, int, str, str]:
    return file.uri, file.size, file.sha256, file.kind


def record(warehouse: Warehouse, files: Iterable[InputFile], checked: Iterable[Checked], landed_at: int) -> None:
    """Appends the files with their numbers of good and bad rows."""
    by_kind = {each.kind: each for each in checked}
    rows = [
        dict(zip(KEY, _key(f), strict=True))
        | {"rows": by_kind[f.kind].good[f.uri], "bad_rows": by_kind[f.kind].bad[f.uri], "landed_at": instant(landed_at)}
        for f in files
    ]
    warehouse.make(TABLE)
    warehouse.commit(TABLE, rows)
