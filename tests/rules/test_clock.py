"""Clocks that jump, and messages from the far past and the far future."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from halfop.runs import reconcile as job
from halfop.runs.reconcile import Request, reconcile
from halfop.warehouse.tables import Warehouse
from model import reference as m
from support import rows as r
from support.messages import NOW, QUEUE, RULES, half, ops

YEAR_1, YEAR_9999 = -62_135_596_800_000, 253_402_300_799_000
DAY = 86_400_000


def at_wall_clock(patch: pytest.MonkeyPatch, warehouse: Warehouse, instant: datetime) -> datetime:
    """The `now` of a run that starts at that time."""
    patch.setattr(job, "wall_clock", lambda: instant)
    summary = reconcile(warehouse, Request(r.settings(RULES)))
    assert summary.status == 0
    now: datetime = summary.extra["now"]
    return now


@pytest.mark.slow
def test_a_wall_clock_that_jumps(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Back: time stands still, and nothing is asked or decided a second time. Far ahead: it stays there."""
    known = NOW + 40 * DAY
    r.land(warehouse, [half(0), half(1)], [], NOW, {QUEUE: known})
    noon = r.instant(NOW + 3_600_000)
    assert at_wall_clock(monkeypatch, warehouse, noon) == noon
    asked = warehouse.read("check_requests").count()
    assert asked == 2
    r.land(warehouse, [half(2)], ops("COMMIT", 1), NOW + 1, {QUEUE: known})
    assert at_wall_clock(monkeypatch, warehouse, noon - timedelta(days=30)) == noon
    assert warehouse.read("check_requests").where("commit_log_offset < 200").count() == asked
    decided = {d.key[2]: d.decision for d in r.decisions(warehouse, 2)}
    assert (decided[0], decided[1]) == ("WAIT", "COMMIT")
    ahead = noon + timedelta(days=30)
    assert at_wall_clock(monkeypatch, warehouse, ahead) == ahead
    assert {d.key[2]: d.decision for d in r.decisions(warehouse, 3)} == {0: "DISCARD", 2: "DISCARD"}


@pytest.mark.slow
def test_messages_from_the_far_past_and_future(warehouse: Warehouse) -> None:
    """Runs decide as the model does."""
    born = [YEAR_1, 0, NOW - 4 * DAY, NOW, NOW + DAY, YEAR_9999]
    halves = [half(n, born=a, store=b) for n, (a, b) in enumerate((a, b) for a in born for b in born)]
    both = [*ops("COMMIT", 3, 10, 20), *ops("ROLLBACK", 4, 11, 21)]
    model = m.Model(RULES)
    model.land(halves, both, NOW, {QUEUE: NOW})
    r.land(warehouse, halves, both, NOW, {QUEUE: NOW})
    for run, now in enumerate((NOW, NOW + 5 * DAY), 1):
        r.run(warehouse, RULES, now)
        assert r.decisions(warehouse, run) == model.run(now)
