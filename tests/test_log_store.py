"""The log store for S3, as far as that goes without S3; with one: test_s3.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession


def store(spark: SparkSession) -> Any:
    """As Delta Kernel finds it."""
    jvm: Any = spark._jvm
    return jvm.io.delta.kernel.defaults.internal.logstore.LogStoreProvider.getLogStore(conf(spark), "s3a")


def conf(spark: SparkSession) -> Any:
    jsc: Any = spark._jsc
    return jsc.hadoopConfiguration()


def test_it_is_the_one_for_s3(spark: SparkSession) -> None:
    assert store(spark).getClass().getName() == "halfop.S3LogStore"
    assert spark.conf.get("spark.delta.logStore.s3a.impl") == "halfop.S3LogStore"


def test_a_file_system_that_cannot_refuse_a_commit_gets_none(spark: SparkSession, tmp_path: Path) -> None:
    """As a Hadoop whose S3 client knows of no conditional PUT."""
    jvm: Any = spark._jvm
    lines = jvm.java.util.Collections.singleton("{}").iterator()
    with pytest.raises(IllegalArgumentException, match=r"Unknown mandatory key.*conditional"):
        store(spark).write(jvm.org.apache.hadoop.fs.Path(f"{tmp_path}/0.json"), lines, False, conf(spark))
    assert not list(tmp_path.iterdir())
