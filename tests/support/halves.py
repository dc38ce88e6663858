"""The one builder of the model's half messages.

A section of tests has a `half` of its own where it has a queue and a clock of its own: `messages`, `rule_words`,
`cases_of_copies`. The same word makes another form elsewhere: a line as `land files` takes it in `json_lines`, a record
of a broker's log in `store_writer`.
"""

from __future__ import annotations

from typing import Any

from model import reference as m


def half_at(queue: tuple[str, int], offset: int, at: int, **columns: Any) -> m.Half:
    """A half message that was born and stored at that time; `columns` are the model's, and win."""
    given: dict[str, Any] = {"commit_log_offset": offset % 10**9 * 100, "uniq_key": f"k{offset}", "group": "g"}
    given |= {"real_topic": "T", "real_qid": "1", "born": at, "store": at}
    return m.Half(*queue, offset, **(given | columns))
