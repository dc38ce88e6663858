"""Clients other than Java's remoting one: by gRPC those of Java, Python and Node.js, by Apache's proxy; and Go's."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from support.fetched import fetching, packages, same
from support.gateway.clients import free
from support.places import ROOT

from systems.broker.real_broker import checked, fetched, java

_SECONDS = 120.0
_OPENS = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.nio", "sun.nio.ch", "jdk.internal.ref")]
_JVM = ["-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", *_OPENS]


def _jars() -> Path:
    return fetched("proxy", ("GrpcProducer",))


# ---- the proxy ----


class Proxy:
    """A proxy whose clients come to `endpoints`; it can be killed, and started again. Its folder is `home`."""

    def __init__(self, home: Path, namesrv: str, own: Mapping[str, object]) -> None:
        number = free()
        self.endpoints, self._home, self._number = f"127.0.0.1:{number}", home, number
        # as docs/gateway.md has it, but on loopback alone and with faster heartbeats
        config: dict[str, object] = {"proxyMode": "CLUSTER", "rocketMQClusterName": "halfop", "namesrvAddr": namesrv}
        config |= {"grpcServerPort": number, "remotingListenPort": free(), "localServeAddr": "127.0.0.1"}
        config |= {"transactionHeartbeatPeriodSecond": 2, "enablePrintJstack": False, **own}
        (home / "conf").mkdir(parents=True)
        (home / "conf/rmq-proxy.json").write_text(json.dumps(config))
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it takes connections."""
        # its TLS needs native code
        own = ["-Xmx320m", "-Dtls.server.mode=disabled", f"-Duser.home={self._home}", "-cp", f"{_jars()}/*"]
        startup = ["org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(self._home / "conf/rmq-proxy.json")]
        homes = {"RMQ_PROXY_HOME": str(self._home), "ROCKETMQ_HOME": str(self._home)}
        with (self._home / "proxy.out").open("ab") as out:
            command = [java(), *_JVM, *own, *startup]
            self._process = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | homes, cwd=self._home)
        end = time.monotonic() + _SECONDS
        while not self._takes_connections():
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"the proxy did not start:\n{(self._home / 'proxy.out').read_text()[-3000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def _takes_connections(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._number)) == 0


@contextmanager
def proxy(home: Path, namesrv: str, **own: object) -> Iterator[Proxy]:
    """A proxy that runs while the block does, with settings of its own."""
    running = Proxy(home, namesrv, own)
    try:
        yield running
    finally:
        running.kill()


# ---- its clients ----


class Try(NamedTuple):
    """A message that was to be sent: its key, its plan, and whether it was sent."""

    key: str
    plan: str
    sent: bool


class Sender:
    """A process that sends messages, and answers questions about them until it ends."""

    def __init__(self, home: Path, command: Sequence[str], topic: str, endpoints: str, plans: Sequence[str]) -> None:
        home.mkdir()
        self._home, self._truth, self._out = home, home / "truth", home / "out"
        self._truth.touch()
        self._command = [*command, endpoints, topic, str(home / "plan"), str(self._truth)]
        self._start(plans)

    def _start(self, plans: Sequence[str]) -> None:
        (self._home / "plan").write_text("".join(f"{plan}\n" for plan in plans))
        own = os.environ | {"HOME": str(self._home), "PYTHONPATH": str(_python_packages())}
        with self._out.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=out, stderr=out, cwd=self._home, env=own
            )

    def restart(self) -> None:
        """Lets it end, and starts another process, which answers for it; only Python's knows what was not sent."""
        self.end()
        self._start(())

    def tries(self) -> list[Try]:
        """All that it has tried to send by now."""
        rows = [line.split("\t") for line in self._truth.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [Try(row[0], row[1], row[2] == "true\n") for row in rows if len(row) == 3]

    def wait_for(self, sent: int) -> None:
        """Waits until it has sent so many."""
        end = time.monotonic() + _SECONDS
        while sum(each.sent for each in self.tries()) < sent:
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"a producer has not sent {sent} messages:\n{self._out.read_text()[-3000:]}")
            time.sleep(0.05)

    def said(self) -> str:
        """What it has written to its standard output and error."""
        return self._out.read_text()

    def kill(self) -> None:
        """SIGKILL: it says no goodbye."""
        self._process.kill()
        self._process.communicate()

    def end(self) -> None:
        """Lets it end."""
        self._process.communicate(timeout=_SECONDS)


@contextmanager
def sender(language: str, home: Path, topic: str, address: str, plans: Sequence[str] = ()) -> Iterator[Sender]:
    """A producer that sends messages with these plans: "java", "python", "node" to a proxy, "go" to a name server.

    They sign with the environment's ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY.
    """
    command = {"java": _java, "python": _python, "node": _node, "go": _go}[language](home)
    running = Sender(home, command, topic, address, plans)
    try:
        yield running
    finally:
        running.kill()


def _java(home: Path) -> list[str]:
    own = ["-Xmx192m", f"-Duser.home={home}", f"-Drocketmq.log.root={home}"]
    (client,) = _jars().glob("rocketmq-client-java-*.jar")  # the first: it has classes of the proxy's names, its own
    classes = os.pathsep.join(map(str, (client, _jars() / "classes", _jars() / "*")))
    return [java(), *_JVM, *own, "-cp", classes, "GrpcProducer"]


def _python(home: Path) -> list[str]:
    return [sys.executable, str(ROOT / "tests/programs/grpc_producer.py")]


def _node(home: Path) -> list[str]:
    """The program beside what it needs; package-lock.json has the hash of each package."""
    source, node, npm = ROOT / "tests/programs/node_producer", shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("needs node and npm, for RocketMQ's Node.js client")
    with fetching("node") as folder:
        lock, installed = source / "package-lock.json", folder / "installed.json"
        if not same(lock, installed):
            for each in (lock, source / "package.json"):
                shutil.copy(each, folder)
            install = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            checked("fetching the Node.js client", *install, folder=folder)
            shutil.copy(lock, installed)
        shutil.copy(source / "producer.js", folder)
    return [node, str(folder / "producer.js")]


def _go(home: Path) -> list[str]:
    """The program, built by the machine's Go; go.sum has the hash of each module."""
    source, tool = ROOT / "tests/programs/go_producer", shutil.which("go")
    if tool is None:
        pytest.skip("needs go, to build a producer with RocketMQ's Go client")
    with fetching("go") as folder:
        build = [tool, "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-o", str(folder / "producer"), "."]
        checked("building the Go producer", *build, folder=source)
    return [str(folder / "producer")]


def _python_packages() -> Path:
    """The folder with RocketMQ's Python client and what it needs."""
    return packages("grpc", "python", ROOT / "requirements/grpc.lock")
