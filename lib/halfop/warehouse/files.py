"""Whole files on any Hadoop file system, without a Spark job."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from threading import Lock
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from halfop.frame.errors import InputRefused, UsageError
from halfop.frame.trouble import missing_client, named
from halfop.warehouse.disk import LocalDisk, WrittenFile, local_folder, local_path, written_locally
from halfop.warehouse.java import Names


class Files:
    """The file system that holds `root`."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm = Names(spark._jvm)
        if not root.isascii() and local_folder(root) is not None:
            _refuse_unnameable(root, str(jvm.java.lang.System.getProperty("sun.jnu.encoding")))
        jsc: Any = spark._jsc
        self._path = jvm.org.apache.hadoop.fs.Path
        self._bytes = jvm.org.apache.commons.io.IOUtils.toByteArray
        self._fs = self._path(root).getFileSystem(jsc.hadoopConfiguration())
        self.is_local = self._fs.getScheme() == "file"

    def local(self, path: str) -> str | None:
        """The path as this machine's file system knows it; None if another one holds it."""
        return local_path(path) if self.is_local else None

    def read(self, path: str) -> bytes:
        if self.is_local:
            return LocalDisk().read(path)
        stream = self._fs.open(self._path(path))
        try:
            return bytes(self._bytes(stream))
        finally:
            stream.close()

    def size(self, path: str) -> int | None:
        """A file's size; None if it is missing."""
        if self.is_local:
            return LocalDisk().size(path)
        return int(self._fs.getFileStatus(self._path(path)).getLen()) if self._fs.exists(self._path(path)) else None

    def sizes(self, folder: str) -> dict[str, int]:
        """The names and sizes of a folder's files; none if it is missing."""
        if self.is_local:
            return LocalDisk().sizes(folder)
        if not self._fs.exists(self._path(folder)):
            return {}
        found = self._fs.listStatus(self._path(folder))
        return {each.getPath().getName(): int(each.getLen()) for each in found if each.isFile()}

    def write(self, path: str, content: bytes) -> WrittenFile:
        """Writes a new file; a file of that name is an error."""
        if self.is_local:
            return _write_local(local_path(path), content)
        stream = self._fs.create(self._path(path), False)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
        status = self._fs.getFileStatus(self._path(path))
        return WrittenFile(status.getPath().toString(), status.getLen(), status.getModificationTime())

    def move(self, source: str, folder: str) -> str:
        """Moves a file into a folder, made if missing, under the same name; returns its new path."""
        old = self._path(source)
        new = self._path(folder, old.getName())
        self._fs.mkdirs(new.getParent())
        if not self._fs.rename(old, new):
            raise OSError(f"could not move {old} to {new}")
        return self.qualified(str(new.toString()))

    def qualified(self, path: str) -> str:
        """The path with its file system's scheme and host."""
        return str(self._fs.makeQualified(self._path(path)).toString())

    def folders(self, path: str) -> list[str]:
        """Names of the folders in a folder; none if it is missing."""
        if not self._fs.exists(self._path(path)):
            return []
        return [status.getPath().getName() for status in self._fs.listStatus(self._path(path)) if status.isDirectory()]

    def last_change(self, folder: str) -> int:
        """When a file in a folder, or below, was last written, in epoch milliseconds; 0 if there is none."""
        newest, found = 0, self._fs.listFiles(self._path(folder), True)
        while found.hasNext():
            newest = max(newest, int(found.next().getModificationTime()))
        return newest

    def remove(self, path: str) -> None:
        self._fs.delete(self._path(path), True)


def without_patterns(path: str) -> str:
    """The path without a meaning as a pattern, for which Spark's readers would take it."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)


def _refuse_unnameable(root: str, encoding: str) -> None:
    """Java would write question marks, and two folders would be one."""
    try:
        root.encode(encoding)
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{root!r}: Java has no {error.object[error.start]!r} in names of files ({encoding}). Start this process "
            "with LC_ALL=C.UTF-8, or name the warehouse by other letters"
        ) from error


def _write_local(path: str, content: bytes) -> WrittenFile:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with named(path), open(path, "xb") as local:
        local.write(content)
    return written_locally(path)


@dataclass(frozen=True)
class WholeFiles:
    """A disk of small files, each in memory as a whole while it is read or written."""

    files: Files

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.files.read(path))

    def create(self, path: str) -> WholeFile:
        return WholeFile(self.files, path)


@dataclass(frozen=True)
class WholeFile:
    """A new file; its bytes are written when it ends."""

    files: Files
    path: str
    stream: BytesIO = field(default_factory=BytesIO)

    def begin_to_close(self) -> None:
        """There is nothing to begin: ``close`` writes the bytes at once."""

    def close(self) -> WrittenFile:
        return self.files.write(self.path, self.stream.getvalue())


WAY_OUT = (
    "Use one that refuses it: the store's S3-compatible end point by s3a:// (AWS_ENDPOINT_URL), or hdfs://, abfss://, "
    "gs://, or a local disk. docs/install.md lists the stores"
)
_WRITERS = 4
_SAFE: set[str] = set()
_ONE_AT_A_TIME = Lock()


def refuse_unsafe(spark: SparkSession, files: Files, root: str) -> None:
    """Raises UsageError if of two drivers in this folder one can overwrite the other's commit; asks once a process."""
    with _ONE_AT_A_TIME:
        if root not in _SAFE and files.local(root) is None:
            problem = _problem(spark, root)
            if problem is not None:
                raise UsageError(
                    f"--warehouse {root}: this store does not refuse a commit if another one is there, so messages "
                    f"could get lost or be delivered twice ({problem}). {WAY_OUT}"
                )
            _SAFE.add(root)


def _problem(spark: SparkSession, root: str) -> str | None:
    jvm: Any = spark._jvm
    jsc: Any = spark._jsc
    session: Any = spark._jsparkSession
    created = jvm.org.apache.spark.sql.delta.storage.LogStore.createLogStore
    found = jvm.halfop.CommitProbe.problem(root, [created(session) for _ in range(_WRITERS)], jsc.hadoopConfiguration())
    return None if found is None else str(found)


def one_form(uri: str) -> str:
    """The URI in Hadoop's own form: it writes a local file's with one slash or with three."""
    return re.sub(r"\Afile:/+", "file:/", uri)


def shown_path(uri: str) -> str:
    """The path as a user would write it."""
    parsed = urlparse(uri)
    return unquote(parsed.path) if parsed.scheme == "file" else unquote(uri)


@contextmanager
def refusing(path: str) -> Iterator[None]:
    """Turns an error of the file system into an InputRefused that names the path."""
    try:
        yield
    except Py4JJavaError as error:
        raise InputRefused(path, None, _cause(error)) from error
    except IllegalArgumentException as error:  # Hadoop's paths begin with a scheme if they have a `:`
        hint = "rename it if its name has a `:`, or name its folder"
        raise InputRefused(path, None, str(error).splitlines()[0], hint) from error


def _cause(error: Py4JJavaError) -> str:
    java = error.java_exception
    return missing_client(error) or f"{java.getClass().getSimpleName()}: {java.getMessage()}"
