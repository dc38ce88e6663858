"""The Sparks that halfop runs on, and all that differs between them. All else is written so that it runs on each.

| difference | 4.0 | 4.1 | 4.2 |
| --- | --- | --- | --- |
| Delta's jar, in jars.lock | `delta-spark_4.0_2.13` | `delta-spark_4.1_2.13` | `delta-spark_4.2_2.13` |
| Parquet's jars, for Delta Kernel | of 1.16, in jars.lock | Spark's own | Spark's own |
| instants of `to_arrow_schema` | in UTC | in UTC | in the time zone that it is given |
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from halfop.frame.errors import UsageError

SPARKS = ("4.0", "4.1", "4.2")


def spark_in(home: Path) -> str:
    """Returns the Spark that a folder holds, as "4.2". Raises UsageError if halfop does not run on it."""
    cores = [jar.stem for jar in home.glob("jars/spark-core_*.jar")]
    for found in filter(None, (re.match(r"spark-core_2\.13-(\d+\.\d+)\.", core) for core in cores)):
        if found[1] in SPARKS:
            return found[1]
    known = f"{', '.join(SPARKS[:-1])} or {SPARKS[-1]}"
    raise UsageError(f"{home} holds {', '.join(cores) or 'no Spark'}, Spark {known} (Scala 2.13) is needed")


def schema_in_utc(struct: StructType) -> pa.Schema:
    """Returns the schema for Arrow, with instants in UTC."""
    if pyspark.__version__.startswith(("4.0.", "4.1.")):
        return to_arrow_schema(struct)
    return to_arrow_schema(struct, timezone="UTC")
