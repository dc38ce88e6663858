"""land store from a URI: what is copied of a store that has landed before."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path

import pytest
from halfop.frame.errors import InputRefused
from halfop.landing.store import fetch
from halfop.landing.store import land as land_module
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq.store import layout
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import SparkSession
from support.brokers import store_writer as w
from support.brokers.stores import transactions

LOG = logging.getLogger("halfop.test")
TABLES = ("half_messages", "op_messages", "final_messages")


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[fetch.LocalStore]:
    """The stores that were copied, as if a path of this machine were another's; little is looked back at."""
    found: list[fetch.LocalStore] = []
    made = fetch.LocalStore

    def noted(*arguments: object) -> fetch.LocalStore:
        found.append(made(*arguments))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(fetch, "local_folder", lambda _: None)
    monkeypatch.setattr(fetch, "LocalStore", noted)
    for name, size in (("BACK", 1 << 12), ("QUIET", 1 << 12), ("_SOME_UNITS", 40 * 20), ("_HEAD", 512)):
        monkeypatch.setattr(fetch, name, size)
    monkeypatch.setattr(layout, "BACK", 1 << 12)
    return found


def land(warehouse: KernelWarehouse, store: w.Store) -> dict[str, int]:
    return land_store(warehouse, StoreRequest(str(store.root), "broker-a", timedelta(0)), LOG).rows_written


def content(warehouse: KernelWarehouse) -> dict[str, Counter[str]]:
    rows = {name: warehouse.read(name).drop("landed_at").collect() for name in TABLES}
    return {name: Counter(str(row) for row in found) for name, found in rows.items()}


def size(store: w.Store) -> int:
    return sum(file.stat().st_size for file in store.root.rglob("*") if file.is_file())


@pytest.mark.thorough
def test_of_a_store_that_has_landed_only_what_is_new_is_copied(
    spark: SparkSession, tmp_path: Path, fetched: list[fetch.LocalStore]
) -> None:
    store = w.Store(tmp_path / "store", file_size=1 << 14)
    here, there = KernelWarehouse(spark, str(tmp_path / "here")), KernelWarehouse(spark, str(tmp_path / "there"))
    for begin, end in ((0, 400), (400, 410), (410, 410), (410, 420)):
        if end > begin:
            transactions(store, range(begin, end))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(land_module, "local_store", local)
            counted = land(here, store)
        assert land(there, store) == counted
        assert content(there) == content(here)
    first, *later = [each for each in fetched if each.copied]
    assert len(later) == 3
    assert (first.whole, first.copied >= 400 * 200) == (True, True)
    for each in later:
        assert not each.whole
        assert each.copied < size(store) / 5


def local(_: KernelWarehouse, path: str, __: object) -> AbstractContextManager[fetch.LocalStore]:
    """Lands a copied store as one of this machine."""
    return nullcontext(fetch.LocalStore(path))


def test_another_store_is_refused_and_named_by_its_own_path(
    warehouse: KernelWarehouse, tmp_path: Path, fetched: list[fetch.LocalStore]
) -> None:
    """After all of it was copied."""
    first, other = w.Store(tmp_path / "first", file_size=1 << 14), w.Store(tmp_path / "other", file_size=1 << 14)
    transactions(first, range(100))
    land(warehouse, first)
    other.append(w.Record("orders", b"x" * 999))
    transactions(other, range(150))
    with pytest.raises(InputRefused, match="KEY_REUSED") as refused:
        land(warehouse, other)
    assert refused.value.path == str(other.root)
    assert fetched[-1].whole


def test_a_fault_in_the_new_part_is_found(
    warehouse: KernelWarehouse, tmp_path: Path, fetched: list[fetch.LocalStore]
) -> None:
    store = w.Store(tmp_path / "store", file_size=1 << 14)
    transactions(store, range(100))
    land(warehouse, store)
    transactions(store, range(100, 110))
    place = next(place for place, record in store.records if record == w.half(105, queue_offset=105))
    log = sorted((store.root / "commitlog").iterdir())
    file = next(each for each in reversed(log) if int(each.name) <= place)
    with file.open("r+b") as damaged:
        damaged.seek(place - int(file.name) + 90)
        damaged.write(b"\xff" * 8)
    with pytest.raises(InputRefused) as refused:
        land(warehouse, store)
    assert refused.value.path == str(file)
    assert warehouse.read("half_messages").count() == 105
