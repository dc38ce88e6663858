"""Whole files on any Hadoop file system, without a Spark job."""

from __future__ import annotations

from typing import Any, NamedTuple

from pyspark.sql import SparkSession


class Written(NamedTuple):
    """A file as its file system knows it."""

    path: str
    size: int
    modified: int


class Files:
    """The file system that holds `root`."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        jsc: Any = spark._jsc
        self._path = jvm.org.apache.hadoop.fs.Path
        self._bytes = jvm.org.apache.commons.io.IOUtils.toByteArray
        self._fs = self._path(root).getFileSystem(jsc.hadoopConfiguration())

    def read(self, path: str) -> bytes:
        stream = self._fs.open(self._path(path))
        try:
            return bytes(self._bytes(stream))
        finally:
            stream.close()

    def write(self, path: str, content: bytes) -> Written:
        """Writes a new file; a file of that name is an error."""
        stream = self._fs.create(self._path(path), False)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
        status = self._fs.getFileStatus(self._path(path))
        return Written(status.getPath().toString(), status.getLen(), status.getModificationTime())

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

    def remove(self, path: str) -> None:
        self._fs.delete(self._path(path), True)
