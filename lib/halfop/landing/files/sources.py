"""Input files from paths, directories and globs, each with its format, size and hash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from pyspark.sql import SparkSession

from halfop.frame.errors import InputRefused
from halfop.warehouse.files import one_form, refusing, shown_path

_FORMATS = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".parquet": "parquet"}
_EXPECTED = "expected a name that ends in .jsonl, .ndjson, .json (each also .gz) or .parquet"
_THREADS = 4
# More is for tasks, side by side.
_FEW_BYTES = 8 * 1024 * 1024
_UNPACKED = 10  # times the size of a packed file, about


@dataclass(frozen=True)
class InputFile:
    """A file to land."""

    kind: str
    format: str
    uri: str
    size: int
    sha256: str = ""

    @property
    def shown(self) -> str:
        return shown_path(self.uri)

    @property
    def place(self) -> str:
        """The path as a task's disk takes it: with its scheme, without escapes."""
        return unquote(self.uri)


class InputFiles:
    """Finds and hashes files on the file systems that Hadoop knows."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        jsc: Any = spark._jsc
        self._jvm, self._conf = jvm, jsc.hadoopConfiguration()

    def find(self, kind: str, patterns: Iterable[str]) -> list[InputFile]:
        """The files of all paths, each once, in the order of their names. A path that matches nothing is refused."""
        found = {file.uri: file for pattern in patterns for file in self._find(kind, pattern)}
        return [found[uri] for uri in sorted(found)]

    def hashed(self, files: Sequence[InputFile]) -> list[InputFile]:
        """The files, with the hashes of their contents."""
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(self._hashed, files))

    def _find(self, kind: str, pattern: str) -> list[InputFile]:
        with refusing(pattern):
            path = self._jvm.org.apache.hadoop.fs.Path(pattern)
            system = path.getFileSystem(self._conf)
            roots = [system.getFileStatus(path)] if system.exists(path) else list(system.globStatus(path) or ())
            files = [file for root in roots for file in self._below(kind, system, root)]
        if not files:
            raise InputRefused(
                pattern, None, "no such file, or no file in it", "expected a file, a directory or a glob"
            )
        return files

    def _below(self, kind: str, system: Any, root: Any) -> list[InputFile]:
        if not root.isDirectory():
            return [_input_file(kind, root)]
        base, listed = root.getPath().toString(), system.listFiles(root.getPath(), True)
        files = []
        while listed.hasNext():
            status = listed.next()
            names = status.getPath().toString().removeprefix(base).strip("/").split("/")
            if "_delta_log" in names:
                raise InputRefused(
                    shown_path(base),
                    None,
                    "is a Delta table: its folder also holds files that are no longer part of it",
                    "write its rows to Parquet files and land those",
                )
            if not any(name.startswith(("_", ".")) for name in names):
                files.append(_input_file(kind, status))
        return files

    def _hashed(self, file: InputFile) -> InputFile:
        with refusing(file.shown):
            path = self._jvm.org.apache.hadoop.fs.Path(self._jvm.java.net.URI(file.uri))
            stream = path.getFileSystem(self._conf).open(path)
            try:
                return replace(file, sha256=self._jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream))
            finally:
                stream.close()


def _input_file(kind: str, status: Any) -> InputFile:
    path = status.getPath()
    uri = one_form(path.toUri().toString())
    name = path.getName().lower()
    ending = next((each for each in _FORMATS if name.removesuffix(".gz").endswith(each)), None)
    if ending is None or name.endswith(".parquet.gz"):
        raise InputRefused(shown_path(uri), None, _EXPECTED)
    return InputFile(kind, _FORMATS[ending], uri, status.getLen())


def is_packed(file: InputFile) -> bool:
    return file.uri.lower().endswith(".gz")


def are_few(files: Iterable[InputFile]) -> bool:
    """Returns whether files hold so few rows that this process reads them."""
    return sum(file.size * (_UNPACKED if is_packed(file) else 1) for file in files) <= _FEW_BYTES
