"""Folders of the real topics' tables: names that every file system takes and no topic can break out of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

_LONGEST = 100
_SPELLED = str.maketrans({"%": "~", "|": "!"})  # neither is legal in a topic, so names stay apart


def directories(topics: Iterable[str], taken: Mapping[str, str]) -> dict[str, str]:
    """A directory for each topic that has none in `taken` (topic → directory).

    Plain names stay as they are. Names that are too long, start with a character that hides files, or differ from
    another only in case get a hash.
    """
    used = {directory.lower() for directory in taken.values()}
    made: dict[str, str] = {}
    for topic in sorted(set(topics) - set(taken)):
        plain = topic.translate(_SPELLED)
        free = len(plain) <= _LONGEST and plain.lower() not in used and not plain.startswith("_")
        made[topic] = plain if free else _hashed(topic, plain)
        used.add(made[topic].lower())
    return made


def comment(topic: str) -> str:
    """The comment of a topic's table."""
    return f"Committed messages of real topic {topic}"


def _hashed(topic: str, plain: str) -> str:
    return f"{plain.lstrip('_')[: _LONGEST - 17]}.{hashlib.sha256(topic.encode()).hexdigest()[:16]}"
