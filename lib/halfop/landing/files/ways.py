"""The way in which a landing's files are taken in: here, by workers or by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlparse

from halfop.landing.files.by_spark import BySpark
from halfop.landing.files.own_life import Stamp
from halfop.landing.files.sources import InputFile, are_few
from halfop.landing.files.taking import ByWorkers, Here, Way
from halfop.landing.tables import TABLES
from halfop.warehouse.local import workers_may_write
from halfop.warehouse.tables import Warehouse


def take(warehouse: Warehouse, files: Sequence[InputFile], stamp: Stamp) -> Way:
    """Reads and checks all files; nothing is part of a table yet."""
    if warehouse.past_spark and are_few(files):
        return Here(warehouse, files, stamp)
    on_disk = warehouse.files.local(warehouse.root) and all(urlparse(file.uri).scheme == "file" for file in files)
    if on_disk and all(workers_may_write(warehouse, TABLES[kind]) for kind in {file.kind for file in files}):
        return ByWorkers(warehouse, files, stamp)
    return BySpark(warehouse, files, stamp)
