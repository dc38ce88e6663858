"""Gateways as processes of their own, over folders of their own, for tests; killed when they end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfop.rocketmq.properties import Properties
from halfop.rocketmq.record import chain
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.pull import Chunk, QueueRange, pull

from support.places import ROOT

_SECONDS = 30.0
NAME = "gateway-a"


@dataclass
class RunningGateway:
    """`log` is the file of what it has written to stderr."""

    address: str
    store: Path
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def memory(self) -> int:
        """Bytes that the process has in memory."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))

    def stop(self) -> int:
        """SIGTERM; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(_SECONDS)


def start(
    folder: Path,
    *options: str,
    warehouse: str | None = None,
    listen: str = "127.0.0.1:0",
    job: Path = ROOT / "jobs/gateway.py",
) -> RunningGateway:
    """Starts a gateway, whose store is `folder`/store, and waits until it listens."""
    folder.mkdir(parents=True, exist_ok=True)
    store, log = folder / "store", folder / "gateway.log"
    command = [sys.executable, str(job), "--listen", listen, "--store", str(store)]
    # a small file, and a disk that others may fill
    own = ["--set", "gateway.file_size=67108864", "--set", "gateway.disk_percent=100"]
    command += ["--name", NAME, "--warehouse", warehouse or str(folder / "warehouse"), *own, *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "lib")}
    with log.open("wb") as errors, (folder / "gateway.out").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=errors, env=environment)
    return RunningGateway(_address(log, process), store, log, process)


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    end = time.monotonic() + _SECONDS
    while not (found := re.search(r"listens at (\S+),", log.read_text())):
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            raise RuntimeError(f"the gateway did not start:\n{log.read_text()[-3000:]}")
        time.sleep(0.02)
    return found[1]


@contextmanager
def gateway(folder: Path, *options: str, warehouse: str | None = None, **other: Any) -> Iterator[RunningGateway]:
    """A gateway that runs while the block does; `other` is as for `start`."""
    running = start(folder, *options, warehouse=warehouse, **other)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.kill()


def pulled(broker: Broker, topic: str, number: int = 0, first: int = 0) -> list[dict[str, Any]]:
    """The messages of a queue from an offset on."""
    end = broker.max_offset(topic, number)
    chunks = [each for each in pull(broker, QueueRange(topic, number, first, end)) if isinstance(each, Chunk)]
    return [message for each in chunks for message in _messages(each.data)]


def _messages(data: bytes) -> list[dict[str, Any]]:
    records = chain(data).records
    properties = Properties(records)
    columns = {name: properties.strings(name).to_pylist() for name in ("UNIQ_KEY", "REAL_TOPIC", "END_OUTCOME")}
    columns["body"] = records.bodies.to_pylist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
