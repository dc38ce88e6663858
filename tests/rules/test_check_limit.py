"""Line 10b: a run gives a group so many questions, to its oldest messages; slices, --verify and simulate agree."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from halfop.runs.verify import verify
from halfop.simulation.simulate import Period, simulate
from halfop.warehouse.kernel import KernelWarehouse
from model import reference as m
from support import rows as r
from support.halves import half_at

NOW, SECOND, MINUTE = 1_750_000_000_000, 1_000, 60_000
QUEUES = [("a", 0), ("a", 1), ("b", 0)]
RULES = m.Settings(
    ask=True,
    checks_a_run=4,
    groups={name: m.Override(checks_a_run=most) for name, most in (("many", 7), ("none", 0), ("all", None))},
)
GROUPS = ["g", "many", "none", "all"]


def backlog() -> list[m.Half]:
    """Half messages that are the older, the higher their offset is; two at a time are of one age."""
    places = [(queue, offset) for offset in range(12) for queue in QUEUES]
    return [
        half_at(queue, offset, NOW - MINUTE - n // 2 * SECOND, uniq_key=f"k{n}", group=GROUPS[n % 4])
        for n, (queue, offset) in enumerate(places)
    ]


def ops() -> list[m.Op]:
    """One message in six has ended, and so takes nobody's turn."""
    ended = [half for n, half in enumerate(backlog()) if n % 6 == 0]
    return [
        m.Op(half.broker, half.queue, n, 0, "d", str(half.offset), half.offset, "COMMIT", None, NOW, NOW)
        for n, half in enumerate(ended)
    ]


def land(warehouse: KernelWarehouse, model: m.Model, later: int = 0) -> None:
    known = dict.fromkeys(QUEUES, NOW + later)
    r.land(warehouse, backlog(), ops(), NOW, known)
    model.land(backlog(), ops(), NOW, known)


@pytest.mark.parametrize(
    "checks_a_run",
    [
        pytest.param(4, marks=pytest.mark.thorough),
        pytest.param(None, marks=pytest.mark.slow),
        pytest.param(0, marks=pytest.mark.slow),
    ],
)
def test_runs_ask_about_the_oldest_and_then_about_the_others(
    warehouse: KernelWarehouse, checks_a_run: int | None
) -> None:
    rules = replace(RULES, checks_a_run=checks_a_run)
    model = m.Model(rules)
    land(warehouse, model, later=3 * MINUTE)
    for run, now in enumerate((NOW, NOW + SECOND, NOW + MINUTE), 1):
        r.run(warehouse, rules, now)
        assert r.decisions(warehouse, run) == model.run(now)
    assert r.requests(warehouse) == Counter(model.requests)
    assert [verify(warehouse, run)[0].status for run in (1, 2, 3)] == [0, 0, 0]


@pytest.mark.thorough
def test_those_that_were_asked_about_are_limited_again(warehouse: KernelWarehouse) -> None:
    """Nothing else is due, and the second one has been asked about exactly one interval ago."""
    rules = m.Settings(ask=True, checks_a_run=1)
    model, known = m.Model(rules), {("a", 0): NOW + 10 * MINUTE}
    halves = [half_at(("a", 0), offset, NOW - MINUTE + offset * SECOND, uniq_key=f"k{offset}") for offset in (0, 1)]
    r.land(warehouse, halves, [], NOW, known)
    model.land(halves, [], NOW, known)
    for run, now in enumerate((NOW, NOW + SECOND, NOW + MINUTE + SECOND), 1):
        r.run(warehouse, rules, now)
        assert r.decisions(warehouse, run) == model.run(now)
    assert [d.reason for d in r.decisions(warehouse, 3)] == ["TIMEOUT", "CHECK_LIMIT"]


def test_what_each_group_gets(warehouse: KernelWarehouse) -> None:
    land(warehouse, m.Model(RULES))
    r.run(warehouse, RULES, NOW)
    groups = {half.key: half.group for half in backlog()}
    reasons = Counter((groups[d.key], d.reason) for d in r.decisions(warehouse, 1) if d.reason != "PRODUCER")
    assert {group: reasons[group, "TIMEOUT"] for group in GROUPS} == {"g": 4, "many": 7, "none": 0, "all": 9}
    assert reasons["all", "CHECK_LIMIT"] == 0
    assert reasons["none", "CHECK_LIMIT"] == 6
    asked, waits = ([d for d in r.decisions(warehouse, 1) if d.reason == why] for why in ("TIMEOUT", "CHECK_LIMIT"))
    born = {half.key: half.born for half in backlog()}
    assert {(d.check_times, d.last_checked) for d in waits} == {(0, None)}
    for group in ("g", "many"):
        assert max(born[d.key] for d in asked if groups[d.key] == group) <= min(
            born[d.key] for d in waits if groups[d.key] == group
        )


def settled(decisions: list[m.Decision]) -> Counter[m.Decision]:
    return Counter(replace(d, run=0) for d in decisions)


@pytest.mark.slow
@pytest.mark.parametrize("max_rows", [5, 12])
def test_slices_ask_as_one_run_does(warehouse: KernelWarehouse, max_rows: int) -> None:
    """Before the backlog a run has left messages open, and asked about some. Each slice asks who has no limit."""
    model = m.Model(RULES)
    places = [(queue, offset) for queue in QUEUES for offset in (90, 91)]
    old = [half_at(*place, NOW - 2 * MINUTE, uniq_key=f"o{n}") for n, place in enumerate(places)]
    known = dict.fromkeys(QUEUES, NOW - MINUTE)
    r.land(warehouse, old, [], NOW - MINUTE, known)
    model.land(old, [], NOW - MINUTE, known)
    r.run(warehouse, RULES, NOW - MINUTE)
    model.run(NOW - MINUTE)
    land(warehouse, model)
    last = r.run(warehouse, RULES, NOW, max_rows).run_id or 0
    assert last >= 4
    expected = model.run(NOW)
    runs = [r.decisions(warehouse, run) for run in range(2, last + 1)]
    ended = [d for run in runs[:-1] for d in run if d.decision in ("COMMIT", "DISCARD")]
    asked = {d.key: d for run in runs[:-1] for d in run if d.decision == "CHECK"}
    assert asked
    assert settled(ended + [asked.get(d.key, d) for d in runs[-1]]) == settled(expected)
    found = Counter(replace(request, run=0) for request in r.requests(warehouse).elements())
    assert found == Counter(replace(request, run=0) for request in model.requests)
    assert [verify(warehouse, run)[0].status for run in range(1, last + 1)] == [0] * last
    r.run(warehouse, RULES, NOW + SECOND)
    assert r.decisions(warehouse, last + 1) == [replace(d, run=last + 1) for d in model.run(NOW + SECOND)]


@pytest.mark.thorough
def test_a_simulation_plays_limits(warehouse: KernelWarehouse) -> None:
    land(warehouse, m.Model(RULES))
    rules = r.settings(RULES).rules
    variants = {"few": rules, "all": rules.model_copy(update={"checks_a_run": None, "groups": {}})}
    few, all_of_them = simulate(warehouse, variants, Period(until=r.instant(NOW)))
    assert few.checks < all_of_them.checks
