"""Files that workers write: a failure is an error, once."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from halfop.warehouse.disk import LocalDisk
from halfop.warehouse.splits import PartWriter

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
