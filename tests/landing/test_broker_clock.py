"""Time passes by the broker's clock: the host that lands may have another one, and a slave may lag."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from halfop.landing import progress
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.rocketmq.wire.client import BrokerClock, shown_time
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.runs import reconcile as job
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.model import Settings
from halfop.warehouse.kernel import KernelWarehouse
from support import rows as r
from support.brokers import store_writer as w
from support.brokers.played_broker import About, played
from support.brokers.stores import transactions

LOG = logging.getLogger("halfop.test")
THERE = w.BORN_MS + 5_000
HOUR, DAY = 3_600_000, 86_400_000


def request(address: str) -> BrokerRequest:
    return BrokerRequest(RemotingSettings(give_up_after=5), timedelta(seconds=1), broker=address)


@pytest.mark.thorough
@pytest.mark.parametrize("minutes", [-10, 0, 10])
def test_a_host_whose_clock_is_wrong_decides_the_same(
    warehouse: KernelWarehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    """A half message of 4 seconds has no op yet: whatever time the host has, nobody is asked."""
    store, here = w.Store(tmp_path / "store"), THERE + minutes * 60_000
    store.extend(w.Record("orders", queue_id=n) for n in range(4))
    transactions(store, range(2))
    store.append(w.half(2))
    monkeypatch.setattr(progress, "time", SimpleNamespace(time_ns=lambda: here * 1_000_000))
    with played(store, about=About(THERE)) as address:
        assert land_broker(warehouse, request(address), LOG).status == 0
    known = progress.known_until(warehouse, progress.of_ops(warehouse))
    assert known == [(THERE - 1_000) * 1000]
    assert reconcile(warehouse, Request(Settings(), r.instant(THERE + 700_000))).status == 0
    decided = {row["queue_offset"]: row["decision"] for row in warehouse.read("decisions").collect()}
    assert decided == {0: "COMMIT", 1: "ROLLBACK", 2: "WAIT"}


@pytest.mark.thorough
@pytest.mark.parametrize("minutes", [-60, 60])
def test_a_host_an_hour_off_decides_nothing_wrongly_and_nothing_for_ever(
    warehouse: KernelWarehouse,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    minutes: int,
) -> None:
    """Runs take the host's own clock, too. Two hours later the open message is asked about."""
    store = w.Store(tmp_path / "store")
    store.extend(w.Record("orders", queue_id=n) for n in range(4))
    transactions(store, range(2))
    store.append(w.half(2))
    asking = Settings.model_validate({"rules": {"ask": True}})
    found: list[dict[int, str]] = []
    for there in (THERE, THERE + 2 * HOUR):
        here = there + minutes * 60_000
        monkeypatch.setattr(progress, "time", SimpleNamespace(time_ns=lambda here=here: here * 1_000_000))
        monkeypatch.setattr(job, "wall_clock", lambda here=here: r.instant(here))
        with played(store, about=About(there)) as address:
            assert land_broker(warehouse, request(address), LOG).status == 0
        assert reconcile(warehouse, Request(asking)).status == 0
        found.append({d.key[2]: d.decision for d in r.decisions(warehouse, len(found) + 1)})
    assert found == [{0: "COMMIT", 1: "ROLLBACK", 2: "WAIT"}, {2: "CHECK"}]
    said = [text for text in caplog.messages if "set the clock" in text]
    assert len(said) == (2 if minutes < 0 else 0)
    assert all("ops are known until 2025-" in text for text in said)


def test_a_slave_is_refused(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    store = w.Store(tmp_path / "store")
    transactions(store, range(2))
    with played(store, about=About(role="SLAVE")) as address:
        summary = land_broker(warehouse, request(address), LOG)
    assert summary.status == 3
    (said,) = summary.extra["failed_brokers"].values()
    assert f"{address}: a slave of broker-a, no master" in said
    assert "--namesrv" in said
    assert summary.rows_written == {}


def test_an_empty_queue_lost_what_it_had_by_the_broker_s_time() -> None:
    clock = BrokerClock(7_000_000, 1.0)
    assert clock.latest() >= 8_000_000


@pytest.mark.parametrize(
    ("runtime", "millis"),
    [
        ("[ 0 days, 0 hours, 0 minutes, 7 seconds ]", 7_000),
        ("[ 3 days, 4 hours, 5 minutes, 6 seconds ]", 3 * DAY + 4 * HOUR + 306_000),
        ("[ 1,203 days, 0 hours, 0 minutes, 0 seconds ]", 1203 * DAY),  # as Java writes it in English
        ("[ 1\u202f203 days, 0 hours, 0 minutes, 1 seconds ]", 1203 * DAY + 1_000),  # and in French
    ],
)
def test_the_time_that_a_broker_shows(runtime: str, millis: int) -> None:
    assert shown_time({"bootTimestamp": "1750000000123", "runtime": runtime}) == (1_750_000_000_123 + millis) * 1000
