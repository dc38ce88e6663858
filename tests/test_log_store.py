"""The log stores for a local disk and for S3, as far as that goes without S3; with one: test_s3.py."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession


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
    assert write(spark, path, "naïve\tnew", overwrite=True)
    assert read(spark, path) == ["naïve\tnew"]


def test_a_file_system_that_cannot_refuse_a_commit_gets_none(spark: SparkSession, tmp_path: Path) -> None:
    """An example is a Hadoop whose S3 client knows no conditional PUT."""
    jvm: Any = spark._jvm
    lines = jvm.java.util.Collections.singleton("{}").iterator()
    with pytest.raises(IllegalArgumentException, match=r"Unknown mandatory key.*conditional"):
        store(spark).write(jvm.org.apache.hadoop.fs.Path(f"{tmp_path}/0.json"), lines, False, conf(spark))
    assert not list(tmp_path.iterdir())
