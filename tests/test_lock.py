"""The lock of a warehouse on a local disk: who waits for it comes before who takes it again at once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest
from halfop.frame.errors import WarehouseBusy
from halfop.warehouse import lock
from halfop.warehouse.tables import Warehouse

LONG = timedelta(seconds=60)


def test_who_waits_comes_before_a_loop_that_takes_the_lock_again(warehouse: Warehouse) -> None:
    order: list[str] = []

    def wait() -> None:
        with lock.hold(warehouse, "run", LONG):
            order.append("maintain")

    waiting = Thread(target=wait, daemon=True)
    with lock.hold(warehouse, "run"):
        waiting.start()
        while nobody_waits(warehouse):  # until it does
            pass
    with lock.hold(warehouse, "run", LONG):
        order.append("follow")
    waiting.join(60)
    assert order == ["maintain", "follow"]


def test_who_does_not_wait_is_refused_while_another_waits_or_holds(warehouse: Warehouse) -> None:
    path = str(Path(warehouse.root) / ".run.lock")
    Path(warehouse.root).mkdir()
    said = pytest.raises(WarehouseBusy, match=r"another process holds the run lock .*\.run\.lock; wait for it")
    with lock._locked(warehouse, f"{path}.next", path, "run", 0), said:
        refused(warehouse)
    with lock.hold(warehouse, "run"), lock.hold(warehouse, "landing"), pytest.raises(WarehouseBusy):
        refused(warehouse)


def refused(warehouse: Warehouse) -> None:
    with lock.hold(warehouse, "run"):
        pass


def nobody_waits(warehouse: Warehouse) -> bool:
    """Returns whether nobody waits yet."""
    path = str(Path(warehouse.root) / ".run.lock.next")
    try:
        with lock._locked(warehouse, path, path, "run", 0):
            return True
    except WarehouseBusy:
        return False
