"""A Spark session with settings of its own, and whether it has them still."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

THEIRS = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.ansi.enforceReservedKeywords": "true",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.files.ignoreCorruptFiles": "true",
}


def with_own_settings(spark: SparkSession) -> SparkSession:
    """Another session of the same Spark."""
    made = spark.newSession()
    for key, value in THEIRS.items():
        made.conf.set(key, value)
    made.sql("SELECT 1")  # Delta's extension sets two settings at a session's first statement
    return made


@contextmanager
def as_before(session: SparkSession) -> Iterator[None]:
    """Fails if the block, whatever it ends with, leaves the session's settings or Hadoop's changed."""
    before = _settings_of(session)
    assert before >= set(THEIRS.items())
    try:
        yield
    finally:
        assert sorted(_settings_of(session) ^ before) == []


def _settings_of(session: SparkSession) -> set[tuple[str, str]]:
    jsc: Any = session._jsc
    hadoop = {(f"hadoop: {entry.getKey()}", entry.getValue()) for entry in jsc.hadoopConfiguration().iterator()}
    return hadoop | set(session.conf.getAll.items())
