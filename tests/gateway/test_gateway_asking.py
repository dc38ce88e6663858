"""Which questions a gateway sends, and how much it looks at for that."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pytest
from halfop.gateway.core.clients import Client, Producers
from halfop.gateway.core.effects import Ask, CheckRequest, Effect, LogView, Note
from halfop.gateway.core.messages import Half
from halfop.gateway.core.questions import Manner, Questions
from halfop.gateway.core.reads import Description
from halfop.gateway.log.records import half_message
from halfop.rocketmq.message import Place
from support.gateway.gateway_log import CLIENT, HOST, message, uniq
from support.gateway.played import account

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
YOUNG = timedelta(seconds=60)
BROKER = Description("gw", "halfop", "10.0.0.2:10911", "id", False, HOST)


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

    def record(self, place: int) -> bytes | None:
        return None


MESSAGE = half_message(message(0), HOST)


class ReadableLog(OpenLog):
    """A log of half messages that are all open and can be read."""

    def record(self, place: int) -> bytes | None:
        return MESSAGE.packed(Place(place, place, MESSAGE.size(), 0))


def questions_of(log: OpenLog, producers: Producers, a_second: int = 100) -> Questions:
    return Questions(cast(LogView, log), producers, Manner(BROKER, YOUNG, a_second, True), Counter())


def client(*topics: str) -> Client:
    """A client that may send to these topics, or to all if none is named."""
    found = Client(CLIENT, "client")
    if topics:
        found.account = account("key", *topics)
    return found


def halves_of(count: int) -> Halves:
    return Halves({n: Half(n, n, 100, 0, 0, "orders", 0, "pg", uniq(n), None) for n in range(count)})


def wanted(n: int, group: str, topic: str = "orders") -> CheckRequest:
    return CheckRequest(str(n), "gw", group, topic, n, n, 1, NOW)


def outcomes(effects: list[Effect]) -> Counter[str]:
    """How often there is each."""
    return Counter(each.row.outcome for each in effects if isinstance(each, Note))


def asked(effects: list[Effect]) -> list[Ask]:
    return [each for each in effects if isinstance(each, Ask)]


# ---- many requests ----


@pytest.fixture
def producers() -> Producers:
    return Producers()


@pytest.fixture
def halves() -> Halves:
    return halves_of(50_000)


@pytest.fixture
def questions(halves: Halves, producers: Producers) -> Questions:
    found = questions_of(OpenLog(halves), producers)
    found.want([wanted(n, "a" if n else "b") for n in reversed(halves)], NOW)
    return found


def test_requests_that_wait_for_a_producer_cost_nothing_and_hold_up_no_other_group(
    questions: Questions, halves: Halves, producers: Producers
) -> None:
    producers.add("b", client())
    assert outcomes([*questions.ask(NOW, 0.1)]) == {"FAILED": 1}
    assert (questions.waiting, halves.looks) == (49_999, 2)


def test_requests_of_which_nobody_was_asked_are_given_up_in_parts(questions: Questions) -> None:
    assert outcomes([*questions.ask(NOW + YOUNG + timedelta(milliseconds=1), 0.1)]) == {"NO_PRODUCER": 5001}
    assert questions.waiting == 44_999


# ---- clients, and topics of a group ----


def of_topics(*topics: str) -> Halves:
    """Ten half messages of each topic."""
    numbered = enumerate(topic for topic in topics for _ in range(10))
    return Halves({n: Half(n, n, 100, 0, 0, topic, 0, "pg", uniq(n), None) for n, topic in numbered})


@pytest.mark.parametrize("a_second", [1, 3, 15, 100])
def test_a_client_is_sent_no_more_questions_a_second_than_it_may_be(producers: Producers, a_second: int) -> None:
    halves, found = halves_of(1000), list[Ask]()
    questions = questions_of(ReadableLog(halves), producers, a_second)
    producers.add("pg", client())
    questions.want([wanted(n, "pg") for n in halves], NOW)
    for tick in range(1, 51):
        found += asked([*questions.ask(NOW, 0.1)])
        assert a_second * tick / 10 - 2 <= len(found) <= a_second * tick / 10


def test_a_client_that_takes_no_more_is_sent_no_more(producers: Producers) -> None:
    """The server says so between two questions, when it has sent the first."""
    halves, slow = halves_of(10), client()
    questions = questions_of(ReadableLog(halves), producers)
    producers.add("pg", slow)
    questions.want([wanted(n, "pg") for n in halves], NOW)
    found = list[Effect]()
    for effect in questions.ask(NOW, 0.1):
        found.append(effect)
        slow.is_open = slow.is_open and not isinstance(effect, Ask)
    assert outcomes(found) == {"SENT": 1}
    assert questions.waiting == 9
    slow.is_open = True
    assert outcomes([*questions.ask(NOW, 0.1)]) == {"SENT": 9}


def test_a_record_that_the_disk_does_not_give_harms_no_other_question(producers: Producers) -> None:
    class Torn(ReadableLog):
        def record(self, place: int) -> bytes | None:
            if place == 3:
                raise OSError(5, "Input/output error")
            return super().record(place)

    halves = halves_of(10)
    questions = questions_of(Torn(halves), producers)
    producers.add("pg", client())
    questions.want([wanted(n, "pg") for n in halves], NOW)
    assert outcomes([*questions.ask(NOW, 0.1)]) == {"SENT": 9, "FAILED": 1}


def test_a_topic_whose_clients_are_gone_holds_up_no_other_one_of_its_group(producers: Producers) -> None:
    halves = of_topics("orders", "payments")
    questions = questions_of(ReadableLog(halves), producers)
    producers.add("pg", client("payments"))
    questions.want([wanted(n, "pg", each.topic) for n, each in halves.items()], NOW)
    first = [*questions.ask(NOW, 0.1)]
    assert (len(asked(first)), questions.waiting) == (10, 10)
    later = [*questions.ask(NOW + YOUNG + timedelta(milliseconds=1), 0.1)]
    assert outcomes([*first, *later]) == {"SENT": 10, "FAILED": 10}


def test_a_groups_topics_are_asked_about_in_turn(producers: Producers) -> None:
    halves = of_topics("orders", "payments", "stock")
    questions = questions_of(ReadableLog(halves), producers, 50)
    producers.add("pg", client())
    questions.want([wanted(n, "pg", each.topic) for n, each in halves.items()], NOW)
    found = [each.half.topic for _ in range(3) for each in asked([*questions.ask(NOW, 0.1)])]
    assert Counter(found) == dict.fromkeys(("orders", "payments", "stock"), 5)


def test_no_question_counts_as_sent_that_was_not_sent(producers: Producers) -> None:
    """A tick stops where so many messages wait for a sender that has got its share: the next one's is not settled."""
    busy, sender, other = (Client(CLIENT, name) for name in ("busy", "sender", "other"))
    halves = Halves({n: half._replace(sender=busy if n < 510 else sender) for n, half in halves_of(511).items()})
    questions = questions_of(ReadableLog(halves), producers)
    for each in (busy, sender, other):
        producers.add("pg", each)
    questions.want([wanted(n, "pg") for n in halves], NOW)
    found = [effect for _ in range(2) for effect in questions.ask(NOW, 0.1)]
    assert outcomes(found) == {"SENT": len(asked(found))} == dict(questions._counts)
    assert [each.client.name for each in asked(found) if each.half == halves[510]] == ["sender"]


# ---- what the process before has sent ----


@pytest.mark.parametrize(
    ("broker", "asked_before", "sent"),
    [
        ("gw", timedelta(0), False),  # its run had not seen that: two questions would be sent, and one counted
        ("gw", timedelta(seconds=-1), True),
        ("gw~2", timedelta(0), True),  # another life's message was at that place
    ],
)
def test_a_slow_runs_request_is_not_asked_again_after_a_restart(
    producers: Producers, broker: str, asked_before: timedelta, sent: bool
) -> None:
    questions = questions_of(ReadableLog(of_topics("orders")), producers)
    producers.add("pg", client())
    noted = questions.want([wanted(3, "pg")], NOW, {(broker, 3): NOW + asked_before})
    found = [*noted, *questions.ask(NOW, 0.1)]
    assert outcomes(found) == {"SENT" if sent else "SUPERSEDED": 1}
    assert len(asked(found)) == sent
