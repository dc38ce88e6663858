"""A half message as every builder of a section makes it, with that section's queue and time."""

from __future__ import annotations

from typing import Any

from model import reference as m


def half_at(queue: tuple[str, int], offset: int, at: int, **columns: Any) -> m.Half:
    """A half message that was born and stored at that time."""
    given: dict[str, Any] = {"commit_log_offset": offset * 100, "uniq_key": f"k{offset}", "group": "g"}
    given |= {"real_topic": "T", "real_qid": "1", "born": at, "store": at}
    return m.Half(*queue, offset, **(given | columns))
