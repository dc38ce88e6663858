"""A session of somebody else's."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from support.sessions import with_own_settings


@pytest.fixture(scope="session")
def theirs(spark: SparkSession) -> SparkSession:
    return with_own_settings(spark)
