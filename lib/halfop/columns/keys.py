"""The half key and the queue: the columns by which half messages are found."""

from __future__ import annotations

import re
from typing import NamedTuple

# The offset first: it distinguishes rows fastest, in hashes and in sorts.
HALF_KEY = ["queue_offset", "queue_id", "broker_name"]
QUEUE = ["broker_name", "queue_id"]
KEY_COLUMNS = "broker_name STRING, queue_id INT, queue_offset BIGINT"  # of `Key`, for a frame

_WRITTEN_KEY = re.compile(r"(.*)/([0-9]{1,10})/([0-9]{1,19})", re.DOTALL)


class Key(NamedTuple):
    """A half key, as users write it: BROKER/QUEUE/OFFSET."""

    broker_name: str
    queue_id: int
    queue_offset: int

    def __str__(self) -> str:
        return "/".join(map(str, self))


def as_key(text: str) -> Key | None:
    """The key that `BROKER/QUEUE/OFFSET` names, None of another text; the broker's name may hold a slash, too."""
    match = _WRITTEN_KEY.fullmatch(text)
    if match is None or int(match[2]) >= 2**31 or int(match[3]) >= 2**63:
        return None
    return Key(match[1], int(match[2]), int(match[3]))
