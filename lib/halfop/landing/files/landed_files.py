"""landed_files: the table of files that have landed, by path and content, so that each lands once."""

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
_KEY = ("path", "size", "sha256", "kind")
_FEW = 50


def already_landed(warehouse: Warehouse, files: Sequence[InputFile]) -> dict[InputFile, int]:
    """The files that landed before under the same path, with the same content: when last, in epoch microseconds."""
    if not files:
        return {}
    asked = warehouse.frame([_key(f) for f in files], _KEY_TYPES)
    known = warehouse.read(TABLE, where=_near(files)).join(asked, list(_KEY), "left_semi")
    last = known.groupBy(*_KEY).agg(F.max(F.unix_micros("landed_at")))
    landed = {tuple(key): at for *key, at in last.collect()}
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
        dict(zip(_KEY, _key(f), strict=True))
        | {"rows": by_kind[f.kind].good[f.uri], "bad_rows": by_kind[f.kind].bad[f.uri], "landed_at": instant(landed_at)}
        for f in files
    ]
    warehouse.make(TABLE)
    warehouse.append_rows(TABLE, rows)
