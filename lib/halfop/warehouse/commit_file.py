"""A commit of Delta's log as its file has it, and what shows that it is not whole.

A commit that was cut at a line's end is sound JSON. Beside Delta's checksums of its own version and of the one before
it adds or removes fewer files than they say; without both nobody knows.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_HEAD = 4096  # a checksum begins with its numbers; lists of files may follow them
_FILES, _BYTES = (re.compile(rb'"%s":(\d+)' % name) for name in (b"numFiles", b"tableSizeBytes"))
# Operations that name each data file once. Others may add one again only for its statistics, or remove what never was
# one, as DROP FEATURE does.
_ONCE = ("WRITE", "CREATE TABLE", "OPTIMIZE", "DELETE", "UPDATE", "MERGE", "TRUNCATE")


class Bad(Exception):
    """A fault of a file."""


class Total(NamedTuple):
    """The files of a version, and their bytes; of a commit how many more there are after it."""

    files: int
    bytes: int | None


NOTHING = Total(0, 0)


@dataclass
class Commit:
    """The files that a commit adds, and those that it removes, by name, with their sizes; and its kinds of actions."""

    added: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int | None] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
    operation: str = ""

    @property
    def more(self) -> Total:
        """Returns the bytes that it adds, less removed ones; not every writer records a removed file's size."""
        known = [size for size in self.removed.values() if size is not None]
        size = sum(self.added.values()) - sum(known) if len(known) == len(self.removed) else None
        return Total(len(self.added) - len(self.removed), size)

    def refuse_cut(self, before: Total | None, after: Total | None) -> None:
        """Raises Bad if it lacks files by the checksums of both versions: by their number, and by their bytes."""
        if before is None or after is None or self.operation not in _ONCE:
            return
        files, size = after.files - before.files, (after.bytes or 0) - (before.bytes or 0)
        if self.more.files != files and self.more.bytes != size:
            said = f"it changes the number of files by {self.more.files:+d}, and by the checksums beside it that is"
            raise Bad(f"is cut off at a line's end: {said} {files:+d}")


def commit_of(version: int, content: bytes) -> Commit:
    """Returns what a commit's file says; raises Bad if it is none."""
    if not content.strip():
        raise Bad("is empty" if not content else f"has {len(content)} bytes, and not one action of Delta's log")
    commit = Commit()
    for number, line in enumerate(content.splitlines(), 1):
        action = _action(line, number)
        commit.kinds |= action.keys()
        try:
            if (add := action.get("add")) is not None:
                commit.added[add["path"]] = add["size"]
            elif (remove := action.get("remove")) is not None:
                commit.removed[remove["path"]] = remove.get("size")
            elif (info := action.get("commitInfo")) is not None:
                commit.operation = str(info.get("operation"))
        except (LookupError, TypeError, AttributeError):
            raise Bad(f"is no commit of Delta's: line {number} names no file with a path and a size") from None
    if version == 0 and not commit.kinds >= {"metaData", "protocol"}:
        raise Bad("is cut off: a table's first commit has its metadata and its protocol")
    return commit


def _action(line: bytes, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        raise Bad(f"is cut off, or overwritten: line {number} is no JSON") from None
    if not isinstance(found, dict):
        raise Bad(f"is no commit of Delta's: line {number} is no JSON object")
    return found


def total_of(checksum: bytes) -> Total | None:
    """Returns the files of a version by its checksum; None if that is not whole."""
    if not checksum.rstrip().endswith(b"}"):
        return None
    files, size = (each.search(checksum[:_HEAD]) for each in (_FILES, _BYTES))
    return Total(int(files[1]), int(size[1])) if files and size else None
