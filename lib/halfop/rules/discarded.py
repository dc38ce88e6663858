"""The transactions of a kin that a broker's discard records are about. Plain Python; instants are microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Candidate(NamedTuple):
    """A transaction of a kin, as far as a discard record may be about it."""

    starter: int  # the lowest offset that is known of it
    broker_name: str
    queue_id: int
    is_open: bool  # and deliverable, and not ended by this run
    resumed_at: int | None
    spent_on_others: int  # records for which earlier runs have given up other transactions of the kin


def given_up(candidates: Sequence[Candidate], discards: Sequence[int], seen: int) -> list[bool]:
    """Returns for each transaction of a kin whether the broker has given it up.

    A discard record names no offset: each transaction takes one, the lowest first. `discards` are in order, and earlier
    runs have seen the first `seen` of them.
    """
    about = [_records_about(candidate, discards, seen) for candidate in candidates]
    order = [
        (number == 0, each.starter, each.broker_name, each.queue_id)
        for number, each in zip(about, candidates, strict=True)
    ]
    lowest_first = sorted(range(len(candidates)), key=order.__getitem__)
    place = {n: place for place, n in enumerate(lowest_first, 1)}
    return [place[n] <= about[n] for n in range(len(candidates))]


def _records_about(candidate: Candidate, discards: Sequence[int], seen: int) -> int:
    """The number of records that may be about a transaction: not spent on others, and later than its last resume."""
    if not candidate.is_open:
        return 0
    unspent = discards[min(candidate.spent_on_others, seen) :]
    return sum(1 for at in unspent if candidate.resumed_at is None or at > candidate.resumed_at)
