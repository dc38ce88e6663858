"""Stores of brokers that lost the end of their log."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import store_writer as w
from halfop.frame.summary import Summary
from halfop.landing.store.land import land_store
from halfop.landing.store.state import StoreRequest
from halfop.warehouse.tables import Warehouse

BROKER, LIFE = "broker-a", "broker-a~2"
SECOND = 1_000


def land(warehouse: Warehouse, store: w.Store, accept: bool = False, broker: str = BROKER) -> Summary:
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
