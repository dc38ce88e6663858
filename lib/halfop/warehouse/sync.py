"""Whether commits to a local disk are durable before they are believed: `LocalLogStore.java` does it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from pyspark.sql import SparkSession

_SYNC = "halfop.warehouse.sync"


def set_sync(spark: SparkSession, sync: bool) -> None:
    """Sets whether commits to a local disk are durable before they are believed: `LocalLogStore.java` does it."""
    _hadoop(spark).setBoolean(_SYNC, sync)


class HeldSync:
    """Whether commits are synced while calls run, which may overlap: it is if one of them wants it."""

    def __init__(self) -> None:
        self._lock, self._held = Lock(), list[bool]()
        self._own: str | None = None

    @contextmanager
    def held(self, spark: SparkSession, sync: bool) -> Iterator[None]:
        """Restores the session's own value with the end of the last call."""
        hadoop = _hadoop(spark)
        with self._lock:
            if not self._held:
                self._own = hadoop.get(_SYNC)
            self._held.append(sync)
            set_sync(spark, any(self._held))
        try:
            yield
        finally:
            with self._lock:
                self._held.remove(sync)
                if self._held:
                    set_sync(spark, any(self._held))
                else:
                    hadoop.unset(_SYNC) if self._own is None else hadoop.set(_SYNC, self._own)


SYNC = HeldSync()  # of the one Java that a process has


def _hadoop(spark: SparkSession) -> Any:
    jsc: Any = spark._jsc
    return jsc.hadoopConfiguration()
