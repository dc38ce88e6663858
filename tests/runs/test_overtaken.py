"""Another driver comes between two steps of a run, where nothing locks it out. The model of the protocol found these
orders (tests/model/protocol); each lost messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from halfop.planning.plan import Plan
from halfop.runs import finish, reconcile
from halfop.warehouse.tables import Warehouse
from support import rows as r
from support.dying import Killed, dying
from support.messages import KNOWN, NOW, RULES, half, ops

PARKED = frozenset({"real_topics"})


def land(warehouse: Warehouse, offset: int) -> None:
    r.land(warehouse, [half(offset)], ops("COMMIT", offset), NOW, KNOWN)


def driver(warehouse: Warehouse, parked: frozenset[str] = frozenset()) -> None:
    request = reconcile.Request(r.settings(RULES), r.instant(NOW), allow_future=True, parked=parked)
    assert reconcile.reconcile(warehouse, request).status == 0


def driver_that_only_opens(warehouse: Warehouse, parked: frozenset[str] = frozenset()) -> None:
    with pytest.MonkeyPatch.context() as patch, dying(patch, Plan, "commit", False), pytest.raises(Killed):
        driver(warehouse, parked)


def at_first(patch: pytest.MonkeyPatch, owner: Any, name: str, before: bool, other: Callable[[], None]) -> None:
    """Another driver's work happens before, or after, the first call of a function."""
    real: Callable[..., Any] = getattr(owner, name)

    def called(*args: Any) -> None:
        patch.undo()
        for work in (other, lambda: real(*args)) if before else (lambda: real(*args), other):
            work()

    patch.setattr(owner, name, called)


def check(warehouse: Warehouse, offsets: int) -> None:
    events = [(row["run_id"], row["event"]) for row in sorted(warehouse.rows("runs"), key=lambda row: row["at"])]
    assert events == [(n // 2 + 1, ("OPENED", "CLOSED")[n % 2]) for n in range(len(events))]
    assert Counter(row["half_queue_offset"] for row in warehouse.rows("real_topics")) == Counter(range(offsets))


def test_a_run_that_another_opens_is_finished_before_the_next(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(warehouse, 0)
    driver_that_only_opens(warehouse)

    def other() -> None:
        land(warehouse, 1)
        driver_that_only_opens(warehouse)

    at_first(monkeypatch, finish, "write_closed", False, other)
    driver(warehouse)
    check(warehouse, 2)


@pytest.mark.thorough
def test_what_another_owes_is_paid_before_its_next_run_is_finished(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(warehouse, 0)

    def other() -> None:
        driver(warehouse, PARKED)
        land(warehouse, 1)
        driver_that_only_opens(warehouse, PARKED)

    with pytest.MonkeyPatch.context() as patch:
        at_first(patch, reconcile, "write_opened", True, other)
        driver(warehouse)
    check(warehouse, 2)
    assert sorted(row["run_id"] for row in warehouse.rows("real_topics")) == [1, 2]
