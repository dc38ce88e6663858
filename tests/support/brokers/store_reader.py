"""Fills stores for tests, and reads all that one gives."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halfop.rocketmq.store.commitlog import Fault
from halfop.rocketmq.store.layout import StoreLayout, layout
from halfop.rocketmq.store.stretch import read

from support.brokers.store_writer import BORN_MS, Record, Store, discard, final, half, op

SMALL = 2000  # bytes of a stretch


@dataclass
class Read:
    """All that a store gives."""

    plan: StoreLayout
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    newest: int | None = None
    records: int = 0

    def places(self, kind: str) -> list[int]:
        name = "commit_log_offset" if kind == "half" else "physical_offset"
        return [row[name] for row in self.rows.get(kind, [])]

    @property
    def codes(self) -> list[str]:
        return [fault.code for fault in self.faults]


def read_all(root: Path, skip: bool = False, size: int = SMALL, start: int | None = None) -> Read:
    found = Read(layout(root, start, size))
    for stretch in pickle.loads(pickle.dumps(found.plan.stretches)):  # noqa: S301
        for piece in read(stretch, skip_corrupt=skip):
            found.records += piece.records
            found.faults += piece.faults
            found.newest = max((t for t in (found.newest, piece.newest_store_ms) if t is not None), default=None)
            for kind, batch in piece.batches.items():
                found.rows.setdefault(kind, []).extend(batch.to_pylist())
            if found.faults and not skip:
                return found
    return found


def filled(root: Path, messages: int = 40, **more: Any) -> Store:
    """Halves, each then committed; ops, discards and other messages among them; three files or so."""
    store = Store(root, **{"file_size": 8192, **more})
    for n in range(messages):
        place = store.append(half(n, store_ms=BORN_MS + n))
        store.append(final(n, place))
        if n % 5 == 0:
            store.append(op(f"{n},"))
            store.append(Record("noise", b"x" * 50, queue_id=n % 3))
        if n % 10 == 0:
            store.append(discard(n))
    return store
