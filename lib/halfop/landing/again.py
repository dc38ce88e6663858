"""`--again`: ranges of a broker's queues that land again, because the tables have lost what had landed of them.

Rows that are still there land a second time, and count once. How far the queues have landed stays as it is.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from halfop.columns.lives import Lives
from halfop.frame.errors import InputRefused
from halfop.rocketmq.batches import DISCARD, FINAL, HALF, OP
from halfop.rocketmq.names import DISCARD_TOPIC, HALF_TOPICS, OP_TOPICS, topics_of

_WRITTEN = re.compile(r"([^/]+)/(?:([^/]+)/)?([0-9]{1,9})/([0-9]{1,18})-([0-9]{1,18})")
_EXPECTED = "expected BROKER/QUEUE/FROM-TO or BROKER/TOPIC/QUEUE/FROM-TO, as broker-a/0/4700-4799"


class Again(NamedTuple):
    """Offsets since..upto - 1 of a topic's queue; no topic: of the half queue and of the op queue of that number.

    `broker_name` is that of the life under which the rows are in the tables.
    """

    broker_name: str
    topic: str | None
    queue_id: int
    since: int
    upto: int

    @property
    def topics(self) -> tuple[str, ...]:
        return topics_of(self.queue_id) if self.topic is None else (self.topic,)

    def __str__(self) -> str:
        topic = "" if self.topic is None else f"{self.topic}/"
        return f"{self.broker_name}/{topic}{self.queue_id}/{self.since}-{self.upto - 1}"


def kind_of(topic: str) -> str:
    """The kind of a topic's messages."""
    if topic in HALF_TOPICS:
        return HALF
    return OP if topic in OP_TOPICS else DISCARD if topic == DISCARD_TOPIC else FINAL


def again(text: str) -> Again:
    """`broker-a/0/4700-4799`, both ends included."""
    match = _WRITTEN.fullmatch(text)
    if match is None or int(match[5]) < int(match[4]):
        raise argparse.ArgumentTypeError(f"{_EXPECTED}; given {text!r}")
    return Again(match[1], match[2], int(match[3]), int(match[4]), int(match[5]) + 1)


def by_life(wanted: Iterable[Again], lives: Lives) -> dict[str, list[Again]]:
    """The ranges of a broker, by the name of the life that each is of, in the order of the lives."""
    wanted = list(wanted)
    found = {name: [each for each in wanted if each.broker_name == name] for name in lives.names}
    return {name: ranges for name, ranges in found.items() if ranges}


def refuse_unknown(wanted: Iterable[Again], known: Collection[str], source: str) -> None:
    """Raises InputRefused for a range of a broker that the source does not have."""
    for each in wanted:
        if each.broker_name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise InputRefused(source, None, f"--again {each}: no such broker here", f"its brokers: {names}")
