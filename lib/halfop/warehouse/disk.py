"""Files as a task reads and writes them, in one of Spark's Python workers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BufferedWriter, FileIO
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from halfop.frame.trouble import named

# PyArrow's errors for a file that is no Parquet file; the last one is for its names.
NOT_PARQUET = (pa.ArrowException, OSError, UnicodeDecodeError)


class WrittenFile(NamedTuple):
    """A file as its file system knows it."""

    path: str
    size: int
    modified: int


class NewFile(Protocol):
    """A new file that is being written."""

    @property
    def stream(self) -> Any:
        """The stream that takes the bytes."""

    def begin_to_close(self) -> None:
        """All is written. Ending a file may take long, so others are begun before the first is waited for."""

    def close(self) -> WrittenFile:
        """Ends the file, and waits until it has ended."""


class Disk(Protocol):
    """A file system. Paths are as Delta's log has them, with their scheme."""

    def open(self, path: str) -> pa.NativeFile:
        """A file to read, at any place of it."""

    def create(self, path: str) -> NewFile:
        """A new file, in a folder that is made if missing; a file of that name is an error."""


class LocalDisk:
    """The disk of this machine."""

    def open(self, path: str) -> pa.NativeFile:
        return pa.memory_map(local_path(path))

    def create(self, path: str) -> NewFile:
        return _LocalOutput.at(local_path(path))

    def read(self, path: str) -> bytes:
        with open(local_path(path), "rb") as file:
            return file.read()

    def size(self, path: str) -> int | None:
        """A file's size; None if it is missing."""
        try:
            return os.stat(local_path(path)).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def sizes(self, folder: str) -> dict[str, int]:
        """The names and sizes of a folder's files; none if it is missing."""
        try:
            with os.scandir(local_path(folder)) as found:
                return {entry.name: entry.stat().st_size for entry in found if entry.is_file()}
        except FileNotFoundError:
            return {}


class _NamedFile(FileIO):
    def write(self, content: Any) -> int:
        with named(str(self.name)):
            return super().write(content)


@dataclass(frozen=True)
class _LocalOutput:
    path: str
    stream: Any

    @staticmethod
    def at(path: str) -> _LocalOutput:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return _LocalOutput(path, BufferedWriter(_NamedFile(path, "xb")))

    def begin_to_close(self) -> None:
        """This takes no time."""

    def close(self) -> WrittenFile:
        self.stream.close()
        return written_locally(self.path)


def local_path(path: str) -> str:
    """The path as this machine's file system knows it; Hadoop's form has no escapes."""
    if not path.startswith("file:"):
        return os.path.abspath(path)
    return os.path.abspath("/" + path.removeprefix("file:").lstrip("/"))


def local_folder(root: str) -> str | None:
    """The local folder that a path or a URI names; None for any other file system."""
    scheme = re.match(r"(?P<name>[A-Za-z][A-Za-z0-9+.-]*):", root)
    return local_path(root) if scheme is None or scheme["name"] == "file" else None


def written_locally(path: str) -> WrittenFile:
    status = os.stat(path)
    return WrittenFile(f"file:{path}", status.st_size, status.st_mtime_ns // 1_000_000)


@dataclass(frozen=True)
class DataFile:
    """A Parquet file lying in its table's folder, not yet part of the table. A partition's values are booleans."""

    path: str
    size: int
    modified: int
    stats: str | None
    partition: Mapping[str, Any] = field(default_factory=dict)


class Listed(NamedTuple):
    """A data file of a table, with the values of its partition; `clustered`: its rows were laid out with others.

    Through Spark Connect nobody knows that.
    """

    path: str
    size: int
    partition: Mapping[str, str]
    clustered: bool = False
