"""Put-back copies: which half messages are one transaction, and which of its copies stands for it.

A broker whose own check service runs writes an open half message to its queue again: a *copy*, marked as such. Half
messages that may be copies of each other are a *kin*; copies lie in the queue of their original. A transaction begins
with a *head*, an original, and has the copies above it, up to the next head. Copies below every head are a transaction
whose head has not landed. The highest open member is the *live* copy. Members that a live one has superseded are
*pointers*: they only lead to their transaction, and the row that stands for it takes its head's place. *Twins* are
several transactions of one kin, because a client may send a message object twice. What the broker *gave up* it may
*resume*, with a copy of its own whose check times are 0.

Plain Python: instants are microseconds since 1970, offsets are those of one half queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

State = Literal["NEW", "OPEN", "ENDED", "DISCARDED", "REJECTED", "SUPERSEDED"]


class Copy(NamedTuple):
    """The place of a copy, as the row that stands for it remembers it."""

    offset: int
    commit_log_offset: int | None
    landed_at: int | None


class Member(NamedTuple):
    """A half message of a kin: what it brought when it landed, or what earlier runs made of it."""

    offset: int
    state: State
    marked: bool  # it says that a broker's check service wrote it, or its transaction has no head yet
    says_resumed: bool  # marked with check times 0, which only a broker's resume writes
    stored_at: int | None
    check_times: int
    last_checked_at: int | None
    resumed_at: int | None
    copies: tuple[Copy, ...]  # all copies that its row knows of, itself among them

    @property
    def is_open(self) -> bool:
        return self.state in ("NEW", "OPEN")

    def stored_since(self, instant: int) -> bool:
        return self.stored_at is not None and self.stored_at >= instant

    @property
    def lowest(self) -> int:
        return min(copy.offset for copy in self.copies)

    @property
    def highest(self) -> int:
        return max(copy.offset for copy in self.copies)


class Transaction(NamedTuple):
    """Members that are one transaction; `standing` is the row of one of them with what all of them know."""

    standing: Member
    alive: bool  # the standing row is the live copy; otherwise the transaction was ended, given up or rejected
    superseded: tuple[Member, ...]  # open members that are not, or no longer, the live copy
    members: tuple[Member, ...]


def resolve(members: Iterable[Member], discards: Iterable[int]) -> list[Transaction]:
    """Returns the transactions of one kin in one queue.

    `discards` are the instants at which the broker moved a message of this kin to its discard topic.
    """
    discard_times = tuple(discards)
    return [_transaction(each, discard_times) for each in _by_head(tuple(members))]


def _by_head(members: Sequence[Member]) -> Iterator[tuple[Member, ...]]:
    """Copies belong to the nearest head below them; copies below every head are one transaction without its head."""
    pointers = {member.offset for member in members if _is_pointer(member, members)}
    group: list[Member] = []
    for member in sorted(members, key=lambda m: (m.lowest, m.offset in pointers, m.offset)):
        is_head = not member.marked and member.offset not in pointers
        if is_head and group:
            yield _by_offset(group)
            group = []
        group.append(member)
    if group:
        yield _by_offset(group)


def _by_offset(members: Iterable[Member]) -> tuple[Member, ...]:
    return tuple(sorted(members, key=lambda member: member.offset))


def _is_pointer(member: Member, members: Sequence[Member]) -> bool:
    """A superseded copy, or one that was given up and resumed by the broker: the row of a later copy knows of it."""
    if member.state == "DISCARDED":
        return any(m.offset > member.offset and _knows(m, member.offset) for m in members)
    return member.state == "SUPERSEDED"


def _knows(member: Member, offset: int) -> bool:
    return any(copy.offset == offset for copy in member.copies)


def _transaction(members: tuple[Member, ...], discards: Sequence[int]) -> Transaction:
    """A transaction from its members, lowest offset first."""
    highest = {member.state: member for member in members}
    ended = highest.get("ENDED")
    discarded = None if "OPEN" in highest else highest.get("DISCARDED")
    resume = None if ended else _resume(members, discarded is not None, discards)
    if resume:
        alive = [m for m in members if m.is_open and m.offset >= resume.offset]
    else:
        alive = [m for m in members if m.is_open and not ended and not discarded]
    live = alive[-1] if alive else None
    closed = ended or discarded or highest.get("SUPERSEDED") or highest.get("REJECTED")
    standing = live or closed or members[-1]
    below = tuple(m for m in members if m.is_open and (live is None or m.offset < live.offset))
    if live:
        standing = _counted(live, alive, resume)
    standing = standing._replace(copies=_all_copies(members), marked=_lacks_head(members))
    return Transaction(standing, live is not None, below, members)


def _resume(members: Sequence[Member], discarded: bool, discards: Sequence[int]) -> Member | None:
    """The broker's own resume: the highest new copy with check times 0 above all that was known, of what was given up.

    A copy that was stored before an earlier resume is none, however late it lands.
    """
    known = max((m.highest for m in members if m.state != "NEW"), default=-1)
    resumed = _latest(m.resumed_at for m in members if m.state in ("OPEN", "DISCARDED"))
    since = [at for at in discards if resumed is None or at > resumed]  # an earlier resume has undone the others
    for member in reversed(members):
        is_new = member.state == "NEW" and member.says_resumed and member.offset > known
        given_up = discarded or any(member.stored_since(at) for at in since)
        if is_new and given_up and (resumed is None or member.stored_since(resumed + 1)):
            return member
    return None


def _counted(live: Member, alive: Sequence[Member], resume: Member | None) -> Member:
    """The live copy with the most check times and the last check of all copies that count.

    A copy that lands after a resume and was stored before it brings checks that count no more.
    """
    resumed = _latest(m.resumed_at for m in alive)
    counting = [m for m in alive if m.state == "OPEN" or resume or resumed is None or m.stored_since(resumed + 1)]
    return live._replace(
        check_times=max(m.check_times for m in counting),
        last_checked_at=_latest(m.last_checked_at for m in counting),
        resumed_at=resume.stored_at if resume and resume.stored_at is not None else resumed,
    )


def _all_copies(members: Sequence[Member]) -> tuple[Copy, ...]:
    """All copies that any member knows of, the lowest first."""
    known = {copy for member in members for copy in member.copies}
    return tuple(sorted(known, key=lambda copy: copy.offset))


def _lacks_head(members: Sequence[Member]) -> bool:
    """Returns whether the original of all these copies may still land."""
    return all(member.marked or member.state == "SUPERSEDED" for member in members)


def _latest(instants: Iterable[int | None]) -> int | None:
    return max((at for at in instants if at is not None), default=None)


class Candidate(NamedTuple):
    """A transaction of a kin, as far as a discard record may be about it."""

    starter: int  # the lowest offset that is known of it
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
    order = [(number == 0, each.starter, each.queue_id) for number, each in zip(about, candidates, strict=True)]
    lowest_first = sorted(range(len(candidates)), key=order.__getitem__)
    place = {n: place for place, n in enumerate(lowest_first, 1)}
    return [place[n] <= about[n] for n in range(len(candidates))]


def _records_about(candidate: Candidate, discards: Sequence[int], seen: int) -> int:
    """The number of records that may be about a transaction: not spent on others, and later than its last resume."""
    if not candidate.is_open:
        return 0
    unspent = discards[min(candidate.spent_on_others, seen) :]
    return sum(1 for at in unspent if candidate.resumed_at is None or at > candidate.resumed_at)
