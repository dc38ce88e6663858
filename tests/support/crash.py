"""Real processes of jobs, and their deaths: each in a process group of its own, which SIGKILL ends as a whole."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from programs.dying import COMMITS

from support.places import ROOT

# For a handful of rows: compiling costs far more than interpreting, the JVM's bytecode as well as queries.
SPARK = {
    "spark.ui.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.memory": "1g",
}
_OPTIONS = " ".join(["-XX:TieredStopAtLevel=1", *(f"-D{k}={v}" for k, v in SPARK.items())])
FAST = {"SPARK_SUBMIT_OPTS": _OPTIONS}
_MOST_SECONDS = 600
KILLED = -signal.SIGKILL
_DYING = ("./spark-submit.sh", "exec", "python", "tests/programs/dying.py")


def job(*command: str, **environment: str) -> subprocess.Popen[str]:
    """A job as a user starts it."""
    return _started(*command_of(*command), **environment)


def command_of(*command: str) -> list[str]:
    """The whole command of a job; FAST is its environment."""
    options = [part for key, value in SPARK.items() for part in ("--conf", f"{key}={value}")]
    return ["./spark-submit.sh", *options, *command]


def dying(when: str, number: int, *command: str) -> subprocess.Popen[str]:
    """A job that dies `before` or `after` its commit of that number, on its own."""
    return _started(*_DYING, when, str(number), *command)


def stopped(number: int, *command: str, unlocked: bool) -> subprocess.Popen[str]:
    """A job that has stopped before its commit of that number, as by SIGSTOP."""
    process = _started(*_DYING, "stop", str(number), *command, **({"UNLOCKED": "1"} if unlocked else {}))
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), ended(process)
    return process


def woken(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The end of a job that was stopped."""
    os.killpg(process.pid, signal.SIGCONT)
    return ended(process)


def script_of(*command: str, **environment: str) -> subprocess.Popen[str]:
    """A command in the environment of a job; it reads and writes through pipes."""
    return _started("./spark-submit.sh", "exec", *command, **environment)


def commits_archived(archive: Path, *command: str) -> int:
    """As `commits` does; the classes that the job loaded are kept, so that later starts take a third less."""
    FAST["SPARK_SUBMIT_OPTS"] = f"{_OPTIONS} -XX:ArchiveClassesAtExit={archive}"
    try:
        return commits(*command)
    finally:
        FAST["SPARK_SUBMIT_OPTS"] = f"{_OPTIONS} -XX:SharedArchiveFile={archive}"


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its status, negative where a signal ended it, and what it said."""
    with process:
        said, _ = process.communicate(timeout=_MOST_SECONDS)
    return process.returncode, said


def said_until(process: subprocess.Popen[str], pattern: str) -> str:
    """The output of a job up to the line that has the pattern."""
    said: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        if re.search(pattern, line):
            return "".join(said)
    raise AssertionError("".join(said))


def seconds_of(command: Sequence[str]) -> float:
    """The time that a job takes which nobody kills; it is done then."""
    begun = time.monotonic()
    status, said = ended(job(*command))
    assert status == 0, said
    return time.monotonic() - begun


def killed_after(seconds: float, command: Sequence[str]) -> bool:
    """Whether it was still at work then."""
    process = job(*command)
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return process.returncode == KILLED


def commits(*command: str) -> int:
    """How many commits a job does that nobody kills; it is done then."""
    status, said = ended(dying("never", 0, *command))
    assert status == 0, said
    (number,) = re.findall(rf"^{COMMITS}(\d+)$", said, re.MULTILINE)
    return int(number)


def _started(*command: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | FAST | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
