"""Which queues of real topics a landing follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import cast

import pytest
from halfop.frame.errors import InputRefused
from halfop.landing.broker.sampling import QueueSample, Sampling, choose_finals
from halfop.landing.lost import Range
from halfop.landing.progress import ProgressRow
from halfop.rocketmq.batches import FINAL, HALF
from halfop.rocketmq.names import HALF_TOPIC, HALF_TOPICS
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.pull import QueueRange


def row(topic: str, queue: int) -> tuple[tuple[str, int], ProgressRow]:
    return (topic, queue), ProgressRow("b", topic, queue, 5, None, None, 0)


class Scripted:
    """A broker whose queues end and begin where it is told."""

    remote = SimpleNamespace(address="host:1")

    def __init__(self, ends: Mapping[tuple[str, int], int]) -> None:
        self._ends = ends

    def topics(self) -> dict[str, int]:
        return {topic: 1 for topic, _ in self._ends}

    def max_offsets(self, queues: Sequence[tuple[str, int]]) -> list[int]:
        return [self._ends.get(queue, 0) for queue in queues]

    def min_offsets(self, queues: Sequence[tuple[str, int]]) -> list[int]:
        return [0] * len(queues)


def sample(ends: Mapping[tuple[str, int], int], *rows: tuple[tuple[str, int], ProgressRow]) -> QueueSample:
    return Sampling(cast(Broker, Scripted(ends)), dict(rows), 7, True).sample()


def test_a_real_topic_that_was_made_anew_is_a_hole_until_it_has_come_far_enough() -> None:
    behind = sample({("T", 0): 3}, row("T", 0))
    assert (behind.holes, behind.ranges[FINAL]) == ([Range(0, 5, "T", 0)], [])
    assert sample({("T", 0): 6}, row("T", 0)).ranges[FINAL] == [QueueRange("T", 0, 5, 6)]


def test_a_half_queue_that_ends_before_what_has_landed_is_refused() -> None:
    with pytest.raises(InputRefused, match="rebuilt"):
        sample({(HALF_TOPIC, 0): 3}, row(HALF_TOPIC, 0))


def test_a_broker_with_two_half_topics_is_refused() -> None:
    assert sample({(HALF_TOPIC, 0): 3}).ranges[HALF][0] == QueueRange(HALF_TOPIC, 0, 0, 3)
    with pytest.raises(InputRefused, match="two topics"):
        sample(dict.fromkeys([(topic, 0) for topic in HALF_TOPICS], 3))


def test_only_queues_that_half_messages_name_and_word_of_those_that_are_not_there() -> None:
    found = QueueSample()
    found.ranges[FINAL] = [QueueRange("T", queue, 0, 9) for queue in range(4)] + [QueueRange("U", 0, 0, 9)]
    absent = choose_finals(
        found, dict([row("T", 1), row("gone", 0), row(HALF_TOPIC, 0), row("commitlog", 0)]), {("T", 5)}
    )
    assert [each[:2] for each in found.ranges[FINAL]] == [("T", 1)]
    assert absent == {("T", 5), ("gone", 0)}, "of these nothing is known, not even that there was no final message"
