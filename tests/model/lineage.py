"""Which half messages are one transaction, and what its put-back copies make of it: the part of the model for a broker
whose own check service runs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model.reference import Half

Key = tuple[str, int, int]
Queue = tuple[str, int]
BEGINNING = -(2**80)  # before every timestamp


@dataclass(frozen=True)
class Copy:
    """A half message with the check times and the last check that it landed with. A broker's resume writes check times
    0, its checks never do.
    """

    half: Half
    check_times: int
    last_checked: int | None
    says_zero: bool


@dataclass(eq=False)
class Transaction:
    """What is known of one transaction. Its status is OPEN, or how it was decided; `live` is the key of the copy whose
    row carries that.
    """

    copies: dict[Key, Copy] = field(default_factory=dict)
    live: Key = ("", -1, -1)
    status: str = "OPEN"
    check_times: int = 0
    last_checked: int | None = None
    undelivered: list[object] = field(default_factory=list)  # its questions that count when they are delivered
    revived: int = BEGINNING  # when it was resumed, by us or by the broker
    reopening: bool = False  # by a copy that has just landed: of several the last one counts
    proved: bool = False  # a final message ended it: a commit that lands later is its record
    told: set[Key] = field(default_factory=set)  # the copies that are decided for good and get no further row

    @property
    def half(self) -> Half:
        return self.copies[self.live].half

    @property
    def starter(self) -> Half:
        return self.in_order[0]

    @property
    def in_order(self) -> list[Half]:
        return in_order(copy.half for copy in self.copies.values())

    def _is_above(self, half: Half, key: Key) -> bool:
        keys = [each.key for each in self.in_order]
        return keys.index(half.key) > keys.index(key)

    def start(self, copy: Copy) -> None:
        self.copies = {copy.half.key: copy}
        self.live = copy.half.key
        self.check_times, self.last_checked = copy.check_times, copy.last_checked

    def join(self, copy: Copy) -> None:
        """One more copy. The highest becomes the live one, unless the transaction has ended."""
        key = copy.half.key
        self.copies[key] = copy
        is_newest = self.in_order[-1] == copy.half
        given_up = self.status == "DISCARD" or self.reopening
        if given_up and is_newest and copy.says_zero and copy.half.store > self.revived:
            self._lead(key)
            self.reopen(copy.half.store)
            self.reopening = True
        elif self.status in ("OPEN", "REJECT"):
            self._count(copy)
            if self._is_above(copy.half, self.live):
                self._lead(key)

    def _lead(self, key: Key) -> None:
        if self.status != "OPEN":  # what an earlier run decided stands
            self.told.add(self.live)
        self.live, self.status = key, "OPEN"

    def _count(self, copy: Copy) -> None:
        """Maxima over the copies; a copy stored before a resume shows questions that no longer count."""
        if copy.half.store > self.revived:
            self.check_times = max(self.check_times, copy.check_times)
            self.last_checked = max(
                (at for at in (self.last_checked, copy.last_checked) if at is not None), default=None
            )

    def leave(self, key: Key) -> None:
        """A row that a corrected one replaces."""
        del self.copies[key]
        if self.copies and key == self.live:
            self.live, self.status = self.in_order[-1].key, "OPEN"

    def reopen(self, at: int) -> None:
        self.status, self.check_times, self.last_checked, self.revived = "OPEN", 0, None, at
        self.undelivered = []

    def reopen_by(self, resume: Half) -> None:
        """The broker resumed it when it wrote this copy; the copies above count as ever."""
        self.reopen(resume.store)
        for copy in self.copies.values():
            if self._is_above(copy.half, resume.key):
                self._count(copy)

    def newest_resume(self) -> Half | None:
        """The newest copy that a broker's resume may have written, if no later resume has made it old."""
        zeros = [copy.half for copy in self.copies.values() if copy.says_zero and copy.half.store > self.revived]
        return in_order(zeros)[-1] if zeros else None


def in_order(halves: Iterable[Half]) -> list[Half]:
    """By offset in each queue, and by store time across brokers."""
    newest: dict[Queue, int] = {}
    found = []
    for half in sorted(halves, key=lambda half: half.key):
        queue = (half.broker, half.queue)
        newest[queue] = max(half.store, newest.get(queue, half.store))
        found.append((newest[queue], half.key, half))
    return [half for _, _, half in sorted(found, key=lambda each: each[:2])]


def is_marked(half: Half) -> bool:
    """Written by a broker's check service, as far as one can see."""
    return bool(half.check_times or half.prepared_offset)


def is_root(half: Half) -> bool:
    """Nothing says that it is a copy, of this broker or of another one."""
    return not is_marked(half) and half.wait != "false"


def name_of(row: Half) -> Hashable:
    """What copies of one message agree in; a message without UNIQ_KEY agrees with none."""
    return (row.group or None, row.uniq_key, row.born) if row.uniq_key else row.key


def families(halves: Iterable[Half], known: Mapping[Key, Transaction]) -> list[list[Half]]:
    """Half messages that share a name as transactions: each of them in its order.

    What earlier runs have joined (`known`) stays together, and so do parts of several brokers.
    """
    rows: dict[Queue, list[Half]] = {}
    for half in sorted(halves, key=lambda half: half.key):
        rows.setdefault((half.broker, half.queue), []).append(half)
    parts = [part for of in rows.values() for part in _parts(of, known)]
    found: list[list[Half]] = []
    for part in sorted(parts, key=lambda part: (not _is_rooted(part), _begun(part))):
        homes = [family for family in found if _homes(family, known) & _homes(part, known)]
        family = homes[0] if homes else None if _is_rooted(part) else _nearest(part, parts, found, known)
        for other in homes[1:]:
            homes[0].extend(other)
            found.remove(other)
        if family is None:
            found.append(list(part))
        else:
            family.extend(part)
    return [in_order(family) for family in found]


def _parts(halves: Iterable[Half], known: Mapping[Key, Transaction]) -> list[list[Half]]:
    """Half messages of one queue: a marked one joins the nearest starter below it."""
    found: list[list[Half]] = []
    for half in halves:
        home = known.get(half.key)
        family = next((f for f in found if home and any(known.get(member.key) is home for member in f)), None)
        if family is None and is_marked(half) and found:
            family = found[-1]
        if family is None:
            found.append([half])
        else:
            family.append(half)
    return found


def _homes(halves: Iterable[Half], known: Mapping[Key, Transaction]) -> set[Transaction]:
    return {known[half.key] for half in halves if half.key in known}


def _is_rooted(part: Iterable[Half]) -> bool:
    return any(map(is_root, part))


def _has_escaped(part: list[Half], parts: list[list[Half]], known: Mapping[Key, Transaction]) -> bool:
    """A mark alone shows no escape; what earlier runs have joined has escaped together."""
    together = [each for each in parts if each is part or _homes(each, known) & _homes(part, known)]
    return any(half.wait == "false" for each in together for half in each)


def _begun(part: Iterable[Half]) -> tuple[int, Key]:
    return min(half.store for half in part), min(half.key for half in part)


def _nearest(
    part: list[Half], parts: list[list[Half]], found: list[list[Half]], known: Mapping[Key, Transaction]
) -> list[Half] | None:
    """The family that it escaped from: that of the part of another broker that began last before it, or else of the
    first original after it.
    """
    some = [each for each in parts if any(_has_escaped(one, parts, known) for one in (part, each))]
    others = [each for each in some if each[0].broker != part[0].broker and any(each[0] in f for f in found)]
    before = [each for each in others if _begun(each) <= _begun(part)]
    after = [each for each in others if _is_rooted(each)]
    of = max(before, key=_begun) if before else min(after, key=_begun) if after else None
    return None if of is None else next(family for family in found if of[0] in family)
