"""A Spark standalone cluster on this machine: a master and one-core workers, each a process group of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from support.crash import ended, script_of

_SECONDS = 120.0
_CLASS = "org.apache.spark.deploy"
# A daemon says in its log, at INFO, where it is and that it has joined.
_LOG = """rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
"""


class Cluster:
    """A worker's process group is also its executors'. `limits`: a control group of the kernel's for each worker."""

    def __init__(self, folder: Path, workers: int, memory: str = "1g", limits: Sequence[Path] = ()) -> None:
        self._folder, self._memory, self._limits = folder, memory, limits
        (folder / "log4j2.properties").write_text(_LOG)
        self._daemons: list[tuple[subprocess.Popen[str], Path]] = []
        master = self._start("master", f"{_CLASS}.master.Master", "--host", "127.0.0.1", "--port", "0")
        self.url = self._said(master, re.compile(r"Starting Spark master at (spark://\S+)"))
        self._workers = [self._worker(number) for number in range(1, workers + 1)]

    def _worker(self, number: int) -> int:
        place = ["--work-dir", str(self.work(number))]
        options = ["--host", "127.0.0.1", "--cores", "1", "--memory", self._memory, *place]
        limit = self._limits[number - 1] if self._limits else None
        worker = self._start(f"worker-{number}", f"{_CLASS}.worker.Worker", *options, self.url, limit=limit)
        self._said(worker, re.compile("Successfully registered with (master)"))
        return worker

    def work(self, number: int) -> Path:
        return self._folder / f"work-{number}"

    def kill_worker(self, number: int) -> None:
        os.killpg(self._daemons[self._workers[number - 1]][0].pid, signal.SIGKILL)

    def close(self) -> None:
        for process, _ in self._daemons:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            ended(process)

    def _start(self, name: str, *command: str, limit: Path | None = None) -> int:
        log = self._folder / f"{name}.log"
        ports = ("--webui-port", "0")
        joined = "" if limit is None else f"echo $$ >{limit}/cgroup.procs && "
        start = f'{joined}exec "$SPARK_HOME/bin/spark-class" "$@"'
        shell = ("bash", "-c", f"{start} >{log} 2>&1", "spark-class", command[0], *ports, *command[1:])
        process = script_of(*shell, LOG4J_CONFIGURATION_FILE=str(self._folder / "log4j2.properties"))
        self._daemons.append((process, log))
        return len(self._daemons) - 1

    def _said(self, daemon: int, what: re.Pattern[str]) -> str:
        process, log = self._daemons[daemon]
        found = waited(lambda: what.search(log.read_text()) if log.exists() else None, process)
        return found[1]


def waited(look: Callable[[], re.Match[str] | None], process: subprocess.Popen[str]) -> re.Match[str]:
    deadline = time.monotonic() + _SECONDS
    while (found := look()) is None:
        assert process.poll() is None, ended(process)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found
