"""The command `halfop` of an installed package: `halfop [Spark options] JOB [job options]`.

It does for the package what ./spark-submit.sh does for a checkout. A host of gateways has no Spark: whatever imports
PySpark is imported only for a job that needs it.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from halfop import jobs
from halfop.frame.cli import Job, main
from halfop.frame.errors import HalfopError, UsageError
from halfop.frame.nearest import did_you_mean
from halfop.frame.output import TextOutput
from halfop.settings.model import Settings
from halfop.start import open_closed
from halfop.submit import CommandLine, command_line
from halfop.versions import versions

_USAGE = """\
usage: halfop [spark-submit options] JOB [job options]    run a job; JOB --help shows its options
       halfop setup [--no-cache]                          fetch and archive what jobs start with; --no-cache: without
                                                          the archive of Java's classes, which takes 200 MB
       halfop completion bash|zsh|fish                    a script by which this shell completes the words after halfop
       halfop --version                                   halfop's version, Spark's and Delta's

Spark options (--master, --conf, --packages …) go to Spark; executors on other machines need halfop in their Python.
HALFOP_JARS names a folder with Delta's jars; without it the first call does the set-up.

jobs:
"""
_NO_SPARK = "\nSpark is not installed here, and every job but gateway and init needs it: pip install 'halfop[spark]'\n"
_OWN = ("setup", "completion")  # besides the jobs
SHELLS = ("bash", "zsh", "fish")
# Modules that an extra brings: the extra, and what it is.
_EXTRAS = {
    **dict.fromkeys(("pyspark", "py4j", "delta"), ("spark", "Spark")),
    **dict.fromkeys(("deltalake", "uvloop"), ("gateway", "the extra gateway")),
    "shtab": ("completion", "the extra completion"),
}


def run(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs a job and ends the process with its exit status; the console script."""
    open_closed()
    try:
        _run(command_line(sys.argv[1:] if argv is None else argv))
    except HalfopError as error:
        sys.stderr.write(f"halfop: {error}\n")
        sys.exit(error.exit_status)


def _run(call: CommandLine) -> NoReturn:
    if call.asks_for_version:
        TextOutput().text(versions(os.environ))
        sys.exit(0)
    if call.job in job_names():
        _run_job(job_of(call.job), call)
    if call.job == "setup" and list(call.options) in ([], ["--no-cache"]):
        _imported("spark_setup", "setup").set_up(archived=not call.options)
        sys.exit(0)
    if call.job == "completion" and list(call.options) in [[each] for each in SHELLS]:
        TextOutput().text(_imported("completion", "completion").script(*call.options, _jobs_here()))
        sys.exit(0)
    if call.job and call.job not in _OWN:
        sys.stderr.write(f"halfop: no job {call.job!r}{did_you_mean(call.job, job_names())}\n")
    sys.stderr.write(_USAGE + "".join(f"  {each:10} {_about(each)}\n" for each in job_names()))
    sys.stderr.write("" if find_spec("pyspark") else _NO_SPARK)
    asked = call.asks_for_help or (call.job in _OWN and {"-h", "--help"} & {*call.options})
    sys.exit(0 if asked else UsageError.exit_status)


def _run_job(job: Job, call: CommandLine) -> NoReturn:
    if call.remote:
        raise UsageError("--remote needs a checkout: ./spark-submit.sh --remote sc://… installs a client beside it")
    sys.exit(main(job, list(call.options), partial(_prepare, call) if job.needs_spark else None))


def _prepare(call: CommandLine, settings: Settings) -> None:
    if call.job != "demo":  # which has a warehouse of its own
        str(settings.warehouse_root)  # a call that names none is refused before Java starts
    _imported("spark_setup", call.job).prepare(call)


def job_names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(jobs.__path__))


def job_of(name: str) -> Job:
    job: Job = _imported(f"jobs.{name}", name).JOB
    return job


def _jobs_here() -> Iterator[Job]:
    """The jobs whose modules are installed."""
    for name in job_names():
        with suppress(UsageError):
            yield job_of(name)


def _about(name: str) -> str:
    """The first line of a job's docstring, as ./spark-submit.sh shows it; what the job needs is not imported."""
    source = Path(jobs.__path__[0], f"{name}.py").read_text(encoding="utf-8")
    return source.split('"""', 2)[1].partition("\n")[0]


def _imported(module: str, who: str) -> ModuleType:
    """Returns a module of halfop. Raises UsageError if it needs what is not installed."""
    try:
        return importlib.import_module(f"halfop.{module}")
    except ModuleNotFoundError as error:
        lacks = (error.name or "").partition(".")[0]
        if lacks not in _EXTRAS:
            raise
        extra, words = _EXTRAS[lacks]
        raise UsageError(
            f"{who} needs {words}, and this Python has no module {lacks}: pip install 'halfop[{extra}]'"
        ) from error
