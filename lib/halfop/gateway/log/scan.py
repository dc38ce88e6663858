"""A walk over the log from its first file to its end: what each stretch holds, and where the sound records end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from halfop.frame.errors import InputRefused
from halfop.rocketmq.names import WHOLE_CRC
from halfop.rocketmq.record import PROPERTY_CRC_TAIL, ChainStop, Records
from halfop.rocketmq.store.commitlog import StoreFile, closes, store_files, windows

# the bytes of a CRC property that are the same in every record: its name, and the marks before and after the digits
_MARKS = np.array([*range(9), PROPERTY_CRC_TAIL - 1])
_MARKED = np.frombuffer(WHOLE_CRC.encode() + b"\x01\x02", np.uint8)
_MOST_TORN = 128 << 20  # bytes that one flush may have had under way; a gateway appends nothing more before it is done


@dataclass(frozen=True)
class LogEnd:
    """The place after the last sound record, and why there is no other; `damaged`: something was written there."""

    at: int
    why: str
    damaged: bool


class Scan:
    """The log's stretches of sound records in their order; after the last one, `end` is set.

    Records from physical offset `checked` on must match their CRCs. Before that the log is known to be sound: anything
    else there is damage that no crash makes, and is refused.
    """

    def __init__(self, folder: Path, checked: int) -> None:
        self._files, self._checked = store_files(folder), checked
        self._folder = folder
        self.end = LogEnd(self._files[0].first if self._files else 0, "the log is empty", False)

    @property
    def first(self) -> int:
        """The log's first physical offset."""
        return self._files[0].first if self._files else 0

    def stretches(self) -> Iterator[Records]:
        for file in self._files:
            self.end = LogEnd(file.first, "the file ends", False)
            for base, found in windows(file, file.first, file.end):
                records, bad = self._sound(found.records)
                if len(records):
                    yield records
                if bad is not None:
                    self.end = LogEnd(*bad, damaged=True)
                    self._refuse_before_checked()
                    return
                self.end = LogEnd(base + found.end, "the file ends", False)
                if found.stop and not closes(found.stop, self.end.at, file):
                    self._stopped(file, found.stop)
                    return
        self._refuse_before_checked()

    def _stopped(self, file: StoreFile, stop: ChainStop) -> None:
        at = self.end.at
        later = any(not each.zeros(each.first) for each in self._files if each.first > at)
        self.end = LogEnd(at, stop.text, later or not file.zeros(at, _MOST_TORN))
        self._refuse_before_checked()

    def _refuse_before_checked(self) -> None:
        if self.end.at < self._checked:
            problem = (
                f"the log ends at physical offset {self.end.at} ({self.end.why}), but was sound up to {self._checked}"
            )
            raise InputRefused(self._folder, None, problem, "the disk or a person has changed it: restore the store")

    def _sound(self, records: Records) -> tuple[Records, tuple[int, str] | None]:
        """The records before the first that does not match its CRCs, and what is wrong with that one."""
        lacks = ~records.has_property_crc()
        self._refuse_foreign(records.select(lacks))
        fresh = records.longs("physical_offset") >= self._checked
        if not fresh.any():
            return records, None
        cut = records.buffer[records.ends - 1] != _MARKED[-1]  # the last byte, which no CRC covers
        wrong = fresh & (lacks | cut | records.wrong_body_crc() | records.wrong_property_crc())
        if not wrong.any():
            return records, None
        first = int(np.argmax(wrong))
        return records.select(slice(first)), (int(records.longs("physical_offset")[first]), "a record fails its CRC")

    def _refuse_foreign(self, lacking: Records) -> None:
        """Raises InputRefused if a whole record has nothing like our CRC at its end: no crash leaves that."""
        for end, at in zip(lacking.ends.tolist(), lacking.longs("physical_offset").tolist(), strict=True):
            tail = lacking.buffer[end - PROPERTY_CRC_TAIL : end]
            like = int((tail[_MARKS] == _MARKED).sum())
            if tail[-1] and like < len(_MARKED) - 2:
                problem = f"the record at physical offset {at} has no CRC of its own: another program has written it"
                raise InputRefused(self._folder, None, problem, "a broker has run over this store; take a new folder")
