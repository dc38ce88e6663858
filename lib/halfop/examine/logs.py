"""The log of a damaged table made whole: versions keep their numbers, and name only files that are there.

A run has pinned versions, so no number may mean something else afterwards. A commit that cannot be read, or is missing,
becomes one without rows; a damaged data file leaves the commit that had added it. What that has taken away is brought
back by other means. Nothing is deleted: what leaves a table is put aside.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfop.frame.errors import WarehouseBusy
from halfop.frame.trouble import make_durable
from halfop.warehouse.damage import Damage, TableOnDisk
from halfop.warehouse.disk import LocalDisk
from halfop.warehouse.lock import ASIDE, UNFINISHED
from halfop.warehouse.schema import OF_A_TOPIC, table_names

OPERATION = "HALFOP EXAMINE"
Action = dict[str, Any]


def tables_there(root: Path) -> list[str]:
    """The tables whose folders are there: halfop's own, and a topic's each."""
    named = [name for name in table_names() if name != OF_A_TOPIC]
    topics = sorted((root / "topics").iterdir()) if (root / "topics").is_dir() else []
    return [name for name in [*named, *(f"topics/{each.name}" for each in topics)] if (root / name).is_dir()]


@dataclass(frozen=True)
class Aside:
    """A folder of one repair, below `_damaged/` of the warehouse; nothing in it is ever removed."""

    root: Path
    stamp: str

    @property
    def folder(self) -> Path:
        return self.root / ASIDE / self.stamp

    @property
    def _mark(self) -> Path:
        return self.root / UNFINISHED

    @property
    def holds_any(self) -> bool:
        """Returns whether a repair has ever taken anything out of a table."""
        return any(path.is_file() for path in self.folder.parent.rglob("*"))

    @property
    def unfinished(self) -> list[str]:
        """The tables that a repair which was stopped had found damaged; none if there is none, all if nobody knows."""
        try:
            return list(json.loads(self._mark.read_text())) if self._mark.exists() else []
        except ValueError:  # a power cut has torn it
            return tables_there(self.root)

    def begin(self, tables: Iterable[str]) -> None:
        """From here on no job works on the warehouse, until the repair is finished."""
        made = self.folder / "tables.json"
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(json.dumps(sorted({*tables, *self.unfinished})))
        make_durable([made])
        os.replace(made, self._mark)
        make_durable([self._mark.parent])

    def finish(self) -> None:
        """Lets the jobs work again."""
        self._mark.unlink(missing_ok=True)

    def move(self, path: Path) -> None:
        """Takes a file out of its table."""
        if path.exists():
            place = self._place(path)
            os.replace(path, place)
            make_durable([place, path.parent])

    def copy(self, path: Path) -> None:
        """Keeps a file that is about to be replaced."""
        if path.exists():
            make_durable([shutil.copy2(path, self._place(path))])

    def _place(self, path: Path) -> Path:
        place = self.folder / path.relative_to(self.root)
        place.parent.mkdir(parents=True, exist_ok=True)
        number = len(list(place.parent.glob(f"{place.name}*")))
        return place.with_name(f"{place.name}.{number}") if number else place


@dataclass(frozen=True)
class TableLog:
    """A table's folder on a local disk. `created` is the first commit of a new table of its kind, as bytes."""

    folder: Path
    aside: Aside
    created: Callable[[], bytes]

    @property
    def on_disk(self) -> TableOnDisk:
        return TableOnDisk(LocalDisk(), str(self.folder))

    def damage(self) -> list[Damage]:
        """All damage: of the log first, because what it says of data files may follow from that."""
        on_disk = self.on_disk
        return [*on_disk.of_log(), *on_disk.of_data()]

    def repair(self) -> None:
        """Makes the log whole. A second call, after a kill in the middle, goes on."""
        of_log = list(self.on_disk.of_log())
        for damage in of_log:
            if Path(damage.path) == self._commit(damage.version or 0):
                self._rewrite(damage.version or 0, [])
            else:
                self.aside.move(Path(damage.path))
        data = list(self.on_disk.of_data())
        if data:
            self._forget({Path(damage.path).name for damage in data})
            for damage in data:
                self.aside.move(Path(damage.path))
        if not self._has_metadata():
            self._rewrite(0, self._created())
        if of_log or data:
            self.pad(self._newest + 1)

    def pad(self, upto: int) -> bool:
        """Adds commits without rows up to a version that a run has seen; returns whether it was needed.

        Also the last commit of a repair is such a one: whoever remembers the table as it was looks again.
        """
        newest = self._newest
        for version in range(newest + 1, upto + 1):
            self._rewrite(version, [] if version else self._created())
        return upto > newest

    # ---- commits ----

    @property
    def _log(self) -> Path:
        return self.folder / "_delta_log"

    @property
    def _newest(self) -> int:
        on_disk = self.on_disk
        return max([*on_disk.commits, *on_disk.checkpoints], default=-1)

    def _commit(self, version: int) -> Path:
        return self._log / f"{version:020}.json"

    def _forget(self, names: Collection[str]) -> None:
        """Rewrites the commits that add these data files; a joining of files that wrote one is undone if it can be."""
        left = set(names)
        for version in self.on_disk.commits:
            actions = _actions(self._commit(version))
            bad = {name for each in actions if (name := _name(each, "add")) in names}
            if bad:
                left -= bad
                removed = [each["remove"]["path"] for each in actions if "remove" in each]
                undone = bool(removed) and all((self.folder / path).exists() for path in removed)
                self._rewrite(version, [] if undone else [each for each in actions if _name(each, "add") not in bad])
        if left:  # of commits that a clean-up has removed
            self._remove(left)

    def _remove(self, names: Collection[str]) -> None:
        """Removes files by a new commit: only a checkpoint names them."""
        now = _millis()
        live = [path for path in self.on_disk.live() if Path(path).name in names]
        about = {"deletionTimestamp": now, "dataChange": True}
        self._rewrite(self._newest + 1, [{"remove": {"path": path} | about} for path in live], stale=False)

    def _rewrite(self, version: int, actions: list[Action], stale: bool = True) -> None:
        """Puts a commit in the place of another, which is kept aside; what was made of that goes, too."""
        if stale:
            self._drop_made_of(version)
        path = self._commit(version)
        is_there = path.exists()
        self.aside.copy(path)
        said = [each for each in actions if "commitInfo" in each] or [self._said(version)]
        lines = [*said, *(each for each in actions if "commitInfo" not in each)]
        made = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text("".join(json.dumps(each) + "\n" for each in lines))
        make_durable([made])
        put = os.replace if is_there else _link
        put(made, path)
        make_durable([path])

    def _drop_made_of(self, version: int) -> None:
        """Puts checkpoints and checksums from a version on aside, unless the log cannot be read without them."""
        self.aside.move(self._log / "_last_checkpoint")
        for path in self._log.glob("*.crc"):
            if _number(path) >= version or path.name.startswith("."):
                self.aside.move(path)
        on_disk = self.on_disk
        later = {at: files for at, files in on_disk.checkpoints.items() if at >= version}
        earlier = [at for at in on_disk.checkpoints if at < version]
        first = max(earlier, default=-1) + 1
        if not later or (on_disk.commits and on_disk.commits[0] <= first):
            for file in (file for files in later.values() for file in files):
                self.aside.move(Path(file))

    def _said(self, version: int) -> Action:
        about = {"operation": OPERATION, "operationParameters": {}, "engineInfo": "halfop", "txnId": str(uuid.uuid4())}
        return {"commitInfo": self._in_commit(version) | {"timestamp": self._instant(version)} | about}

    def _in_commit(self, version: int) -> Action:
        """The instant that Delta wants in each commit of a table with in-commit timestamps: it rises with the version.

        Whether the table has them is seen in the nearest commit before it that can be read, or else after it.
        """
        commits = self.on_disk.commits
        before, after = [at for at in commits if at < version], [at for at in commits if at > version]
        for at in (*reversed(before), *after):
            with suppress(ValueError, LookupError, TypeError):  # it is damaged, too
                info = json.loads(self._commit(at).read_bytes().splitlines()[0])["commitInfo"]
                known = info.get("inCommitTimestamp")
                return {} if known is None else {"inCommitTimestamp": known + version - at}
        return {}

    def _instant(self, version: int) -> int:
        """An instant between those of the commits beside it."""
        before = self._commit(version - 1)
        return int(before.stat().st_mtime * 1000) if version and before.exists() else _millis()

    # ---- what a table begins with ----

    def _has_metadata(self) -> bool:
        if self.on_disk.checkpoints:
            return True
        return any("metaData" in each for version in self.on_disk.commits for each in _actions(self._commit(version)))

    def _created(self) -> list[Action]:
        return [json.loads(line) for line in self.created().splitlines()]


def _link(made: Path, commit: Path) -> None:
    """Makes a new commit, unless another process has made one meanwhile: a gateway writes without a lock."""
    try:
        os.link(made, commit)
        made.unlink()
    except FileExistsError as error:
        made.unlink()
        raise WarehouseBusy(f"{commit}: another process has just written; call examine --repair again") from error
    except OSError:  # a disk without hard links
        os.replace(made, commit)


def _actions(path: Path) -> list[Action]:
    return [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]


def _name(action: Mapping[str, Any], kind: str) -> str | None:
    return Path(action[kind]["path"]).name if kind in action else None


def _number(path: Path) -> int:
    digits = path.name.partition(".")[0]
    return int(digits) if digits.isdecimal() else -1


def _millis() -> int:
    return time.time_ns() // 1_000_000
