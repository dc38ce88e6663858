"""A local YARN of one node: Hadoop's own ResourceManager and NodeManager, from the jars of its mini cluster."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from support.fetched import fetched_jars

_SERVER = "org.apache.hadoop.yarn.server"
_ADDRESSES = (
    *("resourcemanager.address", "resourcemanager.scheduler.address", "resourcemanager.resource-tracker.address"),
    *("resourcemanager.admin.address", "resourcemanager.webapp.address"),
    *("nodemanager.address", "nodemanager.localizer.address", "nodemanager.webapp.address"),
)
_SECONDS = 120


@contextmanager
def local_yarn(folder: Path, hidden: Sequence[str]) -> Iterator[Path]:
    """The configuration folder (HADOOP_CONF_DIR) of a YARN whose containers cannot see the hidden folders."""
    conf = _configured(folder)
    java = Path(os.environ["HALFOP_JAVA"])
    path = f"{conf}:{fetched_jars('hdfs')}/*:{fetched_jars('yarn')}/*:{Path(pyspark.__file__).parent}/jars/*"
    start = [str(java), "-Xmx400m", "-Dlog4j2.level=INFO", "-Dorg.apache.logging.log4j.level=INFO", "-cp", path]
    manager, node = (
        [*start, f"{_SERVER}.{name}"] for name in ("resourcemanager.ResourceManager", "nodemanager.NodeManager")
    )
    hide = " && ".join(f"mount -t tmpfs none {shlex.quote(each)}" for each in hidden)
    with ExitStack() as running:
        _started(running, folder, "manager", manager)
        home = {"JAVA_HOME": str(java.parents[1]), "PATH": "/usr/bin:/bin"}
        _started(running, folder, "node", ["unshare", "-m", "sh", "-c", f"{hide} && exec {shlex.join(node)}"], home)
        _wait(folder / "node.log", "Registered with ResourceManager")
        yield conf


def _started(
    running: ExitStack, folder: Path, name: str, command: Sequence[str], env: Mapping[str, str] | None = None
) -> None:
    said = running.enter_context((folder / f"{name}.log").open("w"))
    process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, env=env)
    running.callback(process.wait)
    running.callback(process.kill)


def _wait(log: Path, text: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while text not in (said := log.read_text(errors="replace")):
        assert time.monotonic() < deadline, said[-4_000:]
        time.sleep(0.2)


def _configured(folder: Path) -> Path:
    conf = folder / "conf"
    conf.mkdir()
    given = {f"yarn.{name}": f"127.0.0.1:{port}" for name, port in zip(_ADDRESSES, _ports(), strict=True)} | {
        "fs.defaultFS": "file:///",
        "hadoop.tmp.dir": str(folder / "tmp"),
        "yarn.resourcemanager.scheduler.class": f"{_SERVER}.resourcemanager.scheduler.fifo.FifoScheduler",
        "yarn.scheduler.minimum-allocation-mb": "256",
        "yarn.nodemanager.local-dirs": str(folder / "local"),
        "yarn.nodemanager.log-dirs": str(folder / "logs"),
        "yarn.nodemanager.resource.memory-mb": "6144",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
    }
    lines = [f"<property><name>{name}</name><value>{value}</value></property>\n" for name, value in given.items()]
    for name in ("core-site.xml", "yarn-site.xml"):
        (conf / name).write_text(f"<configuration>\n{''.join(lines)}</configuration>\n")
    return conf


def _ports() -> list[int]:
    with ExitStack() as bound:
        sockets = [bound.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in _ADDRESSES]
        return [each.getsockname()[1] for each in sockets]
