"""The log stores for a local disk and for S3, as far as that goes without S3; with one: test_s3.py."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from halfop.warehouse.sync import set_sync
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _synced(spark: SparkSession) -> Iterator[None]:
    set_sync(spark, sync=True)
    yield
    set_sync(spark, sync=False)


def store(spark: SparkSession, scheme: str = "s3a") -> Any:
    """The log store that Delta Kernel finds."""
    jvm: Any = spark._jvm
    return jvm.io.delta.kernel.defaults.internal.logstore.LogStoreProvider.getLogStore(conf(spark), scheme)


def conf(spark: SparkSession) -> Any:
    jsc: Any = spark._jsc
    return jsc.hadoopConfiguration()


def write(spark: SparkSession, path: Path, line: str, overwrite: bool = False) -> bool:
    """Returns whether the line is in the log: false if another's was there."""
    jvm: Any = spark._jvm
    lines = jvm.java.util.Collections.singleton(line).iterator()
    try:
        store(spark, "file").write(jvm.org.apache.hadoop.fs.Path(f"file:{path}"), lines, overwrite, conf(spark))
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() == "FileAlreadyExistsException":
            return False
        raise
    return True


def read(spark: SparkSession, path: Path) -> list[str]:
    jvm: Any = spark._jvm
    found = store(spark, "file").read(jvm.org.apache.hadoop.fs.Path(f"file:{path}"), conf(spark))
    lines = []
    while found.hasNext():
        lines.append(found.next())
    return lines


@pytest.mark.parametrize(("scheme", "name"), [("s3a", "halfop.S3LogStore"), ("file", "halfop.LocalLogStore")])
def test_delta_finds_ours(spark: SparkSession, scheme: str, name: str) -> None:
    assert store(spark, scheme).getClass().getName() == name
    assert spark.conf.get(f"spark.delta.logStore.{scheme}.impl") == name


def test_of_many_that_commit_the_same_version_one_does(spark: SparkSession, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for version in range(20):
            path = tmp_path / f"{version:020}.json"
            done = list(pool.map(lambda n, path=path: write(spark, path, f'{{"n":{n}}}'), range(8)))
            assert done.count(True) == 1
            assert read(spark, path) == [f'{{"n":{done.index(True)}}}']
    assert len(list(tmp_path.iterdir())) == 20, "no file is left beside the commits"


def test_a_file_that_is_replaced_loses_hadoop_s_checksum(spark: SparkSession, tmp_path: Path) -> None:
    """Delta's own store wrote one for each file of its log; Hadoop refuses a file that differs from it."""
    path, checksum = tmp_path / "_last_checkpoint", tmp_path / "._last_checkpoint.crc"
    path.write_text("old\n")
    checksum.write_bytes(b"crc\0\0\0\2\0\1\2\3\4")
    line = '{"version":3,"of":"naïve\tnew"}'.replace("\t", "\\t")
    assert write(spark, path, line, overwrite=True)
    assert read(spark, path) == [line]


def test_a_file_system_that_cannot_refuse_a_commit_gets_none(spark: SparkSession, tmp_path: Path) -> None:
    """An example is a Hadoop whose S3 client knows no conditional PUT."""
    jvm: Any = spark._jvm
    lines = jvm.java.util.Collections.singleton("{}").iterator()
    with pytest.raises(IllegalArgumentException, match=r"Unknown mandatory key.*conditional"):
        store(spark).write(jvm.org.apache.hadoop.fs.Path(f"{tmp_path}/0.json"), lines, False, conf(spark))
    assert not list(tmp_path.iterdir())


ADDED = '{"add":{"path":"part%20one.parquet","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true}}'


def test_a_commit_whose_data_file_is_missing_is_not_made(spark: SparkSession, tmp_path: Path) -> None:
    """The log store makes the data files durable first, so it meets every one."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    with pytest.raises(Py4JJavaError, match=r"the disk did not take .*00001\.json: .*part one\.parquet"):
        write(spark, log / f"{1:020}.json", ADDED)
    assert not list(log.iterdir())
    (tmp_path / "part one.parquet").write_text("x")
    assert write(spark, log / f"{1:020}.json", ADDED)


def test_a_commit_s_data_files_lose_hadoop_s_checksums(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing syncs these: a power cut leaves them empty, and Spark cannot read the files then."""
    log, checksum = tmp_path / "_delta_log", tmp_path / ".part one.parquet.crc"
    log.mkdir()
    for path in (checksum, tmp_path / "part one.parquet", log / f"{3:020}.checkpoint.parquet"):
        path.write_text("x")
    of_checkpoint = log / f".{3:020}.checkpoint.parquet.crc"
    of_checkpoint.write_text("x")
    assert write(spark, log / f"{1:020}.json", ADDED)
    assert not checksum.exists()
    assert write(spark, log / "_last_checkpoint", '{"version":3}', overwrite=True)
    assert not of_checkpoint.exists()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs a file system that syncs no folders")
def test_a_file_system_that_syncs_no_folders_does_without(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    named = jvm.java.lang.Class.forName
    kinds = gateway.new_array(jvm.java.lang.Class, 1)
    kinds[0] = named("java.nio.file.Path")
    force = named("halfop.Durable").getDeclaredMethod("force", kinds)
    force.setAccessible(True)
    paths = gateway.new_array(jvm.java.lang.Object, 1)
    paths[0] = jvm.java.io.File("/proc/self/task").toPath()
    force.invoke(None, paths)


def test_a_commit_is_durable_before_it_is_believed(spark: SparkSession, tmp_path: Path) -> None:
    """In this order: data file, its folder, the commit's bytes; the link that makes it a commit; the link's folder."""
    log, data = tmp_path / "_delta_log", tmp_path / "part one.parquet"
    log.mkdir()
    data.write_text("x")
    with traced(spark, tmp_path / "trace") as calls:
        assert write(spark, log / f"{1:020}.json", ADDED)
    assert [re.sub(r"\.0{19}1\.json\.[0-9a-f-]+\.tmp", "TMP", call) for call in calls] == [
        f"fsync {data}",
        f"fsync {tmp_path}",
        f"fsync {log}/TMP",
        f"link {log}/TMP",
        f"fsync {log}",
    ]


@contextmanager
def traced(spark: SparkSession, output: Path) -> Iterator[list[str]]:
    """Gets the calls that make files durable, or commits, of the session's Java while the block ran."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    jvm: Any = spark._jvm
    java = str(jvm.java.lang.ProcessHandle.current().pid())
    command = [strace, "-f", "-y", "-e", "trace=fsync,fdatasync,link", "-o", str(output), "-p", java]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracing:
        assert tracing.stderr is not None
        if "attached" not in tracing.stderr.readline():
            pytest.skip("strace may not attach to a process")
        calls: list[str] = []
        yield calls
        tracing.send_signal(signal.SIGINT)
    calls += [f"{name} {path}" for name, path in re.findall(r'(fsync|link)\((?:\d+<|")([^>"]+)', output.read_text())]
