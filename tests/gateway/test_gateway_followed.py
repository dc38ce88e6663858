"""The whole loop as processes: producers, a gateway that is killed under load, and `follow broker` beside it."""

from __future__ import annotations

import logging
import secrets
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest
from halfop.frame.errors import TransientError
from halfop.gateway.producer import Answer, Producer, Question
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.load import load_settings
from halfop.warehouse.kernel import KernelWarehouse
from support.crash import ended, job
from support.gateway.clients import free, page
from support.gateway.gateways import RunningGateway, start

pytestmark = pytest.mark.slow
KILLS, SENDERS = 10, 4
RULES = ("rules.transaction_timeout=1s", "rules.transaction_check_interval=4s", "rules.transaction_check_max=100")
OPTIONS = [part for rule in RULES for part in ("--set", rule)]
PAUSE = 0.005  # of a sender between its transactions
PLANS = ("COMMIT", "COMMIT", "ROLLBACK", "UNKNOWN")  # UNKNOWN: it commits when it is asked


def answer(question: Question) -> Answer:
    return "ROLLBACK" if question.body == b"ROLLBACK" else "COMMIT"


class Sender:
    """Sends and ends until it is asked to stop, over a new connection if one is lost."""

    def __init__(self, address: str, stop: Event) -> None:
        self._address, self._stop = address, stop
        self.tried, self.acknowledged = dict[str, str](), dict[str, str]()

    def run(self) -> None:
        while not self._stop.is_set():
            with suppress(TransientError, OSError), Producer(self._address, "group", answer) as producer:
                while not self._stop.is_set():
                    self._transaction(producer)
                    time.sleep(PAUSE)
            time.sleep(0.05)

    def _transaction(self, producer: Producer) -> None:
        uniq, plan = secrets.token_hex(16).upper(), PLANS[len(self.tried) % len(PLANS)]
        self.tried[uniq] = plan
        sent = producer.send("orders", plan.encode(), {"UNIQ_KEY": uniq})
        self.acknowledged[uniq] = plan
        producer.end(sent, plan)  # type: ignore[arg-type]


def killed_again_and_again(running: RunningGateway, folder: Path, options: list[str]) -> RunningGateway:
    for _ in range(KILLS):
        time.sleep(1)
        running.kill()
        running = start(folder, *options, listen=running.address)
    time.sleep(1)
    return running


def test_ten_kills_while_follow_lands_and_decides(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    pages = f"127.0.0.1:{free()}"
    options = [*OPTIONS, "--metrics", pages, "--set", "gateway.questions_a_second=10000", "--warehouse", warehouse.root]
    running, stop = start(tmp_path / "gateway", *options), Event()
    following = job(
        *("follow", "broker", "--namesrv", running.address, "--every", "1s", "--warehouse", warehouse.root, *OPTIONS)
    )
    try:
        with ThreadPoolExecutor(SENDERS + 1) as pool:
            followed = pool.submit(ended, following)
            senders = [Sender(running.address, stop) for _ in range(SENDERS)]
            done = [pool.submit(each.run) for each in senders]
            try:
                running = killed_again_and_again(running, tmp_path / "gateway", options)
            finally:
                stop.set()
            for each in done:
                each.result()
            with Producer(running.address, "group", answer):
                until_nothing_is_open(pages)
            following.send_signal(signal.SIGTERM)
            status, said = followed.result()
            assert status == 0, said[-3000:]
        decided(warehouse, running.address)
    finally:
        running.kill()
        following.kill()
    tried = {uniq: plan for each in senders for uniq, plan in each.tried.items()}
    acknowledged = {uniq: plan for each in senders for uniq, plan in each.acknowledged.items()}
    delivered = Counter(row[0] for row in warehouse.read("topics/orders").select("transaction_id").collect())
    assert set(delivered.values()) == {1}, "nothing twice"
    assert {uniq for uniq, plan in acknowledged.items() if plan != "ROLLBACK"} <= set(delivered), "nothing lost"
    assert {tried[uniq] for uniq in delivered} == {"COMMIT", "UNKNOWN"}, "nothing that was rolled back"
    assert len(acknowledged) > KILLS * SENDERS * 10


def until_nothing_is_open(pages: str) -> None:
    end = time.monotonic() + 120
    while "halfop_gateway_open 0.0" not in page(pages, "metrics"):
        assert time.monotonic() < end
        time.sleep(0.5)


def decided(warehouse: KernelWarehouse, address: str) -> None:
    """Lands what is left, and decides until nothing is open."""
    for _ in range(5):
        request = BrokerRequest(RemotingSettings(), timedelta(0), namesrv=address)
        assert land_broker(warehouse, request, logging.getLogger("tests")).status == 0
        run = reconcile(warehouse, Request(load_settings(None, RULES, {})))
        assert run.status == 0
        if not {"CHECK", "WAIT"} & run.decisions.keys():
            return
    raise AssertionError(run.decisions)
