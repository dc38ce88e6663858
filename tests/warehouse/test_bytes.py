"""Files that workers get through the JVM: here of a file system that PyArrow does not know."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from halfop.warehouse.disk import Disk, LocalDisk
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.spark_errors import SPARK_ERRORS
from halfop.warehouse.splits import ParquetPart, PartWriter, Split
from halfop.warehouse.through_java import ThroughJava
from halfop.warehouse.workers import in_workers
from pyspark.sql import SparkSession
from support.seeds import SEED

LARGE = 3 * (1 << 20) + 17
Job = Callable[[str, Disk], Any]


@pytest.fixture
def uri(spark: SparkSession, tmp_path: Path) -> str:
    """The same folder as `tmp_path`."""
    jsc: Any = spark._jsc
    name = tmp_path.name.replace("_", "-")
    jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.{name}.link./here", f"file:{tmp_path}")
    return f"viewfs://{name}/here"


def in_worker(spark: SparkSession, do: Job, uri: str) -> Any:
    (found,) = in_workers(KernelWarehouse(spark, uri), [uri], do)
    return found


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".crc"))


# ---- whole files ----


def test_parquet_comes_and_goes(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    def copied(uri: str, disk: Disk) -> Any:
        out = PartWriter(disk, {"x": f"{uri}/below/this"}, {"x": ["n"]})
        for batch in ParquetPart(disk, Split(f"{uri}/rows é %20.parquet", 0, 1 << 40), rows.schema).batches():
            out.write("x", batch)
        return out.close()

    chance = np.random.default_rng(SEED)
    rows = pa.table({"n": np.arange(20_000), "body": [chance.bytes(200) for _ in range(20_000)], "t": ["a"] * 20_000})
    pq.write_table(rows, tmp_path / "rows é %20.parquet", row_group_size=7_000)
    ((file,),) = in_worker(spark, copied, uri).values()
    written = tmp_path / "below" / "this" / file.path.rpartition("/")[2]
    assert pq.read_table(written).equals(rows)
    assert file.path == f"{uri}/below/this/{written.name}"
    assert (file.size, file.modified) == (written.stat().st_size, written.stat().st_mtime_ns // 1_000_000)


def test_any_range_is_what_the_file_has(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    content = random.Random(SEED).randbytes(LARGE)
    (tmp_path / "large").write_bytes(content)
    (tmp_path / "none").write_bytes(b"")

    def read(uri: str, disk: Disk) -> Any:
        file, chance, wrong = disk.open(f"{uri}/large"), random.Random(SEED), []
        for size in [0, 1, 100, 70_000, 1 << 20, (1 << 20) + 1, LARGE]:
            for start in [0, LARGE - size, LARGE, chance.randrange(LARGE), chance.randrange(LARGE)]:
                file.seek(start)
                if bytes(file.read_buffer(size)) != content[start : start + size]:
                    wrong.append((start, size))
        return wrong, file.size(), disk.open(f"{uri}/none").read()

    assert in_worker(spark, read, uri) == ([], LARGE, b"")


def test_many_files_at_once(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    sizes = {"empty": 0, "small": 10, "at the limit": 1 << 20, "large": LARGE}

    def write(uri: str, disk: Disk) -> Any:
        files = {name: disk.create(f"{uri}/{name}") for name in sizes}
        for name, size in sizes.items():
            for part in (slice(0, size // 3), slice(size // 3, size)):
                files[name].stream.write(random.Random(name).randbytes(size)[part])
        for name in ("empty", "small", "large"):  # the others are not waited for
            files[name].begin_to_close()
        return {name: file.close().size for name, file in files.items()}

    assert in_worker(spark, write, uri) == sizes
    assert {name: (tmp_path / name).read_bytes() for name in sizes} == {
        name: random.Random(name).randbytes(size) for name, size in sizes.items()
    }


# ---- what goes wrong ----


def test_errors_name_the_file_and_end_nothing_else(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")

    def ask(uri: str, disk: Disk) -> Any:
        said = []
        twice = disk.create(f"{uri}/twice")
        twice.close()
        for mistake in (
            lambda: disk.open(f"{uri}/missing"),
            lambda: disk.create(f"{uri}/file/below").close(),
            lambda: disk.open("nosuch://scheme/x"),
            twice.begin_to_close,
            twice.close,
        ):
            with pytest.raises(OSError) as raised:  # noqa: PT011
                mistake()
            said.append((type(raised.value).__name__, str(raised.value)))
        return said, bytes(disk.open(f"{uri}/file").read())

    (missing, below, scheme, *twice), content = in_worker(spark, ask, uri)
    assert (missing[0], f"{tmp_path}/missing" in missing[1]) == ("FileNotFoundError", True), missing
    assert "/file" in below[1]
    assert 'No FileSystem for scheme "nosuch"' in scheme[1]
    assert all("is not open" in said for _, said in twice)
    assert content == b"here"


@pytest.mark.parametrize("dies", [True, False])
def test_a_task_that_fails_leaves_no_half_file(spark: SparkSession, uri: str, tmp_path: Path, dies: bool) -> None:
    def fail(uri: str, disk: Disk) -> Any:
        whole, half, also, ending = (disk.create(f"{uri}/{name}") for name in ("whole", "half", "also", "ending"))
        whole.close()
        ending.begin_to_close()
        half.stream.write(b"1" * LARGE)
        pq.ParquetWriter(also.stream, pa.schema([("n", pa.int64())]))
        if dies:
            os._exit(1)
        raise ValueError("on its own")

    with pytest.raises(SPARK_ERRORS, match="crashed" if dies else "on its own"):
        in_worker(spark, fail, uri)
    assert left_in(tmp_path) == ["whole"]


def test_only_who_knows_the_secret_is_served_and_once(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")

    def call(uri: str, disk: Disk) -> Any:
        java: ThroughJava = disk._java  # type: ignore[attr-defined]
        said = []
        for secret in (b"\0" * 32, b"short"):
            with socket.create_connection(java._at) as stranger:
                stranger.sendall(secret)
                stranger.shutdown(socket.SHUT_WR)
                said.append(stranger.recv(1))
        found = bytes(disk.open(f"{uri}/file").read())
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(java._at)
        return said, found, java._at[0], java._secret

    said, found, host, secret = in_worker(spark, call, uri)
    assert (said, found, host) == ([b"", b""], b"here", "127.0.0.1")
    assert len(secret) == 32
    assert secret != in_worker(spark, call, uri)[3], "each task has its own"


def test_this_machine_s_own_files_are_opened_here(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    def kinds(uri: str, disk: Disk) -> Any:
        mine = disk.create(f"file:{tmp_path}/mine")
        mine.stream.write(b"1")
        return mine.close().path, type(disk.open(f"file:{tmp_path}/mine")), disk._java._socket  # type: ignore[attr-defined]

    assert in_worker(spark, kinds, uri) == (f"file:{tmp_path}/mine", pa.MemoryMappedFile, None)
    assert isinstance(LocalDisk().open(f"{tmp_path}/mine"), pa.MemoryMappedFile)
