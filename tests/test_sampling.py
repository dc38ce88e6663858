"""Which queues of real topics a landing follows."""

from __future__ import annotations

from halfop.landing.progress import QueueRow
from halfop.landing.sampling import Sample, chosen
from halfop.rocketmq.batches import FINAL
from halfop.rocketmq.pull import QueueRange

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"


def row(topic: str, queue: int) -> tuple[tuple[str, int], QueueRow]:
    return (topic, queue), QueueRow("b", topic, queue, 5, None, None, 0)


def test_only_queues_that_half_messages_name_and_word_of_those_that_are_not_there() -> None:
    found = Sample()
    found.ranges[FINAL] = [QueueRange("T", queue, 0, 9) for queue in range(4)] + [QueueRange("U", 0, 0, 9)]
    absent = chosen(found, dict([row("T", 1), row("gone", 0), row(HALF_TOPIC, 0), row("commitlog", 0)]), {("T", 5)})
    assert [each[:2] for each in found.ranges[FINAL]] == [("T", 1)]
    assert absent == {("T", 5), ("gone", 0)}, "of these nothing is known, not even that there was no final message"
