"""A server of Spark Connect on this machine, of the tests' Spark; and the checkout's calls as its clients."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.places import IMPORTS, ROOT

_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectServer"
_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.delta.logStore.file.impl": "halfop.LocalLogStore",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}
_SECONDS, _CALL_SECONDS = 120, 1800
INSTALLED = ROOT / ".halfop" / "connect"


@dataclass(frozen=True)
class Server:
    """A running server, by its address."""

    address: str

    def job(self, *words: str) -> list[str]:
        """The command of a job whose Spark it is."""
        return [str(ROOT / "spark-submit.sh"), "--remote", self.address, *words]

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return _ended(self.job(*words), dict(os.environ))

    def pytest(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Tests in a process whose session is the server's."""
        self.call("reconcile", "--help")  # installs what a client needs
        path = f"{IMPORTS['PYTHONPATH']}:{INSTALLED}"
        words = ("python", "-m", "pytest", "-n", "0", "-m", "slow or not slow or connect", "-W", "ignore", *words)
        return _ended(words, os.environ | {"SPARK_REMOTE": self.address, "PYTHONPATH": path})


def _ended(command: list[str] | tuple[str, ...], environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=_CALL_SECONDS
    )


@contextmanager
def local_server(folder: Path) -> Iterator[Server]:
    """A server as long as the block lasts; its log is in the folder."""
    port, home = _free_port(), Path(os.environ["SPARK_HOME"])
    jars = ",".join(map(str, sorted(Path(os.environ["HALFOP_JARS"]).glob("*.jar"))))
    conf = _CONF | {"spark.connect.grpc.binding.port": str(port), "spark.connect.grpc.binding.address": "127.0.0.1"}
    options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "2g", "--jars", jars]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environ |= IMPORTS | {"PYSPARK_PYTHON": os.environ["PYSPARK_PYTHON"], "SPARK_LOCAL_IP": "127.0.0.1"}
    with (folder / "server.log").open("w") as said:
        server = subprocess.Popen(
            [*command, *options, "--class", _SERVICE, "spark-internal"],
            cwd=folder, env=environ, stdout=said, stderr=said,
        )  # fmt: skip
    try:
        _wait(server, port, folder / "server.log")
        yield Server(f"sc://127.0.0.1:{port}")
    finally:
        server.kill()
        server.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert server.poll() is None, log.read_text(errors="replace")[-4_000:]
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-4_000:]
        time.sleep(0.2)
