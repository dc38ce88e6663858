"""How far a broker's own check of half messages has come, as it keeps it in a store: `config/consumerOffset.json`."""

from __future__ import annotations

import os

from halfop.rocketmq.frames import read_json
from halfop.rocketmq.names import CHECK_GROUP, HALF_TOPICS

FILE = "config/consumerOffset.json"


def check_offsets(root: str) -> dict[int, int]:
    """Returns the next offset to be checked of each half queue; none if the file is missing or unreadable.

    A broker writes the file every few seconds, and a copy may have half of it.
    """
    try:
        with open(os.path.join(root, FILE), "rb") as file:
            table = read_json(file.read())["offsetTable"]
        found = [table[f"{topic}@{CHECK_GROUP}"] for topic in HALF_TOPICS if f"{topic}@{CHECK_GROUP}" in table]
        return {int(queue): int(offset) for queues in found for queue, offset in queues.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
