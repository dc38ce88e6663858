"""The ranges of a broker's queues that a landing pulls, and what it asks for that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import pytest
from halfop.frame.errors import InputRefused
from halfop.landing.broker import sampling
from halfop.landing.broker.sampling import QueueSample, Sampling, Since, Wanted
from halfop.landing.lost import Range
from halfop.landing.progress import ProgressRow
from halfop.rocketmq.batches import FINAL, HALF, OP
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from halfop.rocketmq.wire.client import Broker, BrokerClock
from halfop.rocketmq.wire.pull import QueueRange

Queue = tuple[str, int]
CLOCK = BrokerClock(7, 0.0)


def row(topic: str, queue: int, next_offset: int | None = 5) -> tuple[Queue, ProgressRow]:
    return (topic, queue), ProgressRow("b", topic, queue, next_offset, None, None, 0)


class Scripted:
    """A broker whose queues begin and end at given offsets; a message is stored every second, the first at 0."""

    remote = SimpleNamespace(address="host:1")

    def __init__(self, ends: Mapping[Queue, int], first: int = 0, rounded: int = 0) -> None:
        self.ends, self._first, self._rounded = dict(ends), first, rounded
        self.asked: list[Queue] = []

    def topics(self) -> dict[str, int]:
        return {topic: 1 + max(n for other, n in self.ends if other == topic) for topic, _ in self.ends}

    def max_offsets(self, queues: Iterable[Queue]) -> list[int]:
        self.asked += queues
        return [self.ends.get(queue, 0) for queue in queues]

    def min_offsets(self, queues: Sequence[Queue]) -> list[int]:
        self.asked += queues
        return [self._first] * len(queues)

    def offset_at(self, topic: str, queue: int, millis: int) -> int:
        return max(-(-millis // 1000) + self._rounded, self._first)


@pytest.fixture(autouse=True)
def _a_message_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "stored", lambda _, asked: asked.start * 1_000_000)


def sampled(
    broker: Scripted, *rows: tuple[Queue, ProgressRow], since: Since | None = None
) -> tuple[Sampling, QueueSample]:
    found = Sampling(cast(Broker, broker), dict(rows), CLOCK, True, Wanted(since))
    return found, found.sample()


def finals(broker: Scripted, named: Mapping[Queue, int | None], *rows: tuple[Queue, ProgressRow]) -> QueueSample:
    asks, found = sampled(broker, *rows)
    asks.add_finals(found, named)
    return found


def test_a_real_topic_that_was_made_anew_is_a_hole_until_it_has_come_far_enough() -> None:
    behind = finals(Scripted({("T", 0): 3}), {}, row("T", 0))
    assert (behind.holes, behind.ranges[FINAL]) == ([Range(0, 5, "T", 0)], [])
    assert finals(Scripted({("T", 0): 6}), {}, row("T", 0)).ranges[FINAL] == [QueueRange("T", 0, 5, 6)]


def test_a_half_queue_that_ends_before_what_has_landed_is_refused() -> None:
    with pytest.raises(InputRefused, match="rebuilt"):
        sampled(Scripted({(HALF_TOPIC, 0): 3}), row(HALF_TOPIC, 0))


def test_only_real_queues_that_half_messages_name_are_asked_for_and_pulled() -> None:
    broker = Scripted({("T", n): 9 for n in range(4)} | {("U", 0): 9})
    asks, found = sampled(broker, row("T", 1), row("gone", 0), row(HALF_TOPIC, 0, 0), row("commitlog", 0))
    absent = asks.add_finals(found, {("T", 5): None})
    assert [each[:2] for each in found.ranges[FINAL]] == [("T", 1)]
    assert absent == {("T", 5), ("gone", 0)}, "of these nothing is known, not even that there was no final message"
    assert {queue for queue in broker.asked if queue[0] in "TU"} == {("T", 1)}


def test_a_real_topic_that_is_left_out_counts_as_not_there() -> None:
    """So nothing of it is known, and nothing of it is lost."""
    broker = Scripted({("T", 0): 3, ("U", 0): 9})
    asks = Sampling(cast(Broker, broker), dict([row("T", 0)]), CLOCK, True, Wanted(topics={"U"}))
    found = asks.sample()
    assert asks.add_finals(found, {("T", 1): None, ("U", 0): None}) == {("T", 0), ("T", 1)}
    assert asks.add_begins(found, {("T", 2): 0}) == {("T", 2)}
    assert ([each[0] for each in found.ranges[FINAL]], found.holes) == (["U"], [])
    assert asks.left_out == ["T"]
    assert not any(topic == "T" for topic, _ in broker.asked)


def test_a_queue_that_has_nothing_new_is_asked_once() -> None:
    broker = Scripted({("T", 0): 5})
    assert finals(broker, {}, row("T", 0)).ranges[FINAL] == [QueueRange("T", 0, 5, 5)]
    assert broker.asked.count(("T", 0)) == 1


# ---- where a queue's first landing begins ----


def begin(broker: Scripted, named: Mapping[Queue, int | None], *rows: tuple[Queue, ProgressRow]) -> tuple[int, int]:
    """The start of the only real queue's range, and how many offsets are lost."""
    found = finals(broker, named, *rows)
    return found.ranges[FINAL][0].start, sum(hole.upto - hole.since for hole in found.holes)


def test_a_real_queue_begins_a_minute_before_the_first_half_message_that_names_it() -> None:
    assert begin(Scripted({("T", 0): 900}), {("T", 0): 500_000}) == (440, 0)
    assert begin(Scripted({("T", 0): 900}, first=100), {("T", 0): 500_000}) == (440, 0)


def test_a_real_queue_that_lost_what_may_be_needed_begins_with_a_hole() -> None:
    assert begin(Scripted({("T", 0): 900}, first=600), {("T", 0): 500_000}) == (600, 600)


def test_a_real_queue_that_was_named_before_begins_where_it_was_left() -> None:
    assert begin(Scripted({("T", 0): 900}), {("T", 0): 500_000}, row("T", 0, 7)) == (7, 0)
    assert begin(Scripted({("T", 0): 900}), {("T", 0): 500_000}, row("T", 0, None)) == (0, 0)


def test_a_broker_that_rounds_too_far_is_not_believed() -> None:
    assert begin(Scripted({("T", 0): 900}, rounded=60), {("T", 0): 500_000}) == (500, 0)
    assert begin(Scripted({("T", 0): 900}, rounded=61), {("T", 0): 500_000}) == (0, 0)


def test_a_first_landing_since_an_instant_begins_there_with_all_kinds() -> None:
    broker = Scripted({(HALF_TOPIC, 0): 900, (OP_TOPIC, 0): 700})
    _, found = sampled(broker, since=Since(500_000))
    assert [each.start for kind in (HALF, OP) for each in found.ranges[kind] if each.end] == [440, 440]
    _, found = sampled(broker, since=Since(500_000, 500))
    assert [each.start for kind in (HALF, OP) for each in found.ranges[kind] if each.end] == [500, 440]
    assert found.holes == []


# ---- what comes while a landing asks ----


def test_half_messages_that_come_meanwhile_land_and_their_new_queues_begin() -> None:
    broker = Scripted({(HALF_TOPIC, 0): 3, ("T", 0): 900, ("U", 0): 900})
    asks, found = sampled(broker)
    assert asks.add_finals(found, {("T", 0): 500_000}) == set()
    broker.ends[HALF_TOPIC, 0] = 5
    assert asks.add_halves(found) == [QueueRange(HALF_TOPIC, 0, 3, 5)]
    assert found.ranges[HALF][0] == QueueRange(HALF_TOPIC, 0, 0, 5)
    assert asks.add_begins(found, {("T", 0): 500_000, ("U", 0): 600_000, ("V", 0): 600_000}) == {("V", 0)}
    assert found.ranges[FINAL] == [QueueRange("T", 0, 440, 900), QueueRange("U", 0, 540, 540)]
