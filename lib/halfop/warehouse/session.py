"""The Spark session that every job gets, the same under spark-submit, in a notebook and in tests."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

# What a run's correctness or cost rests on, whatever the user's spark-defaults say.
_NEEDED = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Grouping 64 offsets into one packed row holds few groups a task; falling back to a sort costs more.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000",
}
# conf/spark-defaults.conf gives it to driver and executors.
_COMPILE_ALL = "-XX:-DontCompileHugeMethods"


def spark_session(app_name: str, **extra: str) -> SparkSession:
    """The running session, or a new one. The jars come with ./spark-submit.sh, also as `./spark-submit.sh exec`."""
    builder = SparkSession.builder.appName(f"halfop {app_name}")
    for key, value in (_NEEDED | extra).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if _COMPILE_ALL not in _jvm_options(spark):
        # the rules in one huge method would run interpreted; in several smaller ones they cost a little more
        spark.conf.set("spark.sql.codegen.hugeMethodLimit", "8000")
    return spark


def _jvm_options(spark: SparkSession) -> list[str]:
    jvm: Any = spark._jvm
    return list(jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
