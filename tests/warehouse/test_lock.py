"""The lock of a warehouse on a local disk: who waits for it comes before who takes it again at once."""

from __future__ import annotations

import fcntl
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest
from halfop.frame.errors import UsageError, WarehouseBusy
from halfop.warehouse import lock
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession

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


def test_a_refused_thread_of_the_process_that_holds_the_lock_does_not_free_it(warehouse: Warehouse) -> None:
    """A system's lock of a file is the process's: it ends with the first of its handles that is closed."""
    with lock.hold(warehouse, "run"):
        with pytest.raises(WarehouseBusy):
            refused(warehouse)
        assert not is_free(Path(warehouse.root) / ".run.lock")
    assert is_free(Path(warehouse.root) / ".run.lock")


def is_free(path: Path) -> bool:
    """Returns whether another process, this one and not its JVM, could lock the file."""
    with path.open("r+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


def refused(warehouse: Warehouse) -> None:
    with lock.hold(warehouse, "run"):
        pass


@pytest.mark.parametrize("name", ["a%20b", "a#b", "a?b", "a b"])
def test_the_lock_lies_beside_the_tables_however_the_uri_reads(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Hadoop's paths have no escapes: a lock in another folder would lock nothing."""
    warehouse = KernelWarehouse(spark, f"file://{tmp_path}/{name}")
    with lock.hold(warehouse, "run"):
        warehouse.make("runs")
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert {each.name for each in (tmp_path / name).iterdir()} >= {".run.lock", "runs"}


@pytest.mark.parametrize("below", ["file/warehouse", "file"])
def test_a_folder_that_cannot_be_made_is_refused_with_the_reason(
    spark: SparkSession, tmp_path: Path, below: str
) -> None:
    (tmp_path / "file").touch()
    warehouse = KernelWarehouse(spark, str(tmp_path / below))
    warehouse.log.sound.refuse_damaged_tables(warehouse.root)
    with pytest.raises(UsageError, match=rf"{below}: a warehouse cannot be made there .*--warehouse"):
        refused(warehouse)


def nobody_waits(warehouse: Warehouse) -> bool:
    """Returns whether nobody waits yet."""
    path = str(Path(warehouse.root) / ".run.lock.next")
    try:
        with lock._locked(warehouse, path, path, "run", 0):
            return True
    except WarehouseBusy:
        return False
