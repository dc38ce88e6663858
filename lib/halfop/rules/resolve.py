"""Put-back copies: the half messages of one transaction, and the copy that stands for it.

A broker whose own check service runs writes an open half message to its queue again: a *copy*, marked as such. A slave
that acts as master lets it *escape* to another broker. Half messages that may be copies of each other are a *kin*. In
one queue a transaction begins with a *head*, an original, and has the copies above it, up to the next head: a *part*.
What may have escaped also begins a part. A part of copies alone, and one that may have escaped, belong to a part of
another broker; if none is there, they are a transaction whose head has not landed. The last open member is the *live*
copy: in a queue the highest, of several brokers' parts the one stored last. Members that a live one has superseded are
*pointers*: they only lead to their transaction, and the row that stands for it takes its head's place. *Twins* are
several transactions of one kin, because a client may send a message object twice. What the broker *gave up* it may
*resume*, with a copy of its own whose check times are 0.

Plain Python: instants are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import Literal, NamedTuple

from halfop.columns.lives import own_name

State = Literal["NEW", "OPEN", "ENDED", "DISCARDED", "REJECTED", "SUPERSEDED"]
Queue = tuple[str, int]
Key = tuple[str, int, int]


class Copy(NamedTuple):
    """The place of a copy, as the row that stands for it remembers it."""

    broker_name: str
    queue_id: int
    offset: int
    commit_log_offset: int | None
    landed_at: int | None

    @property
    def queue(self) -> Queue:
        return self.broker_name, self.queue_id

    @property
    def key(self) -> Key:
        return self.broker_name, self.queue_id, self.offset


class Member(NamedTuple):
    """A half message of a kin: what it brought when it landed, or what earlier runs made of it."""

    broker_name: str
    queue_id: int
    offset: int
    state: State
    marked: bool  # it says that a broker's check service wrote it, or its transaction has no head yet
    escaped: bool  # it may have escaped from another broker, and nothing there is known to be its original
    says_resumed: bool  # marked with check times 0, which only a broker's resume writes
    stored_at: int | None
    check_times: int
    last_checked_at: int | None
    resumed_at: int | None
    copies: tuple[Copy, ...]  # all copies that its row knows of, itself among them

    @property
    def queue(self) -> Queue:
        return self.broker_name, self.queue_id

    @property
    def key(self) -> Key:
        return self.broker_name, self.queue_id, self.offset

    @property
    def is_open(self) -> bool:
        return self.state in ("NEW", "OPEN")

    def stored_since(self, instant: int) -> bool:
        return self.stored_at is not None and self.stored_at >= instant

    def offsets_in(self, queue: Queue) -> list[int]:
        """The offsets of all copies in that queue that its row knows of."""
        return [copy.offset for copy in self.copies if copy.queue == queue]

    @property
    def lowest(self) -> int:
        return min(self.offsets_in(self.queue))


class Part(NamedTuple):
    """Members of one queue that are one transaction, lowest offset first."""

    members: tuple[Member, ...]

    @property
    def broker_name(self) -> str:
        return self.members[0].broker_name

    @property
    def is_rooted(self) -> bool:
        """It has the original, or is known to belong to one."""
        return any(not m.marked and not m.escaped and m.state != "SUPERSEDED" for m in self.members)

    @property
    def has_escaped(self) -> bool:
        """A member was sent as an escaped one is, or knows of copies elsewhere; a mark alone is no sign of that."""
        return any(m.escaped or any(copy.broker_name != m.broker_name for copy in m.copies) for m in self.members)

    @property
    def begun_at(self) -> tuple[int, str, int, int]:
        """The order of the parts of a kin: by store time."""
        stored = min((m.stored_at for m in self.members if m.stored_at is not None), default=-1)
        return stored, *self.members[0].queue, self.members[0].offset


class Transaction(NamedTuple):
    """Members that are one transaction; `standing` is the row of one of them with what all of them know."""

    standing: Member
    alive: bool  # the standing row is the live copy; otherwise the transaction was ended, given up or rejected
    resumed: bool  # by its broker: one of the copies that have just arrived says so
    superseded: tuple[Member, ...]  # open members that are not, or no longer, the live copy
    members: tuple[Member, ...]


def resolve(members: Iterable[Member], discards: Iterable[int]) -> list[Transaction]:
    """Returns the transactions of one kin.

    `discards` are the instants at which a broker moved a message of this kin to its discard topic.
    """
    discard_times = tuple(discards)
    in_order = sorted(members, key=lambda m: m.queue)
    parts = [part for _, of in groupby(in_order, lambda m: m.queue) for part in _by_head(tuple(of))]
    return [_transaction(each, discard_times) for each in _together(parts)]


def _by_head(members: Sequence[Member]) -> Iterator[Part]:
    """Copies belong to the nearest head below them; copies below every head are one part without its head."""
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


def _by_offset(members: Iterable[Member]) -> Part:
    return Part(tuple(sorted(members, key=lambda member: member.offset)))


def _is_pointer(member: Member, members: Sequence[Member]) -> bool:
    """A superseded copy, or one that was given up and resumed by the broker: the row of a later copy knows of it."""
    if member.state == "DISCARDED":
        return any(m.offset > member.offset and member.offset in m.offsets_in(member.queue) for m in members)
    return member.state == "SUPERSEDED"


# ---- parts of several brokers ----


def _together(parts: Sequence[Part]) -> list[list[Part]]:
    """The parts of each transaction."""
    if len(parts) == 1:
        return [list(parts)]
    in_order = sorted(parts, key=lambda part: (not part.is_rooted, part.begun_at))
    escaped = [part for part in parts if any(one.has_escaped for one in parts if one is part or _linked(part, [one]))]
    found: list[list[Part]] = []
    for part in in_order:
        homes = [group for group in found if _linked(part, group)]
        home = homes[0] if homes else None if part.is_rooted else _nearest(part, found, escaped)
        for other in homes[1:]:
            homes[0].extend(other)
            found.remove(other)
        if home is None:
            found.append([part])
        else:
            home.append(part)
    return found


def _linked(part: Part, group: Sequence[Part]) -> bool:
    """Returns whether a row of one knows of a member of the other."""
    return any(_knows(one, part) or _knows(part, one) for one in group)


def _knows(part: Part, other: Part) -> bool:
    places = {copy.key for member in part.members for copy in member.copies}
    return any(member.key in places for member in other.members)


def _nearest(part: Part, found: Sequence[list[Part]], escaped: Collection[Part]) -> list[Part] | None:
    """The transaction that it escaped from, if any: the part of another broker that began last before it.

    A clock may be wrong: else the first that began after it.
    """
    some = [(one, g) for g in found for one in g if part in escaped or one in escaped or _are_lives(part, one)]
    others = [each for each in some if _is_elsewhere(each[0], part)]
    before = [each for each in others if each[0].begun_at <= part.begun_at]
    if before:
        return max(before, key=lambda each: each[0].begun_at)[1]
    rooted = [each for each in others if each[0].is_rooted]
    return min(rooted, key=lambda each: each[0].begun_at)[1] if rooted else None


def _are_lives(part: Part, other: Part) -> bool:
    """Returns whether both are of one broker, which goes on in a later life: it puts back what stands of an earlier."""
    return own_name(part.broker_name) == own_name(other.broker_name)


def _is_elsewhere(one: Part, part: Part) -> bool:
    """Returns whether a part is on another broker, or its rows know of a copy there, which need not be at hand."""
    return any(copy.broker_name != part.broker_name for member in one.members for copy in member.copies)


# ---- one transaction ----


def _transaction(parts: Sequence[Part], discards: Sequence[int]) -> Transaction:
    """A transaction from its parts."""
    members = _in_order(parts)
    place = {member.key: n for n, member in enumerate(members)}
    last = {member.state: member for member in members}
    ended = last.get("ENDED")
    discarded = None if "OPEN" in last else last.get("DISCARDED")
    resume = None if ended else _resume(members, discarded is not None, discards)
    if resume:
        alive = [m for m in members if m.is_open and place[m.key] >= place[resume.key]]
    else:
        alive = [m for m in members if m.is_open and not ended and not discarded]
    live = alive[-1] if alive else None
    standing = live or ended or discarded or last.get("SUPERSEDED") or members[-1]  # the last of rejected ones
    below = tuple(m for m in members if m.is_open and (live is None or place[m.key] < place[live.key]))
    if live:
        standing = _counted(live, alive, resume)
    return Transaction(_with_all(standing, parts, members), live is not None, resume is not None, below, members)


def _with_all(standing: Member, parts: Sequence[Part], members: Sequence[Member]) -> Member:
    """The standing row with all copies that any member knows of, and whether their original may still land."""
    known = {copy for member in members for copy in member.copies}
    lacks = not any(part.is_rooted for part in parts)
    own = next(part for part in parts if any(m.key == standing.key for m in part.members))
    escaped = lacks and any(m.escaped for m in own.members)
    marked = lacks and not any(m.escaped and not m.marked for m in own.members)
    queues = list(dict.fromkeys(copy.queue for member in members for copy in member.copies))
    copies = sorted(known, key=lambda copy: (queues.index(copy.queue), copy.offset))
    return standing._replace(copies=tuple(copies), marked=marked, escaped=escaped)


def _in_order(parts: Sequence[Part]) -> tuple[Member, ...]:
    """The members by offset in each queue, and by store time across queues."""
    if len(parts) == 1:
        return parts[0].members
    by_time = []
    for part in parts:
        stored = accumulate((-1 if m.stored_at is None else m.stored_at for m in part.members), max)
        by_time += [(at, member.key, member) for at, member in zip(stored, part.members, strict=True)]
    return tuple(member for _, _, member in sorted(by_time, key=lambda each: each[:2]))


def _resume(members: Sequence[Member], discarded: bool, discards: Sequence[int]) -> Member | None:
    """The broker's own resume: the last new copy with check times 0 above all that was known, of what was given up.

    A copy that was stored before an earlier resume is none, however late it lands.
    """
    known = [n for n, member in enumerate(members) if member.state != "NEW"]
    resumed = _latest(m.resumed_at for m in members if m.state in ("OPEN", "DISCARDED"))
    since = [at for at in discards if resumed is None or at > resumed]  # an earlier resume has undone the others
    for n, member in reversed(list(enumerate(members))):
        is_new = member.state == "NEW" and member.says_resumed and _is_above(n, member, members, known)
        given_up = discarded or any(member.stored_since(at) for at in since)
        if is_new and given_up and (resumed is None or member.stored_since(resumed + 1)):
            return member
    return None


def _is_above(n: int, member: Member, members: Sequence[Member], known: Sequence[int]) -> bool:
    offsets = [offset for k in known for offset in members[k].offsets_in(member.queue)]
    return n > max(known, default=-1) and member.offset > max(offsets, default=-1)


def _counted(live: Member, alive: Sequence[Member], resume: Member | None) -> Member:
    """The live copy with the most check times and the last check of all copies that count.

    A copy that lands after a resume and was stored before it brings checks that no longer count.
    """
    resumed = _latest(m.resumed_at for m in alive)
    counting = [m for m in alive if m.state == "OPEN" or resume or resumed is None or m.stored_since(resumed + 1)]
    return live._replace(
        check_times=max(m.check_times for m in counting),
        last_checked_at=_latest(m.last_checked_at for m in counting),
        resumed_at=resume.stored_at if resume and resume.stored_at is not None else resumed,
    )


def _latest(instants: Iterable[int | None]) -> int | None:
    return max((at for at in instants if at is not None), default=None)
