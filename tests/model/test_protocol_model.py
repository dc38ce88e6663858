"""The run protocol, explored in every order within bounds (tests/model/protocol): nothing is lost, nothing comes twice.

Larger bounds: bench/run protocol.
"""

from __future__ import annotations

import pytest
from halfop.planning.run import INPUTS

from model.protocol.bounds import MISTAKES, SMALL
from model.protocol.explorer import Explorer
from model.protocol.log import Commit, Pending, marker, refused, with_commit
from model.protocol.world import PINNED, Bound, Message, Protocol


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_nothing_is_lost_and_nothing_comes_twice(name: str) -> None:
    found = Explorer(*SMALL[name]).explore()
    print(found)
    assert found.wrong is None, found


@pytest.mark.long
@pytest.mark.parametrize("name", MISTAKES)
def test_a_known_mistake_is_found(name: str) -> None:
    """The shortest way to it is printed."""
    search, wrong = MISTAKES[name]
    found = Explorer(*search).explore()
    print(found)
    assert found.wrong, "nothing was found"
    assert not wrong or found.wrong == wrong, found
    assert found.trace


def test_the_order_of_pins_is_the_product_s() -> None:
    names = {"landing_progress": "progress", "op_messages": "ops", "half_messages": "halves"}
    changing_nothing_here = ("final_messages", "broker_discards", "check_deliveries")
    assert tuple(names.get(name, name) for name in INPUTS if name not in changing_nothing_here) == PINNED


def test_a_search_may_end_early() -> None:
    found = Explorer(Protocol(), Bound((Message(1, 1),))).explore(most=100)
    assert 100 <= found.states < 1000
    assert found.wrong is None


# ---- the log, as test_delta_assumptions.py sees it of Delta ----


def test_a_commit_is_refused_if_its_app_came_first() -> None:
    table = (Commit((1,)), Commit((2,), "sink", 1))
    assert marker(table, "sink") == 1
    assert refused(table, Pending("topic", Commit((), "sink", 1), 1))
    assert not refused(table, Pending("topic", Commit((), "sink", 2), 1)), "Kernel lets a higher number in"
    assert refused(table, Pending("topic", Commit((), "sink", 2), 1), whatever_number=True), (
        "Delta's connector does not"
    )
    assert not refused(table, Pending("topic", Commit((), "sink", 2), 2)), "it has seen the other one"
    assert not refused(table, Pending("topic", Commit((), "other", 2), 0))
    assert not refused(table, Pending("topic", Commit(()), 0)), "a plain append comes after any other"


def test_a_rename_overwrites() -> None:
    table = (Commit((1,)), Commit((2,)))
    assert with_commit(table, Commit((3,)), 1) == (Commit((1,)), Commit((3,)))
    assert with_commit(table, Commit((3,)), 2) == (*table, Commit((3,)))
