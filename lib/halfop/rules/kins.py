"""Kins in Arrow columns, resolved: what Spark's Python workers run for half messages that may have put-back copies.

A row is a kin. Columns of its members are lists with a value for each; the answer names a member by its place in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa

from halfop.rules.resolve import Copy, Member, Transaction, resolve

# The fields of `Member` as columns of half messages; what remains of the row does not leave the JVM.
MEMBER = ["broker_name", "queue_id", "queue_offset", "state", "marked", "escaped", "resume_mark", "store_timestamp"]
MEMBER += ["check_times", "last_checked_at", "resumed_at", "copies"]
_INSTANT, _PLACES = pa.timestamp("us", tz="UTC"), pa.list_(pa.int32())
_COPY = pa.struct(
    [
        ("broker_name", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("commit_log_offset", pa.int64()),
        ("landed_at", _INSTANT),
    ]
)
TRANSACTION = pa.struct(
    [
        ("standing", pa.int32()),
        ("superseded", _PLACES),
        ("members", _PLACES),
        *((name, pa.bool_()) for name in ("alive", "resumed", "marked", "escaped")),
        ("check_times", pa.int32()),
        ("last_checked_at", _INSTANT),
        ("resumed_at", _INSTANT),
        ("copies", pa.list_(_COPY)),
    ]
)


class Placed(NamedTuple):
    """A transaction, and the places of its kin's members by their half keys."""

    transaction: Transaction
    place_of: Mapping[tuple[str, int, int], int]

    def places(self, members: Sequence[Member]) -> list[int]:
        return [self.place_of[member.key] for member in members]


def resolved(*columns: pa.Array) -> pa.Array:
    """Returns the transactions of each kin, from the fields `MEMBER` of its members, and its discards' instants."""
    *fields, copies, discards = columns
    read = zip(*map(_flat, fields), _copies(copies.flatten()), strict=True)
    members = _lists(fields[0], [Member(*values) for values in read])
    kins = zip(members, _lists(discards, _flat(discards)), strict=True)
    return pa.array([[_cells(each) for each in _transactions(*kin)] for kin in kins], pa.list_(TRANSACTION))


def _transactions(members: Sequence[Member], discards: Sequence[int]) -> Iterator[Placed]:
    place_of = {member.key: place for place, member in enumerate(members)}
    return (Placed(transaction, place_of) for transaction in resolve(members, discards))


def with_given_up(*columns: pa.Array) -> pa.Array:
    """Returns for each transaction of each kin whether the broker has given it up.

    From lists of the fields of `Candidate`, the instants of the kin's discards, and how many of them were seen before.
    """
    *fields, discards, seen = columns
    read = zip(*map(_flat, fields), strict=True)
    candidates = _lists(fields[0], [Candidate(*values) for values in read])
    kins = zip(candidates, _lists(discards, _flat(discards)), _values(seen), strict=True)
    return pa.array([given_up(*kin) for kin in kins], pa.list_(pa.bool_()))


# ---- from Arrow ----


def _values(column: pa.Array) -> list[Any]:
    """Python values, of instants the microseconds: a datetime is slow and ends with the year 9999."""
    return list((column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist())


def _flat(column: pa.ListArray) -> list[Any]:
    return _values(column.flatten())


def _lists(column: pa.ListArray, values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The values in lists as long as the column's."""
    ends = list(accumulate(column.value_lengths().to_pylist()))
    return (values[start:end] for start, end in zip([0, *ends], ends, strict=False))


def _copies(column: pa.ListArray) -> Iterator[Sequence[Copy]]:
    columns = [_values(field) for field in column.flatten().flatten()]
    return map(tuple, _lists(column, [Copy(*values) for values in zip(*columns, strict=True)]))


# ---- to Arrow ----


def _cells(placed: Placed) -> tuple[object, ...]:
    """The fields of `TRANSACTION`."""
    each, row = placed.transaction, placed.transaction.standing
    (standing,), superseded, members = map(placed.places, ([row], each.superseded, each.members))
    flags = each.alive, each.resumed, row.marked, row.escaped
    return standing, superseded, members, *flags, row.check_times, row.last_checked_at, row.resumed_at, row.copies


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
