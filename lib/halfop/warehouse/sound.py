"""Which tables' logs this process has found whole: every commit is looked at once, before it is believed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from operator import itemgetter

from py4j.protocol import Py4JJavaError

from halfop.warehouse.damage import Damage, DamagedTable, FilesOfTables, TableOnDisk
from halfop.warehouse.disk import local_path
from halfop.warehouse.schema import table_names

_TOPICS = 200  # a cut harms what was written last, and some have thousands


@dataclass
class _Seen:
    """The commits after `low`, up to `high`, are whole; so are the data files of those up to `newest`."""

    low: int
    high: int
    newest: int


@dataclass(frozen=True)
class SoundTables:
    """The tables of a warehouse. Elsewhere than on a local disk, where each look is a request, only sizes count."""

    files: FilesOfTables
    is_local: bool
    _seen: dict[str, _Seen] = field(default_factory=dict)

    def refuse_damaged(self, path: str, checkpoint: int, version: int, empty: Sequence[int], newest: bool) -> None:
        """Raises DamagedTable if a commit that makes a version is damaged; of the newest one, also if a data file is.

        The log of the version begins with a checkpoint, or -1. These of its commits have no bytes.
        """
        if not self.is_local:
            _raise_first(self._on_disk(path).of_commits(min(empty) - 1, max(empty)) if empty else iter(()))
        elif not newest:
            self.refuse_damaged_commits(path, checkpoint, version)
        else:
            self._refuse_damaged_newest(path, checkpoint, version)

    def refuse_damaged_commits(self, path: str, after: int, upto: int) -> None:
        """Raises DamagedTable if a commit after one version, up to another, is damaged."""
        seen = self._seen.get(path)
        if not self.is_local or (seen is not None and seen.low <= after and upto <= seen.high):
            return
        _raise_first(self._on_disk(path).of_commits(after, upto))
        if seen is None:
            self._seen[path] = _Seen(after, upto, after)
        elif after <= seen.high and seen.low <= upto:
            seen.low, seen.high = min(after, seen.low), max(upto, seen.high)

    def refuse_damaged_tables(self, root: str) -> None:
        """Raises DamagedTable if the newest version of any table in this folder is damaged; on a local disk alone.

        Delta is not asked: it costs a millisecond a table. Of the topics' tables those written last are looked at.
        """
        for name in _tables(local_path(root)) if self.is_local else ():
            path = f"{root.rstrip('/')}/{name}"
            self._refuse_damaged_newest(path, self._on_disk(path).last_checkpoint(), None)

    def _refuse_damaged_newest(self, path: str, checkpoint: int, version: int | None) -> None:
        seen = self._seen.get(path)
        if seen is not None and seen.newest == version:
            return
        if seen is None or not checkpoint <= seen.newest <= (seen.newest if version is None else version):
            seen = _Seen(checkpoint, checkpoint, checkpoint)
        last, damage = self._on_disk(path).of_newest(seen.newest)
        _raise_first(damage)
        self._seen[path] = _Seen(min(seen.low, seen.newest), last, last)

    @contextmanager
    def or_damaged(self, path: str) -> Iterator[None]:
        """Makes an error of Java's the table's damage, if its log is damaged."""
        try:
            yield
        except Py4JJavaError as error:
            damage = next(self._on_disk(path).of_log(), None)
            if damage is None:
                raise
            raise DamagedTable(damage) from error

    def _on_disk(self, path: str) -> TableOnDisk:
        return TableOnDisk(self.files, path)


def _tables(root: str) -> list[str]:
    """The names of all tables that are no topic's, and of the topics' that were written last."""
    topics = sorted(_logs(root, "topics/"), key=itemgetter(1), reverse=True)
    return [name for name, _ in (*_logs(root, ""), *topics[:_TOPICS])]


def _logs(root: str, below: str) -> Iterator[tuple[str, int]]:
    """The names of the tables there, and when a file was last made in each one's log."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(f"{root}/{below}") as found:
        for entry in found:
            # of a folder that is none of ours (lost+found) nobody needs to know
            others = () if below or entry.name in table_names() else (PermissionError,)
            with suppress(FileNotFoundError, NotADirectoryError, *others):
                yield f"{below}{entry.name}", os.stat(f"{entry.path}/_delta_log").st_mtime_ns


def _raise_first(found: Iterator[Damage]) -> None:
    for damage in found:
        raise DamagedTable(damage)
