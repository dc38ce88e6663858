"""The states in which a crash can leave a folder: all that is durable is there; of the rest, what a disk pleases."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from systems.lying_disk.recording import CONTENT, NAMES, Change, Kind, Recording

_PAGE = 4096


@dataclass(frozen=True)
class Cut:
    """A crash before the record `at`. `way` says which of the changes that are not durable survive."""

    at: int
    way: str
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.way}@{self.at}" + (f"#{self.seed}" if self.seed else "")


# In the order written; nothing else; names without content; sizes with zeros; each by chance; all but one.
WAYS = ("ordered", "nothing", "names", "sizes", "some", "but one")


class File:
    """A file's bytes, from a copy on disk if nothing has changed them."""

    def __init__(self, source: Path | None = None) -> None:
        self.source, self._content = source, bytearray()

    @property
    def content(self) -> bytearray:
        if self.source is not None:
            self._content, self.source = bytearray(self.source.read_bytes()), None
        return self._content

    def write(self, at: int, data: bytes) -> None:
        content = self.content
        content.extend(bytes(max(at + len(data) - len(content), 0)))
        content[at : at + len(data)] = data

    def resize(self, size: int) -> None:
        content = self.content
        del content[size:]
        content.extend(bytes(size - len(content)))


Survives = Callable[[int, Change], bytes | None]  # the bytes of a write that survive; b"" for any other change


class Tree:
    """Names and files as they are built up, change by change."""

    def __init__(self, recording: Recording) -> None:
        top, before = recording.folder, recording.before
        self._files: dict[int, File] = {}
        self.names: dict[str, File | None] = {}  # None: a folder
        for inode, path in recording.inodes.items():
            copied = before / os.path.relpath(path, top)
            self.names[path] = None if copied.is_dir() else File(copied)
            if not copied.is_dir():
                self._files[inode] = self.names[path]  # type: ignore[assignment]

    def apply(self, change: Change, surviving: bytes | None) -> None:
        """The change as it survived; None if it did not."""
        if change.kind is Kind.CREATED:
            self._files[change.inode] = File()
        if surviving is None:
            return
        file = self._files.get(change.inode)
        if change.kind is Kind.WRITTEN and file:
            file.write(change.at, surviving)
        elif change.kind is Kind.RESIZED and file:
            file.resize(change.at)
        elif change.kind in NAMES:
            self._rename(change, file)

    def _rename(self, change: Change, file: File | None) -> None:
        names = self.names
        if change.kind is Kind.MADE:
            names.setdefault(change.path, None)
        elif change.kind is Kind.UNLINKED and names.get(change.path, file) is file:
            names.pop(change.path, None)
        elif change.kind is Kind.CREATED:
            names[change.path] = file
        elif change.kind is Kind.LINKED:
            names[change.to] = file
        elif change.kind is Kind.RENAMED and file:
            names[change.to] = file
            if names.get(change.path) is file:
                del names[change.path]
        elif change.kind is Kind.RENAMED:
            self._move_folder(change.path, change.to)

    def _move_folder(self, old: str, new: str) -> None:
        for name in [each for each in self.names if each == old or each.startswith(f"{old}/")]:
            self.names[new + name[len(old) :]] = self.names.pop(name)

    def reachable(self, top: str) -> Iterator[tuple[str, File | None]]:
        """Paths below the folder, parents first; a file whose folder is not there cannot be found."""
        there = {top}
        for path in sorted(self.names):
            if os.path.dirname(path) in there:
                if self.names[path] is None:
                    there.add(path)
                yield os.path.relpath(path, top), self.names[path]


def state(recording: Recording, cut: Cut) -> Tree:
    tree, survives = Tree(recording), _survives(recording, cut)
    for number, change in enumerate(recording.changes[: cut.at]):
        if change.kind in CONTENT or change.kind in NAMES:
            tree.apply(change, change.data if change.durable < cut.at else survives(number, change))
    return tree


def _survives(recording: Recording, cut: Cut) -> Survives:
    chance = Random(f"{cut.at} {cut.seed}")
    if cut.way == "ordered":
        return lambda _, change: change.data
    if cut.way == "nothing":
        return lambda _, change: None
    if cut.way == "names":
        return lambda _, change: change.data if change.kind in NAMES else None
    if cut.way == "sizes":
        return lambda _, change: bytes(len(change.data))
    if cut.way == "some":
        share = chance.choice([0.2, 0.5, 0.8])
        return lambda _, change: _torn(change, chance) if chance.random() < share else None
    loose = [change for change in recording.changes[: cut.at] if change.durable >= cut.at]
    loose = [change for change in loose if change.kind in CONTENT or change.kind in NAMES]
    lost = chance.choice(loose) if loose else None
    return lambda _, change: None if lost is not None and _goes_with(change, lost) else change.data


def _goes_with(change: Change, lost: Change) -> bool:
    """All of a file's bytes are lost together, else a name."""
    if lost.kind in CONTENT:
        return change.kind in CONTENT and change.inode == lost.inode
    return change is lost


def _torn(change: Change, chance: Random) -> bytes:
    """One write in four reaches the disk in part."""
    if change.kind is Kind.WRITTEN and chance.random() < 0.25:
        return change.data[: chance.randrange(len(change.data)) // _PAGE * _PAGE or len(change.data) // 2]
    return change.data


def materialize(recording: Recording, cut: Cut, folder: Path) -> str:
    """Writes the state to a folder; returns a digest of it."""
    digest = hashlib.sha256()
    folder.mkdir(parents=True)
    for name, file in state(recording, cut).reachable(recording.folder):
        path = folder / name
        digest.update(f"{name}\0".encode())
        if file is None:
            path.mkdir()
        elif file.source is not None:
            shutil.copyfile(file.source, path)
        else:
            path.write_bytes(file.content)
            digest.update(file.content)
    return digest.hexdigest()


def cuts(recording: Recording, number: int, chance: Random) -> list[Cut]:
    """Cuts in each way, most of them where it matters: before and after each sync, link, rename and mark."""
    marked = (Kind.SYNCED, Kind.FOLDER_SYNCED, Kind.ALL_SYNCED, Kind.LINKED, Kind.RENAMED, Kind.MARKED)
    sharp = {n + d for n, each in enumerate(recording.changes) if each.kind in marked for d in (0, 1)}
    moments = sorted(sharp | {len(recording.changes)})
    found = []
    for n in range(number):
        at = chance.choice(moments) if n % 4 else chance.randrange(len(recording.changes) + 1)
        found.append(Cut(at, WAYS[n % len(WAYS)], n))
    return found
