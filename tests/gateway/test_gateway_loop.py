"""The closed loop of a gateway, landing and rules, with a producer in Python: questions count when they are sent."""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from halfop.frame.cli import main
from halfop.gateway.producer import Answer, Producer, Question
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.load import load_settings
from halfop.warehouse.kernel import KernelWarehouse
from support.entry_points import job_of
from support.gateway.clients import nothing
from support.gateway.gateways import NAME, RunningGateway, gateway

pytestmark = pytest.mark.slow
# the interval is longer than a cycle takes on a busy machine: older questions are not asked
RULES = ("rules.transaction_timeout=100ms", "rules.transaction_check_interval=4s", "rules.transaction_check_max=3")
OPTIONS = [part for rule in (*RULES, "gateway.look_every=100ms") for part in ("--set", rule)]


class Loop:
    """A gateway's landing and runs, one cycle after the other."""

    def __init__(self, warehouse: KernelWarehouse, running: RunningGateway) -> None:
        self.warehouse, self.running = warehouse, running
        self.decided = Counter[str]()

    def cycle(self) -> Counter[str]:
        assert self.land() == 0
        return self.run()

    def land(self, accept_rewind: bool = False) -> int:
        request = BrokerRequest(
            RemotingSettings(), timedelta(0), namesrv=self.running.address, accept_rewind=accept_rewind
        )
        return land_broker(self.warehouse, request, logging.getLogger("tests")).status

    def run(self) -> Counter[str]:
        run = reconcile(self.warehouse, Request(load_settings(None, RULES, {})))
        assert run.status == 0
        found = Counter({name: sum(reasons.values()) for name, reasons in run.decisions.items()})
        self.decided += found
        return found

    def until(self, done: Callable[[], bool], seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, self.decided
            self.cycle()

    def outcomes(self) -> Counter[str]:
        return Counter(row["outcome"] for row in self.warehouse.read("check_deliveries").collect())


def test_a_silent_transaction_is_asked_about_as_often_as_allowed_then_discarded(
    warehouse: KernelWarehouse, tmp_path: Path
) -> None:
    with gateway(tmp_path, *OPTIONS, warehouse=warehouse.root) as running:
        loop = Loop(warehouse, running)
        with Producer(running.address, "group", nothing) as producer:
            producer.send("orders", b"silent")
            loop.until(lambda: loop.decided["DISCARD"] == 1)
            time.sleep(0.5)
            found = loop.outcomes()
            assert (found["SENT"], found["UNKNOWN"]) == (3, 3)
            assert sum(found.values()) - found["UNKNOWN"] == loop.decided["CHECK"]  # those that came too late count not
            (given_up,) = warehouse.read("trans_check_max_time").collect()
            assert (given_up["check_times"], given_up["body"]) == (3, b"silent")


def test_it_lands_under_its_own_name_and_under_no_other(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    log = logging.getLogger("tests")
    with gateway(tmp_path, *OPTIONS, warehouse=warehouse.root) as running:
        loop, request = (
            Loop(warehouse, running),
            BrokerRequest(RemotingSettings(), timedelta(0), broker=running.address),
        )
        with Producer(running.address, "group", lambda question: "COMMIT") as producer:
            producer.send("orders", b"asked")
            refused = land_broker(warehouse, replace(request, broker_name="broker-a"), log)
            assert refused.status == 3
            assert "a gateway of the name gateway-a" in refused.extra["failed_brokers"]["broker-a"]
            assert not warehouse.read("half_messages").collect()
            assert land_broker(warehouse, request, log).status == 0
            loop.until(lambda: loop.decided["COMMIT"] == 1)
    assert "refused" not in running.log.read_text(), "a landing asks for nothing that a gateway does not have"
    assert {row["broker_name"] for row in warehouse.read("check_requests").collect()} == {NAME}


def test_an_end_and_its_opposite(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    with gateway(tmp_path, *OPTIONS, warehouse=warehouse.root) as running:
        loop = Loop(warehouse, running)
        with Producer(running.address, "group", nothing) as producer:
            sent = [producer.send("orders", body) for body in (b"yes", b"no")]
            for each, answers in zip(sent, (("COMMIT", "ROLLBACK"), ("ROLLBACK", "COMMIT")), strict=True):
                for answer in answers:
                    producer.end_surely(each, answer)  # type: ignore[arg-type]
            loop.until(lambda: loop.decided["COMMIT"] + loop.decided["ROLLBACK"] == 2)
        assert [row["body"] for row in warehouse.read("topics/orders").collect()] == [b"yes"]
        rejected = Counter(row["reason"] for row in warehouse.read("rejected").collect())
        assert rejected == Counter({"CONFLICT": 2})


@pytest.mark.usefixtures("logging_as_before")
def test_its_messages_are_ended_in_the_gateway(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    with gateway(tmp_path, *OPTIONS, warehouse=warehouse.root) as running:
        loop = Loop(warehouse, running)
        with Producer(running.address, "group", nothing) as producer:
            for body in (b"yes", b"no"):
                producer.send("orders", body)
        loop.cycle()
        yes, no = (str(tmp_path / f"{name}.jsonl") for name in ("yes", "no"))
        young = ("--min-age", "0s", "--warehouse", warehouse.root)
        assert main(job_of("end"), ["--key", f"{NAME}/0/0", "--commit", "--plan", yes, *young]) == 0
        assert main(job_of("end"), ["--key", f"{NAME}/0/1", "--rollback", "--plan", no, *young]) == 0
        allowed = ("--warehouse", warehouse.root, "--set", f"end.brokers={NAME}")
        assert main(job_of("end"), ["--apply", yes, *allowed]) == 2, "nobody has said where it is"
        for plan in (yes, no):
            assert main(job_of("end"), ["--apply", plan, *allowed, "--namesrv", running.address]) == 0
        assert loop.cycle() == {"COMMIT": 1, "ROLLBACK": 1}
        assert {row["state"] for row in warehouse.read("endings").collect()} == {"INTENDED", "SENT", "VERIFIED"}
    assert {row["source"] for row in warehouse.read("op_messages").collect()} == {"GATEWAY"}
    assert [row["body"] for row in warehouse.read("topics/orders").collect()] == [b"yes"]


def test_while_no_producer_is_there_nothing_is_given_up(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    with gateway(tmp_path, *OPTIONS, warehouse=warehouse.root) as running:
        loop = Loop(warehouse, running)
        with Producer(running.address, "group", nothing) as producer:
            producer.send("orders", b"patient")
        loop.until(lambda: loop.decided["CHECK"] >= 5)
        assert loop.decided["DISCARD"] == 0
        with Producer(running.address, "group", lambda question: "COMMIT"):
            loop.until(lambda: loop.decided["COMMIT"] == 1)
    assert [row["body"] for row in warehouse.read("topics/orders").collect()] == [b"patient"]


def test_while_the_gateway_is_down_nothing_is_given_up(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    with gateway(tmp_path, *OPTIONS, warehouse=warehouse.root) as running:
        loop = Loop(warehouse, running)
        with Producer(running.address, "group", nothing) as producer:
            producer.send("orders", b"patient")
        loop.until(lambda: loop.decided["CHECK"] == 1)
    end = time.monotonic() + 20  # five check intervals
    while time.monotonic() < end:
        loop.run()
        time.sleep(1)
    assert loop.decided["DISCARD"] == 0
    with (
        gateway(tmp_path, *OPTIONS, warehouse=warehouse.root, listen=running.address),
        Producer(running.address, "group", lambda question: "COMMIT"),
    ):
        loop.until(lambda: loop.decided["COMMIT"] == 1)
    assert [row["body"] for row in warehouse.read("topics/orders").collect()] == [b"patient"]


def test_after_its_store_was_put_back_its_new_life_is_asked_about(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    answers: dict[bytes, Answer] = {b"kept": "COMMIT", b"new": "COMMIT"}

    def answer(question: Question) -> Answer:
        return answers.get(question.body, "UNKNOWN")

    with (
        gateway(tmp_path, *OPTIONS, warehouse=warehouse.root) as running,
        Producer(running.address, "group", nothing) as producer,
    ):
        loop = Loop(warehouse, running)
        producer.send("orders", b"kept")
        loop.cycle()
        assert running.stop() == 0
    shutil.copytree(running.store, tmp_path / "copy")
    with (
        gateway(tmp_path, *OPTIONS, warehouse=warehouse.root) as running,
        Producer(running.address, "group", nothing) as producer,
    ):
        loop.running = running
        for body in (b"lost", b"lost, too"):
            producer.send("orders", body)
        loop.cycle()
        running.kill()
    shutil.rmtree(running.store)
    (tmp_path / "copy").rename(running.store)
    with (
        gateway(tmp_path, *OPTIONS, warehouse=warehouse.root) as running,
        Producer(running.address, "group", answer) as producer,
    ):
        loop.running = running
        producer.send("orders", b"new")
        assert loop.land() == 3, "what has landed is not there"
        assert loop.land(accept_rewind=True) == 0
        loop.until(lambda: loop.decided["COMMIT"] == 2)
    assert sorted(row["body"] for row in warehouse.read("topics/orders").collect()) == [b"kept", b"new"]
    assert {row["body"] for row in warehouse.read("trans_check_max_time").collect()} == {b"lost", b"lost, too"}
    asked = {row["body"]: row["broker_name"] for row in warehouse.read("check_requests").collect()}
    assert asked[b"new"] == f"{NAME}~2"
    sent = warehouse.read("check_deliveries").where("outcome = 'SENT'").collect()
    assert f"{NAME}~2" in {row["broker_name"] for row in sent}
