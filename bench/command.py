"""A command in a new process, watched from outside: seconds, CPU, memory of all its processes, and its Spark jobs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[1]
HEAP = "5g"
# Variables that `exec` gives this process: the commands get a user's environment.
_NOT_A_USERS = ("SPARK_", "PYSPARK_", "PYTHONPATH", "JAVA_HOME", "HALFOP_HOME", "HALFOP_JARS")
_EVERY = 0.2  # seconds between two looks
_TICK = os.sysconf("SC_CLK_TCK")
ROLES = ("driver", "jvm", "workers")


@dataclass
class Watched:
    """The use of a command's processes, looked at again and again.

    MiB are those of their own, and `resident` those of files that they have mapped, too.
    """

    cpu: dict[tuple[str, str], float] = field(default_factory=dict)
    peak: dict[str, float] = field(default_factory=dict)

    def look(self, root: int) -> None:
        now = dict.fromkeys((*ROLES, "all", "resident"), 0.0)
        for pid, role in _tree(root):
            found = _process(pid)
            if found is not None:
                started, cpu, own, resident = found
                self.cpu[pid, started] = cpu
                now[role] += own
                now["all"] += own
                now["resident"] += resident
        self.peak = {name: max(n, self.peak.get(name, 0)) for name, n in now.items()}


def _tree(root: int) -> Iterator[tuple[str, str]]:
    """The processes that came of one, each with its role: Spark's Python daemon and what it starts are workers."""
    parents: dict[str, list[str]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        fields = _stat(pid)
        if fields:
            parents.setdefault(fields[1], []).append(pid)
    todo = [(str(root), False, False)]
    while todo:
        pid, in_java, below_daemon = todo.pop()
        program = _read(pid, "cmdline")
        below_daemon |= b"pyspark.daemon" in program
        java = program.partition(b"\0")[0].endswith(b"java")
        if not (java and in_java):  # a JVM starts programs by a fork that has its memory for a moment
            yield pid, "jvm" if java else "workers" if below_daemon else "driver"
        todo += [(child, java, below_daemon) for child in parents.get(pid, ())]


def _read(pid: str, name: str) -> bytes:
    try:
        return Path("/proc", pid, name).read_bytes()
    except OSError:
        return b""


def _stat(pid: str) -> list[str]:
    return _read(pid, "stat").decode().rpartition(")")[2].split()


def _process(pid: str) -> tuple[str, float, float, float] | None:
    """When it started, CPU seconds, own and all MiB; None if it has ended."""
    fields, lines = _stat(pid), _read(pid, "status").decode().splitlines()
    sizes = {line.split(":")[0]: line.split() for line in lines}
    if not fields or "RssAnon" not in sizes:
        return None
    own, resident = (int(sizes[name][1]) / 1024 for name in ("RssAnon", "VmRSS"))
    return fields[19], sum(map(int, fields[11:13])) / _TICK, own, resident


@dataclass(frozen=True)
class Spent:
    """The use of a command, and the last line that it printed."""

    seconds: float
    cpu_s: float
    mib: Mapping[str, int]  # the peak of each role
    line: str


@dataclass(frozen=True)
class Called(Spent):
    """The use of a job, with Spark's jobs in their order."""

    jobs: Sequence[Mapping[str, Any]]

    @property
    def summary(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads(self.line)
        return found

    def shown(self) -> dict[str, Any]:
        summary = self.summary
        spent = {"s": self.seconds, "cpu_s": self.cpu_s, "mib": self.mib, "jobs": len(self.jobs)}
        return spent | {"phases": summary["seconds"], "ways": summary.get("ways")}


def call(*arguments: str, options: Sequence[str] = ("--master", "local[2]")) -> Called:
    """Calls ./spark-submit.sh with the heap of the benches."""
    with tempfile.TemporaryDirectory(prefix="halfop-events-") as events:
        logged = {"enabled": "true", "dir": f"file:{events}", "compress": "false", "rolling.enabled": "false"}
        confs = [part for name, value in logged.items() for part in ("--conf", f"spark.eventLog.{name}={value}")]
        spent = watch([str(HOME / "spark-submit.sh"), "--driver-memory", HEAP, *options, *confs, *arguments])
        return Called(**vars(spent), jobs=list(_jobs(Path(events))))


def copy_of(warehouse: Path, to: Path) -> Path:
    """A warehouse that a job may change; it shares the data files, which never change, so that no disk is busy."""
    shutil.copytree(warehouse, to, copy_function=_shared)
    return to


def _shared(of: str, to: str) -> None:
    (os.link if of.endswith(".parquet") and "_delta_log" not in of else shutil.copy2)(of, to)


def watch(command: Sequence[str]) -> Spent:
    """Runs a command; a status other than 0 ends this process."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_A_USERS)}
    watched, over, start = Watched(), threading.Event(), time.perf_counter()
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as log:
        job = subprocess.Popen(command, env=environ, stdout=said, stderr=log, text=True)

        def look() -> None:
            while not over.wait(_EVERY):
                watched.look(job.pid)

        watcher = threading.Thread(target=look)
        watcher.start()
        status = job.wait()
        seconds = time.perf_counter() - start
        over.set()
        watcher.join()
        texts = [(file.seek(0), file.read())[1] for file in (said, log)]
    if status:
        sys.exit(f"{' '.join(command)}\n{texts[0]}{texts[1]}")
    peak = {name: round(n) for name, n in watched.peak.items()}
    return Spent(round(seconds, 1), round(sum(watched.cpu.values()), 1), peak, texts[0].splitlines()[-1])


def _jobs(events: Path) -> Iterator[dict[str, Any]]:
    """The jobs: what asked for each, when it began, its tasks and seconds."""
    found: dict[int, dict[str, Any]] = {}
    for event in (json.loads(line) for path in events.iterdir() for line in path.read_text().splitlines()):
        if event["Event"] == "SparkListenerJobStart":
            stages = event["Stage Infos"]
            found[event["Job ID"]] = {
                "at": event["Submission Time"],
                "name": max(stages, key=lambda stage: stage["Stage ID"])["Stage Name"] if stages else "nothing",
                "tasks": sum(stage["Number of Tasks"] for stage in stages),
            }
        if event["Event"] == "SparkListenerJobEnd":
            job = found[event["Job ID"]]
            job["s"] = round((event["Completion Time"] - job["at"]) / 1000, 2)
    first = min((job["at"] for job in found.values()), default=0)
    for job in found.values():
        yield job | {"at": round((job["at"] - first) / 1000, 2)}
