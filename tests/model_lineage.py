"""Which half messages are one transaction, and what its put-back copies make of it: the part of the model for a broker
whose own check service runs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model import Half

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
    """What is known of one transaction. Its status is OPEN, or how it was decided; `live` is the offset of the copy
    whose row carries that.
    """

    copies: dict[int, Copy] = field(default_factory=dict)
    live: int = -1
    status: str = "OPEN"
    check_times: int = 0
    last_checked: int | None = None
    undelivered: list[object] = field(default_factory=list)  # its questions that count when they are delivered
    revived: int = BEGINNING  # when it was resumed, by us or by the broker
    told: set[int] = field(default_factory=set)  # the copies that are decided for good and get no further row

    @property
    def half(self) -> Half:
        return self.copies[self.live].half

    @property
    def starter(self) -> Half:
        return self.copies[min(self.copies)].half

    def start(self, copy: Copy) -> None:
        self.copies = {copy.half.offset: copy}
        self.live = copy.half.offset
        self.check_times, self.last_checked = copy.check_times, copy.last_checked

    def join(self, copy: Copy) -> None:
        """One more copy. The highest becomes the live one, unless the transaction has ended."""
        offset, is_newest = copy.half.offset, copy.half.offset > max(self.copies)
        self.copies[offset] = copy
        if self.status == "DISCARD" and is_newest and copy.says_zero and copy.half.store > self.revived:
            self._lead(offset)
            self.reopen(copy.half.store)
        elif self.status in ("OPEN", "REJECT"):
            self._count(copy)
            if offset > self.live:
                self._lead(offset)

    def _lead(self, offset: int) -> None:
        if self.status != "OPEN":  # what an earlier run decided stands
            self.told.add(self.live)
        self.live, self.status = offset, "OPEN"

    def _count(self, copy: Copy) -> None:
        """Maxima over the copies; a copy stored before a resume tells of questions that count no more."""
        if copy.half.store > self.revived:
            self.check_times = max(self.check_times, copy.check_times)
            self.last_checked = max(
                (at for at in (self.last_checked, copy.last_checked) if at is not None), default=None
            )

    def leave(self, offset: int) -> None:
        """A row that a corrected one replaces."""
        del self.copies[offset]
        if self.copies and offset == self.live:
            self.live, self.status = max(self.copies), "OPEN"

    def reopen(self, at: int) -> None:
        self.status, self.check_times, self.last_checked, self.revived = "OPEN", 0, None, at
        self.undelivered = []

    def reopen_by(self, resume: Half) -> None:
        """The broker resumed it when it wrote this copy; the copies above count as ever."""
        self.reopen(resume.store)
        for offset, copy in self.copies.items():
            if offset > resume.offset:
                self._count(copy)

    def newest_resume(self) -> Half | None:
        """The newest copy that a broker's resume may have written, if no later resume has made it old."""
        zeros = [copy.half for copy in self.copies.values() if copy.says_zero and copy.half.store > self.revived]
        return max(zeros, key=lambda half: half.offset, default=None)


def is_marked(half: Half) -> bool:
    """Written by a broker's check service, as far as one can see."""
    return bool(half.check_times or half.prepared_offset)


def name_of(row: Half) -> Hashable:
    """What copies of one message agree in; a message without UNIQ_KEY agrees with none."""
    return (row.broker, row.queue, row.group or None, row.uniq_key, row.born) if row.uniq_key else row.key


def families(halves: Iterable[Half], known: Mapping[tuple[str, int, int], Transaction]) -> list[list[Half]]:
    """Half messages that share a name as transactions: each of them lowest offset first.

    A marked one joins the nearest starter below it. What earlier runs have joined (`known`) stays together.
    """
    found: list[list[Half]] = []
    for half in sorted(halves, key=lambda half: half.offset):
        home = known.get(half.key)
        family = next((f for f in found if home and any(known.get(member.key) is home for member in f)), None)
        if family is None and is_marked(half) and found:
            family = found[-1]
        if family is None:
            found.append([half])
        else:
            family.append(half)
    return found
