"""The Spark session that every job gets, the same under spark-submit, in a notebook and in tests."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from threading import Lock
from typing import Any, cast
from urllib.parse import urlparse
from weakref import WeakKeyDictionary

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from halfop.frame.errors import TransientError
from halfop.frame.log import watched
from halfop.settings.home import cache
from halfop.warehouse.java import remember_names
from halfop.warehouse.local_spark import UMASK, USERS, own_settings

# Settings on which a run's correctness or cost rests, whatever the user's spark-defaults say: those that Spark must be
# started with, and those that a session has while a call of halfop's runs in it.
AT_START = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta's own are safe for one driver only. For Spark's connector, and for Delta Kernel.
    "spark.delta.logStore.file.impl": "halfop.LocalLogStore",
    "spark.hadoop.io.delta.kernel.logStore.file.impl": "halfop.LocalLogStore",
    "spark.delta.logStore.s3a.impl": "halfop.S3LogStore",
    "spark.hadoop.io.delta.kernel.logStore.s3a.impl": "halfop.S3LogStore",
    # In local mode Spark offers tasks only when one begins or ends: one that waits to run nearer to its data, while no
    # other is left, would wait for ever.
    "spark.locality.wait": "0s",
}
WHILE_CALLED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.ansi.enabled": "true",
    # Columns of ours, and of the caller's data, have names as `end` and `user`.
    "spark.sql.ansi.enforceReservedKeywords": "false",
    # A file that cannot be read has rows that would be missed for good.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Else Delta refuses versions older than it keeps removed files, though none was removed.
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
    # Java interprets a method of more bytecode than this; the rules in several smaller ones run 4 times as fast.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # A third less to write than the 96 bits that Spark writes otherwise.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Its default is looked up again for every value that a lambda reads; set, a map_filter costs a third less.
    "spark.sql.types.framework.enabled": "false",
    # A property that is there twice: RocketMQ's own parser takes the last.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # Spark looks at each of more than 32 files in a task of its own; these are the most tasks.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "64",
    # Grouping 64 offsets into one packed row holds few groups a task; falling back to a sort costs more.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000",
}


# Generated code earns its compilation only with more rows than a few hundred thousand.
WITHOUT_CODEGEN = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
# Rows in memory: one task does all of a query, so nothing is shuffled or broadcast, and each query is one job.
FOR_ROWS_IN_MEMORY = WITHOUT_CODEGEN | {
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizer.disableHints": "true",
}


class HeldSettings:
    """Settings of one session that blocks hold, in the order in which they began: the last one's value counts.

    Blocks of several threads may overlap. The session's own settings come back with the end of the last.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._lock = spark, Lock()
        self._own: dict[str, str | None] = {}
        self._held: list[Mapping[str, str]] = []
        self.few_rows = FewRowsSettings(self)

    @contextmanager
    def held(self, settings: Mapping[str, str]) -> Iterator[None]:
        with self._lock:
            found: dict[str, str | None] = {}
            for key in settings.keys() - self._own.keys():
                with unless_kept_from_sessions():
                    found[key] = self._spark.conf.get(key, None)
            self._own |= found  # of all, or of none
            mine = {key: settings[key] for key in settings if key in self._own}
            self._held.append(mine)
        try:
            with self._lock:
                self._set(mine)
            yield
        finally:
            with self._lock:
                self._held = [each for each in self._held if each is not mine]
                self._set(mine)

    def _set(self, keys: Iterable[str]) -> None:
        """Gives each key the value that counts now; one that fails leaves out no other."""
        with ExitStack() as every:
            for key in keys:
                held = [each[key] for each in self._held if key in each]
                every.callback(self._set_one, key, held[-1] if held else self._own[key])

    def _set_one(self, key: str, value: str | None) -> None:
        with unless_kept_from_sessions():
            if value is None:
                self._spark.conf.unset(key)
            else:
                self._spark.conf.set(key, value)
        if not any(key in each for each in self._held):
            del self._own[key]


@contextmanager
def unless_kept_from_sessions() -> Iterator[None]:
    """Passes over a key that a session may not touch: Databricks' serverless compute keeps most from them."""
    try:
        yield
    except PySparkException as error:
        if error.getCondition() != "CONFIG_NOT_AVAILABLE":
            raise


class FewRowsSettings:
    """FOR_ROWS_IN_MEMORY in one session, for as long as somebody holds them and nobody has met more rows.

    Several threads may hold them. A read of many rows ends them for all, until the last holder has ended.
    """

    def __init__(self, session: HeldSettings) -> None:
        self._session, self._lock, self._holders = session, Lock(), 0
        self._set = ExitStack()

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            if self._holders == 0:
                self._set.enter_context(self._session.held(FOR_ROWS_IN_MEMORY))
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    self._set.close()

    def leave(self) -> None:
        """Restores the session's own settings now."""
        with self._lock:
            self._set.close()


_OF_SESSIONS: WeakKeyDictionary[SparkSession, HeldSettings] = WeakKeyDictionary()
_OF_SESSIONS_LOCK = Lock()


def _of_session(spark: SparkSession) -> HeldSettings:
    """Returns the one object that changes settings in this session."""
    with _OF_SESSIONS_LOCK:
        return _OF_SESSIONS.setdefault(spark, HeldSettings(spark))


def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> AbstractContextManager[None]:
    """Returns a block that sets session settings while it runs."""
    return _of_session(spark).held(settings)


def few_rows_settings(spark: SparkSession) -> FewRowsSettings:
    """Returns what changes them in this session."""
    return _of_session(spark).few_rows


def is_of_server(spark: SparkSession) -> bool:
    """Returns whether a server of Spark Connect does the session's work: no Java then, and no file, but SQL."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def is_stopped(spark: SparkSession) -> bool:
    """Returns whether somebody has stopped the session: nothing works in it again."""
    if is_of_server(spark):
        return bool(getattr(spark, "is_stopped", False))
    java = spark.sparkContext._jsc
    return java is None or bool(java.sc().isStopped())


def session_of_server() -> SparkSession | None:
    """Returns the running session of Spark Connect: to ask for one with settings would set them in it for good."""
    connect = sys.modules.get("pyspark.sql.connect.session")
    with suppress(PySparkRuntimeError):  # none runs
        return None if connect is None else cast(SparkSession, connect.SparkSession.active())
    return None


def spark_session(app_name: str, **extra: str) -> SparkSession:
    """Returns the running session, or a new one, which shows Spark's progress bar if somebody watches.

    SPARK_REMOTE names a server of Spark Connect that gives the session.
    """
    if remote := os.environ.get("SPARK_REMOTE"):
        _refuse_unreachable(remote)
        return session_of_server() or SparkSession.builder.config(map={**WHILE_CALLED}).getOrCreate()
    builder = SparkSession.builder.appName(f"halfop {app_name}")
    progress = {"spark.ui.showConsoleProgress": "true"} if watched() else {}
    ours = AT_START | WHILE_CALLED | progress | extra
    kept = _kept_to_itself(ours)
    for key, value in (ours | kept).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if UMASK in kept:
        _set_umask(session, kept[UMASK])
    shows_lines = session.conf.get("spark.python.sql.dataFrameDebugging.enabled", "true")
    remember_names(session._jvm, columns=shows_lines == "false")
    return session


_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_CONNECT_PORT, _CONNECT_SECONDS = 15002, 10


def _refuse_unreachable(remote: str) -> None:
    """Raises TransientError if nobody listens there: PySpark would try for ten minutes, and report nothing."""
    place = urlparse(remote)
    address = (place.hostname or "", place.port or _CONNECT_PORT)
    if any(os.environ.get(name) for name in _PROXIES):  # only they reach it
        return
    try:
        socket.create_connection(address, _CONNECT_SECONDS).close()
    except OSError as error:
        raise TransientError(
            f"no server of Spark Connect answers at {address[0]}:{address[1]} ({error.strerror or error}): start it, "
            "or name another by --remote sc://host:port"
        ) from error


def _kept_to_itself(ours: dict[str, str]) -> dict[str, str]:
    """The settings of a local Spark that starts now; the JVM, which is started for it, knows the user's own."""
    if SparkContext._active_spark_context is not None:
        return {}
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(ours.items())))
    conf = SparkConf()  # each look at it is a call of the JVM
    users = {key: value for key in USERS if (value := conf.get(key, "")) != ""}
    return own_settings(users | ours, os.environ, cache(os.environ))


def _set_umask(spark: SparkSession, umask: str) -> None:
    """Sets it in the local file system that spark-submit, which has met no setting of ours, may have opened."""
    jvm, jsc = spark._jvm, spark._jsc
    local: Any = jvm.org.apache.hadoop.fs.FileSystem.getLocal(jsc.hadoopConfiguration())  # type: ignore[union-attr]
    local.getConf().set(UMASK.removeprefix("spark.hadoop."), umask)
