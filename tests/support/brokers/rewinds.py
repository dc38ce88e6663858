"""Stores of brokers that lost the end of their log."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from halfop.frame.summary import Summary
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.warehouse.kernel import KernelWarehouse

from support.brokers import store_writer as w

BROKER, LIFE = "broker-a", "broker-a~2"
SECOND = 1_000


def land(warehouse: KernelWarehouse, store: w.Store, accept: bool = False, broker: str = BROKER) -> Summary:
    request = StoreRequest(str(store.root), broker, timedelta(0), accept_rewind=accept)
    return land_store(warehouse, request, logging.getLogger("halfop.test"))


def begun(path: Path, records: Iterable[tuple[int, w.Record]] = ()) -> w.Store:
    """A store that holds these records alone, where they were."""
    store = w.Store(path)
    store.extend(record for _, record in records)
    return store


def kept(path: Path, before: w.Store, number: int) -> w.Store:
    """The store with its first records alone."""
    return begun(path, before.records[:number])


def at(seconds: float) -> dict[str, int]:
    return {"store_ms": w.BORN_MS + int(seconds * SECOND)}


def land_running(warehouse: KernelWarehouse, request: BrokerRequest) -> Summary:
    """Lands a real broker: 4.9.7 cannot report its clock until it has run for some seconds."""
    for _ in range(20):
        summary = land_broker(warehouse, request, logging.getLogger("halfop.test"))
        if "RUNTIME_INFO" not in str(summary.extra.get("failed_brokers")):
            break
        time.sleep(1)
    return summary


def cut_off(store: Path, physical: int) -> None:
    """A real broker's log ends there, as after a power loss with asynchronous flush; it builds its queues again."""
    log, *prepared = sorted((store / "commitlog").iterdir())
    for path in prepared:
        path.unlink()
    with log.open("r+b") as file:
        file.seek(physical)
        rest = log.stat().st_size - physical
        file.write(bytes(rest))
    for name in ("consumequeue", "index"):
        shutil.rmtree(store / name, ignore_errors=True)
    (store / "checkpoint").unlink(missing_ok=True)
    (store / "abort").touch()
