"""A recording of what processes did to a folder: each change with the moment from which a crash cannot undo it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from struct import Struct

NEVER = 1 << 60
_HEAD = Struct("=IIIIqq")


class Kind(IntEnum):
    CREATED = 1
    WRITTEN = 2
    RESIZED = 3
    SYNCED = 4
    FOLDER_SYNCED = 5
    ALL_SYNCED = 6
    RENAMED = 7
    LINKED = 8
    UNLINKED = 9
    MADE = 10
    MARKED = 11
    MAPPED = 12


CONTENT = (Kind.WRITTEN, Kind.RESIZED)
NAMES = (Kind.CREATED, Kind.RENAMED, Kind.LINKED, Kind.UNLINKED, Kind.MADE)


@dataclass
class Change:
    """A change. `durable` is the number of the record from which on it is there whatever happens."""

    kind: Kind
    inode: int
    at: int
    path: str
    to: str
    data: bytes
    durable: int = NEVER

    @property
    def folders(self) -> set[str]:
        """The folders whose sync makes a change of names durable."""
        named = self.to if self.to else self.path
        return {os.path.dirname(named)}


@dataclass(frozen=True)
class Recording:
    """What was done to `folder`, of which `before` is a copy from before; `inodes` are those of its files."""

    folder: str
    before: Path
    inodes: dict[int, str]
    changes: Sequence[Change]

    def marks(self) -> list[tuple[int, str]]:
        return [(n, each.path) for n, each in enumerate(self.changes) if each.kind is Kind.MARKED]


def inodes_of(folder: Path) -> dict[int, str]:
    found = [Path(top) / name for top, folders, files in os.walk(folder) for name in [*folders, *files]]
    return {path.stat().st_ino: str(path) for path in [folder, *found]}


def write_about(about: Path, folder: Path, before: Path) -> None:
    about.write_text(json.dumps({"folder": str(folder), "before": str(before), "inodes": inodes_of(folder)}))


def read_recording(about: Path, log: Path) -> Recording:
    given = json.loads(about.read_text())
    changes = list(_read(log.read_bytes()))
    mapped = {each.path for each in changes if each.kind is Kind.MAPPED}
    assert not mapped, f"written by mmap, which a recording does not see: {mapped}"
    _find_durable(changes)
    inodes = {int(inode): path for inode, path in given["inodes"].items()}
    return Recording(given["folder"], Path(given["before"]), inodes, changes)


def _read(log: bytes) -> Iterator[Change]:
    at = 0
    while at < len(log):
        kind, *sizes, inode, place = _HEAD.unpack_from(log, at)
        at += _HEAD.size
        parts = []
        for size in sizes:
            parts.append(log[at : at + size])
            at += size
        yield Change(Kind(kind), inode, place, os.fsdecode(parts[0]), os.fsdecode(parts[1]), parts[2])


def _find_durable(changes: Sequence[Change]) -> None:
    """From the end backwards: the next sync of the same file, or of the same folder."""
    everything, files, folders = NEVER, dict[int, int](), dict[str, int]()
    for number in reversed(range(len(changes))):
        change = changes[number]
        if change.kind is Kind.ALL_SYNCED:
            everything = number
        elif change.kind is Kind.SYNCED:
            files[change.inode] = number
        elif change.kind is Kind.FOLDER_SYNCED:
            folders[change.path] = number
        elif change.kind in CONTENT:
            change.durable = min(everything, files.get(change.inode, NEVER))
        elif change.kind in NAMES:
            change.durable = min([everything, *_known(folders, change.folders)])
        if change.kind is Kind.CREATED:
            files.pop(change.inode, None)  # an older file had the same number


def _known(folders: dict[str, int], wanted: Iterable[str]) -> list[int]:
    return [folders[each] for each in wanted if each in folders]
