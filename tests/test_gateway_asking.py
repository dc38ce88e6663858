"""Which questions a gateway sends, and how much it looks at for that."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pytest
from gateway_log import HOST, uniq
from halfop.gateway.asking import Asking, Manner
from halfop.gateway.connection import Channel
from halfop.gateway.log.log import Log
from halfop.gateway.log.messages import Half
from halfop.gateway.producers import Producers
from halfop.gateway.questions import Asker
from halfop.gateway.tables import CheckRequest
from halfop.gateway.tallies import Tallies

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
YOUNG = timedelta(seconds=60)


class Halves(dict[int, Half]):
    """Open half messages; `looks` counts how often one is looked for."""

    looks = 0

    def get(self, place: int, default: Any = None) -> Any:
        self.looks += 1
        return super().get(place, default)


class OpenLog:
    """A log of half messages that are all open, but whose records cannot be read."""

    def __init__(self, halves: Halves) -> None:
        self.open_halves = halves

    def record(self, place: int) -> None:
        return None


class Client:
    """A client's connection."""

    is_open, form, client = True, 0, "client"

    def __init__(self) -> None:
        self.groups: set[str] = set()

    def may_send(self, topic: str) -> bool:
        return True


@pytest.fixture
def halves() -> Halves:
    return Halves({n: Half(n, n, 100, 0, 0, "orders", 0, "pg", uniq(n), None) for n in range(50_000)})


@pytest.fixture
def producers() -> Producers:
    return Producers()


@pytest.fixture
def asking(halves: Halves, producers: Producers) -> Asking:
    found = Asking(cast(Log, OpenLog(halves)), producers, Manner(Asker("gw", HOST), YOUNG, 100), Tallies())
    wanted = [CheckRequest(str(n), "a" if n else "b", n, n, 1, NOW) for n in reversed(halves)]
    found.want(wanted, NOW)
    return found


def outcomes(asking: Asking) -> Counter[str]:
    return Counter(row.outcome for row in asking.take_rows())


def test_requests_that_wait_for_a_producer_cost_nothing_and_hold_up_no_other_group(
    asking: Asking, halves: Halves, producers: Producers
) -> None:
    producers.add("b", cast(Channel, Client()))
    asking.ask(NOW, 0.1)
    assert outcomes(asking) == {"FAILED": 1}
    assert (asking.waiting, halves.looks) == (49_999, 2)


def test_requests_of_which_nobody_was_asked_are_given_up_in_parts(asking: Asking) -> None:
    asking.ask(NOW + YOUNG + timedelta(milliseconds=1), 0.1)
    assert outcomes(asking) == {"NO_PRODUCER": 5001}
    assert asking.waiting == 44_999
