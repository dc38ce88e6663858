"""A system of real parts for a nemesis: each is a process that may be killed, stopped and started at any time."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

from systems.broker.real_broker import RealBroker

from support.crash import FAST, command_of
from support.gateway.clients import free
from support.gateway.gateways import NAME
from support.nemesis.machine import Machine
from support.places import IMPORTS, PROGRAMS, ROOT

GATEWAYS, BROKERS = "gateways", "brokers"  # the topics of each
OWNERS = f"end.brokers={NAME},broker-a"
_RULES = ("transaction_timeout=2s", "transaction_check_interval=4s", "transaction_check_max=3", "checks_a_run=100000")
RULES = [part for rule in _RULES for part in ("--set", f"rules.{rule}")]
# Its own check gives nothing up that a cut network kept from its producers. Op messages wait 3 s in memory, as by
# default.
BROKER: dict[str, object] = {"transactionCheckInterval": 10_000, "transactionTimeOut": 3000}
BROKER |= {"transactionCheckMax": 100_000, "transactionOpBatchInterval": 3000}
_RIGHT_CLOCKS = ("follow", "reader")  # a Java under libfaketime takes minutes to start
_CLOSING_SECONDS = 60


class Part:
    """A process that is started again and again; `command` makes its command from the name of each life."""

    def __init__(
        self, name: str, logs: Path, command: Callable[[str], Sequence[str]], environment: Mapping[str, str]
    ) -> None:
        self.name, self.lock, self.ended = name, Lock(), Counter[str]()
        self._command, self._environment, self._log, self._lives = command, environment, logs / f"{name}.log", 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._lives += 1
        command, environment = (
            self._command(f"{self.name}.{self._lives}"),
            {**os.environ, **IMPORTS, **self._environment},
        )
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=ROOT, env=environment, start_new_session=True
            )

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self, seconds: float = _CLOSING_SECONDS) -> None:
        """SIGTERM, and as a supervisor does, SIGKILL if that takes longer."""
        try:
            self._end(signal.SIGTERM, seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def _end(self, number: int, seconds: float = _CLOSING_SECONDS) -> None:
        self.signal(number)
        if self._process is not None:
            self._process.wait(seconds)
            self._process = None

    def run(self, seconds: float | None) -> int:
        """Its exit status; it is killed if it takes longer."""
        self.start()
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        self.kill()
        return -signal.SIGKILL

    def look(self) -> None:
        """Starts it again, as a supervisor does, if it has ended and no fault holds it."""
        if self.lock.acquire(blocking=False):
            try:
                if self._process is not None and self._process.poll() is not None:
                    self.ended[f"{self.name.rstrip('0123456789')} {self._process.returncode}"] += 1
                    self.start()
            finally:
                self.lock.release()


class System:
    """`parts` by their names; the broker is none of them, because it has its own way to be killed and started."""

    def __init__(self, machine: Machine, folder: Path, seed: int) -> None:
        self.machine, self.folder, self._seed = machine, folder, seed
        self.store, self.disk = machine.disk("store", 1024), machine.disk("lake", 1024)
        self.warehouse, self.history, logs = self.disk / "warehouse", folder / "history", folder / "logs"
        for each in (self.history, logs, folder / "broker"):
            each.mkdir()
        host = {"brokerIP1": machine.host, "brokerIP2": machine.host, "bindAddress": machine.host}
        self.broker = RealBroker("5.5", folder / "broker", (), {**BROKER, **host})
        self.broker_lock = Lock()
        self.broker_address = f"{machine.host}:{self.broker.address.rpartition(':')[2]}"
        self._gateway_address = f"{machine.host}:{free()}"
        commands = {"gateway": self._gateway, "follow": self._follow, "reader": self._reader}
        commands |= {f"producer{n}": self._producer(way) for n, way in enumerate(machine.far)}
        own = {name: machine.with_clock(name) for name in commands if name not in _RIGHT_CLOCKS}
        self.parts = {name: Part(name, logs, each, {**FAST, **own.get(name, {})}) for name, each in commands.items()}

    def start(self) -> None:
        self.start_broker()
        for part in self.parts.values():
            part.start()

    def start_broker(self) -> None:
        self.broker.start()
        self.broker.calm()

    def close(self) -> None:
        for part in self.parts.values():
            part.kill()
        self.broker.close()

    def job(self, *command: str) -> list[str]:
        return command_of(*command, "--warehouse", str(self.warehouse), *RULES)

    def _gateway(self, _: str) -> list[str]:
        own = ["--listen", self._gateway_address, "--store", str(self.store / "store"), "--name", NAME, "--insecure"]
        own += ["--namesrv", self.broker.namesrv, "--topics", GATEWAYS, "--set", "gateway.file_size=67108864"]
        return ["python", "jobs/gateway.py", *own, "--warehouse", str(self.warehouse), *RULES]

    def _follow(self, _: str) -> list[str]:
        return self.job("follow", "broker", "--namesrv", self.broker.namesrv, "--every", "3s")

    def _reader(self, who: str) -> list[str]:
        return ["python", str(PROGRAMS / "reading.py"), str(self.warehouse), str(self.history), who]

    def _producer(self, way: Sequence[str]) -> Callable[[str], list[str]]:
        topics = [f"{GATEWAYS}={self._gateway_address}", f"{BROKERS}={self.broker_address}"]
        program = [*way, "python", str(PROGRAMS / "producing.py"), str(self.folder)]
        return lambda who: [*program, who, str(self._seed), *topics]
