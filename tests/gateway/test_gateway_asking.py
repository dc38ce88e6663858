"""Which questions a gateway sends, and how much it looks at for that."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pytest
from halfop.gateway.asking import Asking, Manner
from halfop.gateway.connection import Channel
from halfop.gateway.log.log import Log
from halfop.gateway.log.messages import Half
from halfop.gateway.log.records import half_message
from halfop.gateway.producers import Producers
from halfop.gateway.questions import Asker
from halfop.gateway.tables import CheckRequest, Delivery
from halfop.gateway.tallies import Tallies
from halfop.rocketmq.message import Place
from support.gateway.gateway_log import HOST, message, uniq

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

    def __init__(self, *topics: str) -> None:
        self.groups: set[str] = set()
        self._topics, self.questions = topics, list[bytes]()

    def may_send(self, topic: str) -> bool:
        return not self._topics or topic in self._topics

    def send(self, frame: bytes) -> None:
        self.questions.append(frame)


@pytest.fixture
def halves() -> Halves:
    return Halves({n: Half(n, n, 100, 0, 0, "orders", 0, "pg", uniq(n), None) for n in range(50_000)})


@pytest.fixture
def rows() -> list[Delivery]:
    return []


@pytest.fixture
def producers() -> Producers:
    return Producers()


@pytest.fixture
def asking(halves: Halves, producers: Producers, rows: list[Delivery]) -> Asking:
    manner = Manner(Asker("gw", HOST), YOUNG, 100)
    found = Asking(cast(Log, OpenLog(halves)), producers, manner, Tallies(), rows.append)
    found.want([wanted(n, "a" if n else "b") for n in reversed(halves)], NOW)
    return found


def wanted(n: int, group: str, topic: str = "orders") -> CheckRequest:
    return CheckRequest(str(n), "gw", group, topic, n, n, 1, NOW)


def outcomes(rows: list[Delivery]) -> Counter[str]:
    """How often there is each, since the last call."""
    found = Counter(row.outcome for row in rows)
    rows.clear()
    return found


def test_requests_that_wait_for_a_producer_cost_nothing_and_hold_up_no_other_group(
    asking: Asking, halves: Halves, producers: Producers, rows: list[Delivery]
) -> None:
    producers.add("b", cast(Channel, Client()))
    asking.ask(NOW, 0.1)
    assert outcomes(rows) == {"FAILED": 1}
    assert (asking.waiting, halves.looks) == (49_999, 2)


def test_requests_of_which_nobody_was_asked_are_given_up_in_parts(asking: Asking, rows: list[Delivery]) -> None:
    asking.ask(NOW + YOUNG + timedelta(milliseconds=1), 0.1)
    assert outcomes(rows) == {"NO_PRODUCER": 5001}
    assert asking.waiting == 44_999


MESSAGE = half_message(message(0), HOST)


class ReadableLog(OpenLog):
    """A log of half messages that are all open and can be read."""

    def record(self, place: int) -> bytes:  # type: ignore[override]
        return MESSAGE.packed(Place(place, place, MESSAGE.size(), 0))


def reachable(halves: Halves, producers: Producers, a_second: int, rows: list[Delivery]) -> Asking:
    manner = Manner(Asker("gw", HOST), YOUNG, a_second)
    return Asking(cast(Log, ReadableLog(halves)), producers, manner, Tallies(), rows.append)


def of_topics(*topics: str) -> Halves:
    """Ten half messages of each topic."""
    numbered = enumerate(topic for topic in topics for _ in range(10))
    return Halves({n: Half(n, n, 100, 0, 0, topic, 0, "pg", uniq(n), None) for n, topic in numbered})


@pytest.mark.parametrize("a_second", [1, 3, 15, 100])
def test_a_client_is_sent_no_more_questions_a_second_than_it_may_be(
    producers: Producers, a_second: int, rows: list[Delivery]
) -> None:
    halves = Halves({n: Half(n, n, 100, 0, 0, "orders", 0, "pg", uniq(n), None) for n in range(1000)})
    asking, client = reachable(halves, producers, a_second, rows), Client()
    producers.add("pg", cast(Channel, client))
    asking.want([wanted(n, "pg") for n in halves], NOW)
    for tick in range(1, 51):
        asking.ask(NOW, 0.1)
        assert a_second * tick / 10 - 2 <= len(client.questions) <= a_second * tick / 10


def test_a_topic_whose_clients_are_gone_holds_up_no_other_one_of_its_group(
    producers: Producers, rows: list[Delivery]
) -> None:
    halves = of_topics("orders", "payments")
    asking, client = reachable(halves, producers, 100, rows), Client("payments")
    producers.add("pg", cast(Channel, client))
    asking.want([wanted(n, "pg", each.topic) for n, each in halves.items()], NOW)
    asking.ask(NOW, 0.1)
    assert (len(client.questions), asking.waiting) == (10, 10)
    asking.ask(NOW + YOUNG + timedelta(milliseconds=1), 0.1)
    assert outcomes(rows) == {"SENT": 10, "FAILED": 10}


def test_a_groups_topics_are_asked_about_in_turn(producers: Producers, rows: list[Delivery]) -> None:
    halves = of_topics("orders", "payments", "stock")
    asking, client = reachable(halves, producers, 50, rows), Client()
    producers.add("pg", cast(Channel, client))
    asking.want([wanted(n, "pg", each.topic) for n, each in halves.items()], NOW)
    for _ in range(3):
        asking.ask(NOW, 0.1)
    topics = Counter(halves[int(each.request_id)].topic for each in rows)
    assert topics == dict.fromkeys(("orders", "payments", "stock"), 5)


# ---- what the process before has sent ----


@pytest.mark.parametrize(
    ("broker", "asked_before", "asked"),
    [
        ("gw", timedelta(0), []),  # its run had not seen that: two questions would be sent, and one counted
        ("gw", timedelta(seconds=-1), ["SENT"]),
        ("gw~2", timedelta(0), ["SENT"]),  # another life's message was at that place
    ],
)
def test_a_slow_runs_request_is_not_asked_again_after_a_restart(
    producers: Producers, rows: list[Delivery], broker: str, asked_before: timedelta, asked: list[str]
) -> None:
    asking, client = reachable(of_topics("orders"), producers, 100, rows), Client()
    producers.add("pg", cast(Channel, client))
    asking.want([wanted(3, "pg")], NOW, {(broker, 3): NOW + asked_before})
    asking.ask(NOW, 0.1)
    assert [row.outcome for row in rows] == (asked or ["SUPERSEDED"])
    assert len(client.questions) == len(asked)
