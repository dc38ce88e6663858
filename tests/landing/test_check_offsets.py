"""How far a broker's own check has come: from a store's file, or from the broker, and since when it stands there."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest
from halfop.landing import progress
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.landing.progress import FILE, check_offsets
from halfop.landing.store import fetch
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq.names import HALF_TOPIC
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.warehouse.kernel import KernelWarehouse
from support.brokers import store_writer as w
from support.brokers.played_broker import About, played
from systems.broker.real_broker import Plan, RealBroker

LOG, NONE = logging.getLogger("halfop.test"), timedelta(0)
KEPT = (
    '{"dataVersion":{"counter":9},"offsetTable":{"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:%d},"T@g":{0:7,1:9}}}'
)


def keep(root: Path, text: str) -> None:
    (root / FILE).parent.mkdir(exist_ok=True)
    (root / FILE).write_text(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (KEPT % 132, {0: 132}),
        ('{\n\t"offsetTable":{\n\t\t"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:5\n\t\t}\n\t}\n}', {0: 5}),
        ((KEPT % 132)[:60], {}),
        ('{"offsetTable":{}}', {}),
        ("[]", {}),
        ("", {}),
        (None, {}),
    ],
)
def test_a_store_s_file(tmp_path: Path, text: str | None, found: dict[int, int]) -> None:
    if text is not None:
        keep(tmp_path, text)
    assert check_offsets(str(tmp_path)) == found


def check(warehouse: KernelWarehouse, broker: str = "broker-a") -> tuple[int | None, int | None]:
    """The offset, and since when in seconds after the first record."""
    row = progress.of_broker(warehouse, broker)[HALF_TOPIC, 0]
    return row.check_offset, None if row.check_since is None else row.check_since // 1_000_000 - w.BORN_MS // 1000


@pytest.mark.parametrize("remote", [False, True], ids=["local", "copied"])
def test_a_store_lands_with_it(
    warehouse: KernelWarehouse, tmp_path: Path, remote: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if remote:
        monkeypatch.setattr(fetch, "local_folder", lambda _: None)
    store = w.Store(tmp_path / "store")

    def landed(second: int, text: str) -> tuple[int | None, int | None]:
        store.append(w.half(second, store_ms=w.BORN_MS + second * 1000))
        keep(store.root, text)
        land_store(warehouse, StoreRequest(str(store.root), "broker-a", NONE), LOG)
        return check(warehouse)

    assert landed(10, "") == (None, None)
    assert landed(20, KEPT % 1) == (1, 20)
    assert landed(30, KEPT % 1) == (1, 20), "it has stood there since"
    assert landed(40, KEPT % 3) == (3, 40)
    assert landed(50, KEPT % 0) == (0, 50), "a broker that lost the file begins again"
    progress.tidy(warehouse)
    land_store(warehouse, StoreRequest(str(store.root), "broker-a", NONE), LOG)
    assert check(warehouse) == (0, 50)


def test_a_running_broker_is_asked(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    store = w.Store(tmp_path / "store")
    store.append(w.half(0))
    for second, offset, expected in ((10, None, (None, None)), (20, 0, (0, 20)), (30, 0, (0, 20)), (40, 1, (1, 40))):
        with played(store, about=About(w.BORN_MS + second * 1000, check_offset=offset)) as address:
            assert land_broker(warehouse, BrokerRequest(RemotingSettings(), NONE, broker=address), LOG).status == 0
        assert check(warehouse) == expected


@pytest.mark.broker
@pytest.mark.parametrize("name", ["broker4", "broker5"])
def test_a_real_broker_says_it(warehouse: KernelWarehouse, request: pytest.FixtureRequest, name: str) -> None:
    running: RealBroker = request.getfixturevalue(name)
    running.produce([Plan("orders", "C", None)] * 5, linger=5)
    request_ = BrokerRequest(RemotingSettings(), NONE, namesrv=running.namesrv)
    assert land_broker(warehouse, request_, LOG).status == 0
    (broker,) = {row["broker_name"] for row in warehouse.rows("landing_progress")}
    offset, _ = check(warehouse, broker)
    assert offset is not None
    assert offset >= 0
