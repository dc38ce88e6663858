"""The live demo of the gateway: a producer sends to it, is asked and answers, while its messages are reconciled."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

from halfop.frame.errors import HalfopError, TransientError
from halfop.frame.output import Output
from halfop.frame.summary import Summary
from halfop.gateway.producer import Answer, Producer, Question, StoredHalf
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.model import Settings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import hold

log = logging.getLogger("halfop.demo")

OVERRIDES = (
    "rules.transaction_timeout=1s",
    "rules.transaction_check_interval=3s",
    "rules.transaction_check_max=3",
)
NAME = "gateway-demo"
_GROUP, _TOPIC = "shop", "orders"
_LONGEST, _PAUSE = 90.0, 0.5
_PROGRAM = "from halfop.frame.cli import run_job; from halfop.jobs.gateway import JOB; run_job(JOB)"
# The answers of each order's producer: at once, and when it is asked.
_ORDERS: dict[bytes, tuple[Answer, Answer]] = {
    b"order 1": ("COMMIT", "COMMIT"),
    b"order 2": ("ROLLBACK", "ROLLBACK"),
    b"order 3": ("UNKNOWN", "COMMIT"),
    b"order 4": ("UNKNOWN", "UNKNOWN"),
}


class _Shop:
    """The producer's side: it says what it does, with the time."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def says(self, what: str) -> None:
        self._output.text(f"{datetime.now(timezone.utc):%H:%M:%S}  {what}\n")

    def answer(self, question: Question) -> Answer:
        said = _ORDERS[question.body][1]
        self.says(f"producer  was asked about {question.body.decode()}, and answers {said}")
        return said

    def send(self, producer: Producer) -> list[StoredHalf]:
        sent = []
        for body, (said, _) in _ORDERS.items():
            sent.append(producer.transaction(_TOPIC, body, lambda _, said=said: said))  # type: ignore[misc]
            self.says(f"producer  sends {body.decode()}, does its work, and says {said}")
        return sent


def play(warehouse: KernelWarehouse, settings: Settings, folder: Path, output: Output) -> Summary:
    """Runs gateway and producer, and lands and reconciles until every transaction has ended or was given up."""
    total, shop = Summary("demo"), _Shop(output)
    with running_gateway(folder, warehouse.root) as address:
        shop.says(f"gateway   {NAME} listens at {address}")
        with Producer(address, _GROUP, shop.answer) as producer:
            sent = shop.send(producer)
            end = time.monotonic() + _LONGEST
            while _ended(total) < len(sent):
                if time.monotonic() > end:
                    raise HalfopError("the demo took too long: is the machine busy? Start it again")
                _cycle(warehouse, settings, address, shop, total)
                time.sleep(_PAUSE)
    return total


def _cycle(warehouse: KernelWarehouse, settings: Settings, address: str, shop: _Shop, total: Summary) -> None:
    request = BrokerRequest(RemotingSettings(), timedelta(0), namesrv=address)
    with total.phase("land"):
        landed = land_broker(warehouse, request, log)
    with total.phase("reconcile"), hold(warehouse, "run"):
        run = reconcile(warehouse, Request(settings))
    if landed.status or run.status:
        raise HalfopError(f"a cycle failed: {landed.to_json()} {run.to_json()}")
    total.run_id = run.run_id
    total.add(run)
    decided = {name: sum(reasons.values()) for name, reasons in run.decisions.items() if name != "WAIT"}
    if decided:
        shop.says(f"run {run.run_id:<5} " + ", ".join(f"{n} {name}" for name, n in sorted(decided.items())))


def _ended(total: Summary) -> int:
    return sum(sum(total.decisions.get(name, {}).values()) for name in ("COMMIT", "ROLLBACK", "DISCARD"))


@contextmanager
def running_gateway(folder: Path, root: str) -> Iterator[str]:
    """The address of a gateway that runs while the block does, in a process of its own over a store in the folder."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-c", _PROGRAM, "--listen", address, "--store", str(folder / "store"), "--name", NAME]
    command += ["--warehouse", root, *(part for each in OVERRIDES for part in ("--set", each))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    with (folder / "gateway.log").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
    try:
        _wait_for(address, process, folder / "gateway.log")
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(address: str, process: subprocess.Popen[bytes], out: Path) -> None:
    end = time.monotonic() + 30
    while not _answers(address):
        if process.poll() is not None or time.monotonic() > end:
            raise HalfopError(f"the gateway did not start: {out.read_text()[-2000:]}")
        time.sleep(0.1)


def _answers(address: str) -> bool:
    try:
        Producer(address, _GROUP, lambda question: "UNKNOWN").close()
    except (OSError, TransientError):
        return False
    return True
