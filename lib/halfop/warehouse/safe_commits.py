"""Whether a file system refuses a commit where another's is; asked before the first table is made there.

A local disk is not asked: lib/java commits by a hard link, and jobs hold a lock.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from pyspark.sql import SparkSession

from halfop.frame.errors import UsageError
from halfop.warehouse.files import Files

_WAY_OUT = (
    "Use one that refuses it: the store's S3-compatible end point by s3a:// (AWS_ENDPOINT_URL), or hdfs://, abfss://, "
    "gs://, or a local disk. docs/install.md lists the stores"
)
_WRITERS = 4
_SAFE: set[str] = set()
_ONE_AT_A_TIME = Lock()


def refuse_unsafe(spark: SparkSession, files: Files, root: str) -> None:
    """Raises UsageError if of two drivers in this folder one can overwrite the other's commit; asks once a process."""
    with _ONE_AT_A_TIME:
        if root not in _SAFE and files.local(root) is None:
            problem = _problem(spark, root)
            if problem is not None:
                raise UsageError(
                    f"--warehouse {root}: this store does not refuse a commit if another one is there, so messages "
                    f"could get lost or be delivered twice ({problem}). {_WAY_OUT}"
                )
            _SAFE.add(root)


def _problem(spark: SparkSession, root: str) -> str | None:
    jvm: Any = spark._jvm
    jsc: Any = spark._jsc
    session: Any = spark._jsparkSession
    created = jvm.org.apache.spark.sql.delta.storage.LogStore.createLogStore
    found = jvm.halfop.CommitProbe.problem(root, [created(session) for _ in range(_WRITERS)], jsc.hadoopConfiguration())
    return None if found is None else str(found)
