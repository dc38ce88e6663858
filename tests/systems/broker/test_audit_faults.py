"""The audit against real brokers that are made to do wrong; what it should find is read off the rows one by one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from halfop.audit.audit import audit
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.settings.model import RuleSettings, Settings
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import SparkSession

from systems.broker.raw_sends import send
from systems.broker.real_broker import Plan, RealBroker, Truth, broker

pytestmark = pytest.mark.broker
SOME = -1  # how many is a matter of timing


@dataclass(frozen=True)
class Fault:
    """`found`: how many transactions have which finding; no other has any. `of_groups`: findings about the group."""

    name: str
    settings: dict[str, object]
    produce: Callable[[RealBroker], list[Truth]]
    found: dict[str, int] = field(default_factory=dict)
    version: int = 5
    of_groups: tuple[str, ...] = ()
    rules: RuleSettings = field(default_factory=RuleSettings)


def _clean(running: RealBroker) -> list[Truth]:
    answers = [("C", 300), ("R", 100), ("UC", 50), ("UUR", 50)]
    plans = [Plan("t", answer) for answer, number in answers for _ in range(number)]
    return running.produce([*plans, *[Plan("t", answer, 5) for answer in ("C", "UC") * 30]], linger=60)


def _answers_late(running: RealBroker) -> list[Truth]:
    """The local transaction takes longer than the first checks, not longer than the message's own immunity."""
    return running.produce([Plan("t", "CC", immunity=12, slow_ms=6000)] * 20, threads=20, linger=60)


def _never_answers(running: RealBroker) -> list[Truth]:
    return running.produce([Plan("t", "UC", immunity=60)] * 30, linger=15)


def _answers_the_last_check(running: RealBroker) -> list[Truth]:
    return running.produce([Plan("t", "UUC")] * 200, linger=60)


def _loses_its_ops(running: RealBroker) -> list[Truth]:
    sent = running.produce([Plan("t", "C")] * 300)
    running.kill()
    running.restart()
    running.produce([], expect=300, linger=60)
    return sent


def _sends_for_a_while(running: RealBroker) -> list[Truth]:
    return running.produce([Plan("t", "C", slow_ms=20)] * 3000)


def _many_hosts_send(running: RealBroker) -> list[Truth]:
    """One group by hosts that send to topics of their own; a clock ahead, and one behind; then the broker goes on."""
    for host, topic in (("127.0.0.2", "orders"), ("127.0.0.3", "bills"), ("127.0.0.2", "orders")):
        send(running.address, host, "mixed", topic, 5)
    send(running.address, "127.0.0.4", "ahead", "a", 5, ahead_ms=60_000)
    send(running.address, "127.0.0.5", "behind", "b", 5, ahead_ms=-60_000)
    time.sleep(5)
    send(running.address, "127.0.0.2", "mixed", "orders", 1)
    return []


def _nobody_is_connected(running: RealBroker) -> list[Truth]:
    send(running.address, "127.0.0.1", "gone", "orders", 6)
    return []


# As the broker has its timeout, and shorter than its check interval.
_QUICK = RuleSettings(transaction_timeout=timedelta(seconds=1), transaction_check_interval=timedelta(seconds=1))
FAULTS = [
    Fault(
        "checks-once-an-hour",
        {"transactionCheckInterval": 3_600_000},
        _many_hosts_send,
        of_groups=("CHECK_STUCK", "CLOCK_SKEW", "CLOCK_SKEW", "MIXED_GROUP"),
        rules=_QUICK,
    ),
    Fault("nobody-is-connected", {}, _nobody_is_connected, of_groups=("GROUP_FORGOTTEN",)),
    Fault("nobody-is-connected-4", {}, _nobody_is_connected, version=4, of_groups=("GROUP_FORGOTTEN",)),
    Fault("clean", {"transactionCheckInterval": 3000, "transactionTimeOut": 3000}, _clean),
    Fault(
        "slow-local-transaction",
        {"transactionCheckInterval": 2000},
        _answers_late,
        {"DELIVERED_TWICE": 20, "CHECKED_AFTER_END": 20},
    ),
    Fault("immune", {"transactionCheckMax": 3}, _never_answers, {"DISCARDED_WITHOUT_CHECK": 30}),
    Fault(
        "last-check",
        {"transactionCheckMax": 2},
        _answers_the_last_check,
        {"DELIVERED_AND_DISCARDED": SOME},
        of_groups=("COMMIT_ONLY_BY_CHECK",),
    ),
    Fault(
        "last-check-4",
        {"transactionCheckMax": 2},
        _answers_the_last_check,
        {"DELIVERED_AND_DISCARDED": SOME},
        4,
        ("COMMIT_ONLY_BY_CHECK",),
    ),
    Fault(
        "killed",
        {"transactionOpBatchInterval": 3000, "transactionCheckInterval": 5000},
        _loses_its_ops,
        {"DELIVERED_TWICE": SOME, "DELIVERED_WITHOUT_OP": SOME, "CHECKED_AFTER_END": SOME},
    ),
    Fault(
        "op-batch-longer-than-the-check-interval",  # as long: whether it goes wrong is a matter of their phases
        {"transactionOpBatchInterval": 3000, "transactionCheckInterval": 2000},
        _sends_for_a_while,
        {"DELIVERED_TWICE": SOME, "CHECKED_AFTER_END": SOME},
    ),
]


@pytest.fixture(scope="module")
def shared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> KernelWarehouse:
    return KernelWarehouse(spark, str(tmp_path_factory.mktemp("faults") / "warehouse"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_finds_what_a_real_broker_did(shared: KernelWarehouse, tmp_path: Path, fault: Fault) -> None:
    with broker(fault.version, tmp_path, fault.settings) as running:
        truths = fault.produce(running)
        time.sleep(5)  # for what the broker still has to write
        running.stop()
        stopped = datetime.now(timezone.utc)
        request = StoreRequest(str(running.store), fault.name, op_lag=timedelta(seconds=5), known_until=stopped)
        land_store(shared, request, logging.getLogger())
    extra = audit(shared, Settings(rules=fault.rules)).extra
    rows = shared.read("audit").where(f"audit_id = '{extra['audit_id']}' AND broker_name = '{fault.name}'").collect()
    found: dict[str, set[str]] = {}
    assert sorted(row["finding"] for row in rows if row["uniq_key"] is None) == sorted(fault.of_groups)
    for row in [row for row in rows if row["uniq_key"]]:
        assert row["uniq_key"] not in found.setdefault(row["finding"], set()), "told twice"
        found[row["finding"]].add(row["uniq_key"])
    assert found == {name: keys for name, keys in _Topics(shared, fault.name).told(truths).items() if keys}
    assert found.keys() == fault.found.keys()
    assert all(len(found[name]) == number for name, number in fault.found.items() if number != SOME)


class _Topics:
    """A broker's rows, held against each other by UNIQ_KEY in plain Python."""

    def __init__(self, warehouse: KernelWarehouse, name: str) -> None:
        def rows(table: str) -> list[dict[str, Any]]:
            return [row.asDict() for row in warehouse.read(table).where(f"broker_name = '{name}'").collect()]

        halves = rows("half_messages")
        self.key_at = {half["queue_offset"]: half["uniq_key"] for half in halves}
        self.place_at = {half["queue_offset"]: half["commit_log_offset"] for half in halves}
        self.copies = [half for half in halves if half["landed_check_times"]]
        self.ops, self.finals, self.discards = rows("op_messages"), rows("final_messages"), rows("broker_discards")

    def told(self, truths: list[Truth]) -> dict[str, set[str]]:
        delivered = [final["uniq_key"] for final in self.finals]
        named = {self.place_at[op["half_offset"]] for op in self.ops}
        discarded = {discard["uniq_key"] for discard in self.discards}
        return {
            "DELIVERED_TWICE": {key for key in delivered if delivered.count(key) > 1},
            "DELIVERED_AND_DISCARDED": discarded & set(delivered),
            "DISCARDED_WITHOUT_CHECK": discarded & {truth.uniq for truth in truths if len(truth.answers) == 1},
            "DELIVERED_WITHOUT_OP": {
                f["uniq_key"] for f in self.finals if f["prepared_transaction_offset"] not in named
            },
            "CHECKED_AFTER_END": self._checked_after_end(),
        }

    def _checked_after_end(self) -> set[str]:
        ends: dict[str, int] = {}
        by_op = [(self.key_at[op["half_offset"]], op["physical_offset"]) for op in self.ops]
        for key, place in [*by_op, *[(final["uniq_key"], final["physical_offset"]) for final in self.finals]]:
            ends[key] = min(place, ends.get(key, place))
        return {
            copy["uniq_key"]
            for copy in self.copies
            if copy["commit_log_offset"] > ends.get(copy["uniq_key"], copy["commit_log_offset"]) and not _immune(copy)
        }


def _immune(half: dict[str, Any]) -> bool:
    age = half["store_timestamp"] - half["born_timestamp"]
    return half["check_immunity"] is not None and age <= timedelta(seconds=int(half["check_immunity"]))
