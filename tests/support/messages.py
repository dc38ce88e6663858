"""Half messages and ops of one queue, and a landing from which a run makes one of each decision."""

from __future__ import annotations

from typing import Any

from halfop.warehouse.tables import Warehouse
from model import reference as m
from model.strategies import op_rows

from support import rows as r
from support.halves import half_at

NOW = 1_750_000_000_000
RULES = m.Settings(check_max=1)
QUEUE = ("b", 0)
KNOWN = {QUEUE: NOW}


def half(offset: int, topic: str = "T", **columns: Any) -> m.Half:
    """A half message of QUEUE that was 10 s old at NOW."""
    return half_at(QUEUE, offset, NOW - 10_000, real_topic=topic, **columns)


def ops(outcome: str, *offsets: int) -> list[m.Op]:
    text = ",".join(map(str, offsets))
    return op_rows(QUEUE, offsets[0], text, [outcome] * len(offsets), NOW - 1_000)


def one_of_each(warehouse: Warehouse) -> None:
    """A message to commit, to roll back, to ask about, to discard, to refuse, and two answers to one."""
    halves = [half(0), half(1, "U"), half(2), half(3, check_times="1", store=NOW - 3_600_000), half(4, "a b"), half(5)]
    both = [*ops("COMMIT", 0, 1, 5), *ops("ROLLBACK", 2), *op_rows(QUEUE, 9, "5", ["ROLLBACK"], NOW - 500)]
    r.land(warehouse, [*halves, half(6)], both, NOW, KNOWN)
