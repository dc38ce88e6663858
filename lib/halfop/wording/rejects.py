"""What a call has rejected, in its summary and as warnings: each reason with number, example, and what is allowed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from halfop.frame.summary import Summary, add_counts
from halfop.rules.reasons import allowed, urgency, words


class Reject(NamedTuple):
    """The rejects of one kind and reason: their number, and where and what one of them is."""

    kind: str
    reason: str
    rows: int
    place: str
    detail: str

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.reason}"


def tell(log: logging.Logger, who: str, summary: Summary, found: Iterable[Reject]) -> None:
    """Adds rejects to the summary, and warns of each reason; what matters most comes first."""
    every = sorted(found, key=lambda each: (urgency(each.reason), -each.rows, each.name))
    add_counts(summary.extra.setdefault("rejected", {}), {each.name: each.rows for each in every})
    for each in every:
        log.warning("%s rejected %s", who, _worded(each))


def _worded(each: Reject) -> str:
    meaning = f" ({found})" if (found := words(each.reason)) else ""
    to_do = f". {found}" if (found := allowed(each.reason)) else ""
    example = ": ".join(filter(None, (each.place, each.detail)))
    rows = "1 row" if each.rows == 1 else f"{each.rows:,} rows"
    return f"{rows} as {each.name}{meaning}; one of them: {example}{to_do}. Table rejected has all"
