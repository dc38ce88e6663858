"""The closed loop around a gateway: landing, rules and questions, until producers have ended and nothing is open."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.load import load_settings
from halfop.settings.model import Settings
from halfop.warehouse.kernel import KernelWarehouse

RULES = ("rules.transaction_timeout=1s", "rules.transaction_check_interval=2s", "rules.transaction_check_max=3")
LOG = logging.getLogger("tests")
OPEN = RemotingSettings()


def settings() -> Settings:
    return load_settings(None, RULES, {})


def options() -> list[str]:
    return [part for rule in RULES for part in ("--set", rule)]


def cycle(warehouse: KernelWarehouse, address: str, remoting: RemotingSettings) -> Counter[str]:
    """Lands and reconciles once; returns the counts of decisions."""
    request = BrokerRequest(remoting, timedelta(0), namesrv=address)
    landed = land_broker(warehouse, request, LOG)
    assert landed.status == 0, landed.to_json()
    run = reconcile(warehouse, Request(settings()))
    assert run.status == 0, run.to_json()
    return Counter({name: sum(reasons.values()) for name, reasons in run.decisions.items()})


def follow(
    warehouse: KernelWarehouse,
    address: str,
    producers: Sequence[Future[Any]],
    seconds: float = 90,
    remoting: RemotingSettings = OPEN,
) -> None:
    """Cycles until the producers have ended and nothing is open."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        all_is_sent = all(each.done() for each in producers)  # before it lands
        decided = cycle(warehouse, address, remoting)
        if all_is_sent and not decided["CHECK"] + decided["WAIT"]:
            return
    raise AssertionError(f"still open after {seconds} s")


def asked(warehouse: KernelWarehouse, outcome: str = "SENT") -> Counter[int]:
    """How many questions had the outcome about each half message, by its offset."""
    found = warehouse.read("check_deliveries").where(f"outcome = '{outcome}'").select("request_id")
    rows = warehouse.read("check_requests").join(found, "request_id").select("tran_state_table_offset").collect()
    return Counter(row[0] for row in rows)


def delivered(warehouse: KernelWarehouse, topic: str) -> Counter[str]:
    rows = warehouse.read(f"topics/{topic}").select("transaction_id").collect()
    return Counter(row[0] for row in rows)
