"""Sessions that a program has made itself: what they must have been started with."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark
from py4j.java_gateway import JavaPackage
from pyspark.sql import SparkSession

from halfop.frame.errors import UsageError
from halfop.settings.home import JARS_LOCK, checkout, fetched_jars, user_cache
from halfop.warehouse.disk import local_folder
from halfop.warehouse.files import WAY_OUT
from halfop.warehouse.session import AT_START, is_of_server, unless_kept_from_sessions
from halfop.warehouse.spark_versions import spark_in

_CLASSES = ("halfop.TableLogs", "io.delta.sql.DeltaSparkSessionExtension")
_SCHEMES = (".file.", ".s3a.")
_REFUSE_A_SECOND_COMMIT = ("hdfs", "abfs", "abfss", "gs")  # docs/install.md


def refuse_unfit(spark: SparkSession, root: str) -> None:
    """Raises UsageError if halfop cannot work in the session, and names what it must be started with."""
    if is_of_server(spark):
        return
    if not isinstance(spark, SparkSession):
        raise UsageError(
            f"{type(spark).__name__} is no session of Spark's, as SparkSession.builder.getOrCreate() makes it"
        )
    if absent := [name for name in _CLASSES if _is_absent(spark, name)]:
        raise UsageError(
            f"this session lacks halfop's jars ({', '.join(absent)}). Start Spark with them: make the session with "
            "SparkSession.builder.config(map=halfop.spark_conf())"
        )
    if lacking := _lacking(spark, root):
        lines = "".join(f"\n  {key}={value}" for key, value in lacking.items())
        raise UsageError(
            f"this session was started without settings that keep tables safe:{lines}\n"
            "Make the first session of the process with SparkSession.builder.config(map=halfop.spark_conf())"
        )


def refuse_unfit_server(spark: SparkSession, root: str) -> None:
    """Raises UsageError if commits there are not known to be safe: nobody can try it through a server."""
    scheme = "file" if local_folder(root) is not None else root.partition(":")[0].lower()
    key = f"spark.delta.logStore.{scheme}.impl"
    if key in AT_START:  # Delta's own take one driver
        if _of_server(spark, key) != AT_START[key]:
            raise UsageError(
                f"warehouse {root}: the server of Spark Connect was started without {key}={AT_START[key]}, by which "
                "commits of several drivers are safe. Start it with that setting and halfop.jar, or use another file "
                "system"
            )
    elif scheme not in _REFUSE_A_SECOND_COMMIT:
        raise UsageError(
            f"warehouse {root}: through Spark Connect nobody can try whether this store refuses a commit if another "
            f"one is there, and it is none of those that are known to. {WAY_OUT}"
        )


def _of_server(spark: SparkSession, key: str) -> str | None:
    """Returns what a server was started with: that counts, whatever a client has set in its session."""
    found = None
    with unless_kept_from_sessions():
        of_session = spark.conf.get(key, None)
        spark.sql(f"RESET {key}")
        found = spark.conf.get(key, None)
        if of_session is not None:
            spark.conf.set(key, of_session)
    return found


def _is_absent(spark: SparkSession, name: str) -> bool:
    found = spark._jvm
    for part in name.split("."):
        found = getattr(found, part)
    return isinstance(found, JavaPackage)


def _lacking(spark: SparkSession, root: str) -> dict[str, str]:
    """Settings that Spark was to be started with; those of other file systems than the root's do not count."""
    others = [scheme for scheme in _SCHEMES if scheme != (".s3a." if root.startswith("s3a:") else ".file.")]
    conf = dict(spark.sparkContext.getConf().getAll())
    wanted = {key: value for key, value in AT_START.items() if not any(scheme in key for scheme in others)}
    if not str(spark.sparkContext.master).startswith("local"):
        del wanted["spark.locality.wait"]
    return {key: value for key, value in wanted.items() if value not in (conf.get(key) or "").split(",")}


def spark_conf() -> dict[str, str]:
    """Returns the settings that a session of your own is to be started with, among them the paths of the jars.

    >>> conf = halfop.spark_conf()
    >>> builder = SparkSession.builder.appName("mine").config(map=conf)
    >>> conf["spark.delta.logStore.file.impl"]
    'halfop.LocalLogStore'
    """
    return AT_START | {"spark.jars": ",".join(map(str, _jars()))}


def _jars() -> list[Path]:
    folder = _folder_of_jars()
    found = sorted(folder.glob("*.jar")) if folder else []
    if not found:
        raise UsageError(
            "where are Delta's jars and halfop's? HALFOP_JARS names a folder that has them; ./spark-submit.sh setup in "
            "a checkout, or halfop setup, fetches them"
        )
    return found


def _folder_of_jars() -> Path | None:
    if named := os.environ.get("HALFOP_JARS"):
        return Path(named)
    spark, home = spark_in(Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)), checkout(os.environ)
    if JARS_LOCK.is_file():
        return fetched_jars(JARS_LOCK, spark, user_cache(os.environ))
    return None if home is None else home / ".halfop" / "jars" / spark
