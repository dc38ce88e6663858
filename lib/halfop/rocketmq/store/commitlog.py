"""The commit log's files, read by physical offset, and the corrupt places in them.

A broker with enableDLegerCommitLog writes DLedger's log instead, which is refused. Its files lie in dledger-<id>/data
and hold entries: magic, size, index, term, the entry's own place, and, after 52 bytes, a record of the broker. A broker
that was switched to DLedger keeps its old commit log beside it.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from halfop.frame.errors import InputRefused
from halfop.rocketmq.buffers import Bytes, as_bytes
from halfop.rocketmq.record import Chain, ChainStop, chain

WINDOW = 8 << 20  # bytes looked at in one go; more only for a record that is longer
QUIET = 8 << 20  # so many zeros are the end of what has been written
_NAME, _LAST = re.compile(r"[0-9]{20}"), 2**63 - 1
DLEDGER = "dledger-*"
_DLEDGER_MAGICS = (1, 2, 3)  # no record of a commit log is as short
_DLEDGER_HEADER = struct.Struct(">iiqqq")


@dataclass(frozen=True)
class Fault:
    """A corrupt place. `file` and `offset` (in that file) are in the log or, if that disagrees, in a consume queue.

    Skipping it loses the log's bytes from `physical` to `lost_until`.
    """

    code: str
    file: str
    offset: int
    physical: int
    lost_until: int
    text: str

    def __str__(self) -> str:
        return f"{self.file} at {self.offset}: {self.text} (physical offset {self.physical})"


@dataclass(frozen=True)
class StoreFile:
    """A file of the log or of a queue. Positions are counted from the log's or queue's beginning, as its name does."""

    path: str
    first: int
    size: int

    @property
    def end(self) -> int:
        return self.first + self.size

    def read(self, at: int, length: int) -> Bytes:
        """Up to `length` bytes from a position on; fewer if the file ends."""
        wanted = max(min(length, self.end - at), 0)
        try:
            handle = os.open(self.path, os.O_RDONLY)
            try:
                found = _pread(handle, wanted, at - self.first)
            finally:
                os.close(handle)
        except OSError as error:
            raise InputRefused(self.path, None, f"cannot be read: {error.strerror}") from error
        if len(found) < wanted:
            raise InputRefused(self.path, at - self.first + len(found), "has become shorter while it was read")
        return as_bytes(found)

    def zeros(self, at: int, length: int = QUIET) -> bool:
        """Returns whether there is nothing but zeros, or the file's end."""
        return not self.read(at, length).any()


def _pread(handle: int, length: int, position: int) -> bytes:
    parts = []
    while length > 0 and (part := os.pread(handle, length, position)):
        parts.append(part)
        length, position = length - len(part), position + len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def log_files(root: str | Path) -> tuple[StoreFile, ...]:
    """The commit log's files in their order."""
    folder = Path(root) / "commitlog"
    _refuse_dledger(root)
    if not folder.is_dir():
        raise InputRefused(folder, None, "no such folder", "expected a broker's store, with commitlog in it")
    files = store_files(folder)
    if not files:
        raise InputRefused(folder, None, "the commit log has no files")
    if _is_entry(bytes(files[0].read(files[0].first, 64)), files[0].first):
        raise dledger_refusal(files[0].path)
    return files


def store_files(folder: str | Path) -> tuple[StoreFile, ...]:
    """A folder's files, each named by where it begins, without a gap."""
    try:
        with os.scandir(folder) as entries:
            here = [each for each in entries if _NAME.fullmatch(each.name) or not each.is_dir()]  # lost+found is one
            files = sorted(map(_store_file, here), key=lambda file: file.first)
    except OSError as error:
        raise InputRefused(folder, None, f"cannot be read: {error.strerror}") from error
    for one, following in pairwise(files):
        if one.end != following.first:
            problem = f"ends at {one.end}, the next file {Path(following.path).name} begins at {following.first}"
            raise InputRefused(one.path, None, problem, "a file is missing or was cut; copy the store again")
    return tuple(files)


def _store_file(entry: os.DirEntry[str]) -> StoreFile:
    if not _NAME.fullmatch(entry.name) or int(entry.name) > _LAST or not entry.is_file():
        raise InputRefused(entry.path, None, "no file of a store: its name is not its first offset in 20 digits")
    return StoreFile(entry.path, int(entry.name), entry.stat().st_size)


def windows(file: StoreFile, at: int, end: int) -> Iterator[tuple[int, Chain]]:
    """The chain of records from `at` to `end` in pieces, each with its physical offset; only the last has a stop."""
    length = WINDOW
    while at < end:
        found = chain(file.read(at, min(length, end - at)), at)
        if found.stop and found.stop.code == "cut" and at + length < end:
            if not found.end:
                length = max(found.stop.size, WINDOW)
                continue
            found = replace(found, stop=None)
        yield at, found
        if found.stop:
            return
        at, length = at + found.end, WINDOW


def closes(stop: ChainStop, at: int, file: StoreFile) -> bool:
    """Returns whether the stop at physical offset `at` is the blank that fills the file's end."""
    return stop.code == "blank" and at + stop.size == file.end


# ---- DLedger ----


def dledger_refusal(path: str | Path) -> InputRefused:
    """Returns the error of what holds DLedger's log."""
    return InputRefused(
        path,
        None,
        "DLedger's log (enableDLegerCommitLog), which frames each record in an entry of its own: land store reads "
        "plain commit logs only",
        "land from the running broker: land broker --namesrv HOST:PORT",
    )


def _refuse_dledger(root: str | Path) -> None:
    """Raises InputRefused if there is a folder of DLedger's, or if this is one."""
    if Path(root).match(DLEDGER) and (Path(root) / "data").is_dir():
        raise dledger_refusal(root)
    for folder in sorted(Path(root).glob(DLEDGER)):
        if (folder / "data").is_dir():
            raise dledger_refusal(folder)


def _is_entry(start: bytes, at: int) -> bool:
    """Returns whether bytes from a position of the log on begin with one of its entries, which holds its own place."""
    if len(start) < _DLEDGER_HEADER.size:
        return False
    magic, *_, place = _DLEDGER_HEADER.unpack_from(start)
    return magic in _DLEDGER_MAGICS and place == at
