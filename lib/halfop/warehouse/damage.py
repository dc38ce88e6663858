"""Finds files that a table's log names and that are missing, cut or of another size, as a disk that lost writes leaves.

Only files are looked at, with no help of Spark or Delta: on a damaged table these may fail, or believe what is left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Protocol
from urllib.parse import unquote, urlparse

from halfop.frame.errors import HalfopError
from halfop.warehouse.checkpoint_file import ADD, SIDECAR, named
from halfop.warehouse.commit_file import NOTHING, Bad, Commit, Total, commit_of, total_of

_LOG = "_delta_log"
_COMMIT = re.compile(r"\A(\d{20})\.json\Z")
# N.checkpoint.parquet, one of several parts, or the top file of one in several files.
_CHECKPOINT = re.compile(
    r"\A(\d{20})\.checkpoint(?:(?:\.(\d{10})\.(\d{10}))?\.parquet|\.[0-9a-f-]{36}\.(?:parquet|json))\Z"
)
_CHECKSUM = re.compile(r"\A(\d{20})\.crc\Z")  # of a version; written after its commit
_NONE = -1


class FilesOfTables(Protocol):
    """A file system, as far as this looks at it. Paths are as Delta's log has them."""

    def read(self, path: str) -> bytes:
        """A file's bytes; FileNotFoundError if it is missing."""

    def size(self, path: str) -> int | None:
        """A file's size; None if it is missing."""

    def sizes(self, folder: str) -> Mapping[str, int]:
        """The names and sizes of a folder's files; none if it is missing."""


@dataclass(frozen=True)
class Damage:
    """A file of a table that is not as the table's log needs it."""

    table: str
    version: int | None
    """The version that the file belongs to: from it on the table is not whole."""
    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path} {self.what}"


class DamagedTable(HalfopError):
    """A table's log or files are not whole; whoever went on would take the rows that are left for all."""

    exit_status = 3

    def __init__(self, damage: Damage) -> None:
        self.damage = damage
        super().__init__(
            f"{damage}. The table is damaged: a disk has lost what was written, or somebody changed its files. "
            "Nothing goes on with it. Run the job `examine`: it lists what is damaged, and repairs what it can"
        )


@dataclass(frozen=True)
class TableOnDisk:
    """The files of one table, whose folder this is."""

    disk: FilesOfTables
    path: str
    _totals: dict[int, Total | None] = field(default_factory=lambda: {_NONE: NOTHING}, compare=False, repr=False)

    # ---- the commits of the log ----

    def of_commits(self, after: int, upto: int) -> Iterator[Damage]:
        """Damage in the commits after one version, up to another. A clean-up may have removed some."""
        for version in range(after + 1, upto + 1):
            yield from self._commit_damage(version)[1]

    def of_newest(self, after: int) -> tuple[int, Iterator[Damage]]:
        """The log's last version, and the damage in the commits after a version and in the data files that they add."""
        live: dict[str, tuple[int, int]] = {}
        found: list[Damage] = []
        version = after
        while self.disk.size(self.commit_path(version + 1)) is not None:
            version += 1
            commit, damage = self._commit_damage(version)
            found += damage
            _apply(live, commit, version)
        return version, chain(found, self.of_files(live))

    def last_checkpoint(self) -> int:
        """The version of the newest checkpoint; -1 if the log has none."""
        try:
            return int(json.loads(self.disk.read(f"{self.path}/{_LOG}/_last_checkpoint"))["version"])
        except (FileNotFoundError, ValueError, LookupError, TypeError):  # Delta, too, looks for one then
            return max(self.checkpoints, default=_NONE)

    def _commit_damage(self, version: int) -> tuple[Commit, list[Damage]]:
        path = self.commit_path(version)
        try:
            commit = commit_of(version, self.disk.read(path))
            commit.refuse_cut(self._total(version - 1), self._total(version))
            return commit, []
        except FileNotFoundError:
            return Commit(), []
        except Bad as bad:
            return Commit(), [Damage(self.path, version, path, str(bad))]

    def _total(self, version: int) -> Total | None:
        """The files of a version by its checksum, if there is one; Delta writes it after the commit."""
        if version not in self._totals:
            path = f"{self.path}/{_LOG}/{version:020}.crc"
            self._totals[version] = None if self.disk.size(path) is None else total_of(self.disk.read(path))
        return self._totals[version]

    def commit_path(self, version: int) -> str:
        """The path of a commit."""
        return f"{self.path}/{_LOG}/{version:020}.json"

    def written_by(self, version: int) -> list[str]:
        """The paths of the data files that a commit adds, of the commit, and of a checkpoint of its version."""
        added = [self.whole(name) for name in self._commit_damage(version)[0].added]
        checkpoint = f"{self.path}/{_LOG}/{version:020}.checkpoint.parquet"
        there = [checkpoint] if self.disk.size(checkpoint) is not None else []
        return [*added, self.commit_path(version), *there]

    def of_files(self, live: Mapping[str, tuple[int, int]]) -> Iterator[Damage]:
        """Damage in data files, by the names that the log has, with the sizes there and the versions that add them."""
        for name, (size, version) in live.items():
            path = self.whole(name)
            if _place(path) != _place(self.path):  # of a shallow clone
                continue
            what = _wrong_size(self.disk.size(path), size)
            if what is not None:
                yield Damage(self.path, version, path, what)

    def whole(self, name: str) -> str:
        """The path of a data file that the log names."""
        return unquote(name) if re.match(r"[a-z0-9+.-]+:/|/", name) else f"{self.path}/{unquote(name)}"

    # ---- all of it ----

    @cached_property
    def _listed(self) -> Mapping[str, int]:
        return self.disk.sizes(f"{self.path}/{_LOG}")

    @cached_property
    def commits(self) -> list[int]:
        """The versions whose commits are in the log, lowest first."""
        return sorted(int(found[1]) for name in self._listed if (found := _COMMIT.match(name)))

    @cached_property
    def checkpoints(self) -> dict[int, list[str]]:
        """The files of the checkpoints, by version; without those of which a part is missing."""
        found: dict[int, list[str]] = {}
        parts: dict[int, int] = {}
        for name in sorted(self._listed):
            if match := _CHECKPOINT.match(name):
                found.setdefault(int(match[1]), []).append(f"{self.path}/{_LOG}/{name}")
                parts[int(match[1])] = int(match[3] or 1)
        return {version: files for version, files in found.items() if len(files) >= parts[version]}

    def of_log(self) -> Iterator[Damage]:
        """Damage in every commit and checkpoint that the log has."""
        for version, files in self.checkpoints.items():
            for file in files:
                yield from self._checkpoint_damage(version, file)
        yield from self._gaps()
        for version in self.commits:
            yield from self._commit_damage(version)[1]

    def of_data(self) -> Iterator[Damage]:
        """Damage in every data file of the newest version, as far as the log can be read."""
        yield from self.of_files(self.live())

    def live(self) -> dict[str, tuple[int, int]]:
        """The data files of the newest version as the log names them, with their sizes and versions."""
        base = max(self._whole_checkpoints(), default=_NONE)
        live = {name: (size, base) for name, size in self._in_checkpoint(base)}
        for version in self.commits:
            if version > base:
                _apply(live, self._commit_damage(version)[0], version)
        return live

    def named(self) -> set[str]:
        """The data files that any version names, as far as the log can be read: also those that a later one removes."""
        commits = [self._commit_damage(version)[0] for version in self.commits]
        return {*self.live(), *(name for commit in commits for name in (*commit.added, *commit.removed))}

    def _whole_checkpoints(self) -> Iterator[int]:
        for version, files in self.checkpoints.items():
            if not any(damage for file in files for damage in self._checkpoint_damage(version, file)):
                yield version

    def _gaps(self) -> Iterator[Damage]:
        """Commits that are missing. A clean-up removes the oldest of them, those before a checkpoint."""
        checksums = [int(found[1]) for name in self._listed if (found := _CHECKSUM.match(name))]
        newest = max([*self.commits, *checksums], default=_NONE)
        first = min([*self.commits, newest + 1])
        oldest = min(first, max(self.checkpoints) + 1) if self.checkpoints else 0
        for version in sorted(set(range(oldest, newest + 1)).difference(self.commits)):
            yield Damage(self.path, version, self.commit_path(version), "is missing")

    def _checkpoint_damage(self, version: int, path: str) -> Iterator[Damage]:
        try:
            for name, size in self._named(path, SIDECAR).items():
                self._refuse_bad_sidecar(self._sidecar(name), size)
        except (Bad, FileNotFoundError) as bad:
            yield Damage(self.path, version, path, str(bad))

    def _refuse_bad_sidecar(self, path: str, size: int) -> None:
        try:
            if (what := _wrong_size(self.disk.size(path), size)) is not None:
                raise Bad(what)
            self._named(path, SIDECAR)
        except Bad as bad:
            raise Bad(f"needs {path}, which {bad}") from None

    def _in_checkpoint(self, version: int) -> Iterator[tuple[str, int]]:
        """The data files that a checkpoint names, with their sizes."""
        for path in self.checkpoints.get(version, ()):
            for file in (path, *map(self._sidecar, self._named(path, SIDECAR))):
                yield from self._named(file, ADD).items()

    def _sidecar(self, name: str) -> str:
        return f"{self.path}/{_LOG}/_sidecars/{unquote(name.rpartition('/')[2])}"

    def _named(self, path: str, of: tuple[str, str]) -> dict[str, int]:
        return named(path, self.disk.read(path), of)


def _place(path: str) -> tuple[str, str]:
    """The scheme and host of the file system that holds a path."""
    found = urlparse(path)
    return found.scheme or "file", found.netloc


def _apply(live: dict[str, tuple[int, int]], commit: Commit, version: int) -> None:
    """Puts a commit's files among those of a table: one that is removed and added has only other statistics."""
    for name in commit.removed:
        live.pop(name, None)
    live.update((name, (size, version)) for name, size in commit.added.items())


def _wrong_size(size: int | None, logged: int) -> str | None:
    if size is None:
        return "is missing"
    if size == logged:
        return None
    return "is empty" if size == 0 else f"has {size} bytes, and not {logged} as the log says"
