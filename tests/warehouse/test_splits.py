"""Files that workers read and write: whatever size is said, no row is left out; a failure is an error, once."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from halfop.warehouse.disk import Listed, LocalDisk
from halfop.warehouse.splits import ParquetPart, PartWriter, splits_of

PLACES = ("halves", "ops")


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fails(folder: Path, body: int) -> None:
    """Writes files that are larger than the disk takes."""
    writer = PartWriter(LocalDisk(), {name: str(folder / name) for name in PLACES}, dict.fromkeys(PLACES, ()))
    for name in PLACES:
        writer.write(name, pa.record_batch({"body": [Random(body).randbytes(body)]}))
    with pytest.raises(OSError, match="too large"):
        writer.close()
    assert writer.close() == {}, "who closes it after a failure hides that by no other"


def test_a_disk_that_is_full_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    with largest_file(1_000):
        fails(tmp_path, 200_000)
    gc.collect()


@pytest.mark.thorough
def test_a_disk_that_fails_is_an_error_and_no_traceback_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file ends in its buffer, in its footer or in its rows."""
    said: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda failed: said.append(failed.exc_type))
    for body in [*range(7_000, 8_600, 100), 200_000]:
        with largest_file(1_000):
            fails(tmp_path / str(body), body)
            gc.collect()
    assert set(said) <= {ResourceWarning}  # of the file itself; only tests show it


@pytest.mark.parametrize("said", [0, 1_000, None, 1 << 40])
@pytest.mark.parametrize("tasks", [1, 3, 64])
def test_each_row_is_read_once_whatever_size_is_said(tmp_path: Path, said: int | None, tasks: int) -> None:
    path, rows = tmp_path / "rows.parquet", pa.table({"n": range(1_000)})
    pq.write_table(rows, path, row_group_size=90)
    size = path.stat().st_size if said is None else said
    files = [Listed(str(path), size, {}), Listed(str(path), size, {})]
    parts = [ParquetPart(LocalDisk(), s, rows.schema) for splits in splits_of(files, tasks) for s in splits]
    found = [n for part in parts for batch in part.batches() for n in batch["n"].to_pylist()]
    assert sorted(found) == sorted(2 * list(range(1_000)))
