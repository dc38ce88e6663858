"""Input files that the server of Spark Connect sees, found by Spark's reader: for a client they may lie nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from halfop.frame.errors import InputRefused
from halfop.landing.files.sources import EXPECTED_PATH, InputFile, InputFiles, delta_refusal, input_file
from halfop.warehouse.by_spark import SparkWarehouse
from halfop.warehouse.files import one_form
from halfop.warehouse.server_files import ServerFile, listed

# Java's URI of a path escapes all other characters of ASCII.
_PLAIN = "-_.!~'()*,;:$&+=/@"


class ServerFiles(InputFiles):
    """Finds files; Spark hashes them as it lists them."""

    def __init__(self, warehouse: SparkWarehouse) -> None:
        self._warehouse = warehouse

    def hashed(self, files: Sequence[InputFile]) -> list[InputFile]:
        """Returns the files: they have their hashes."""
        return list(files)

    def _find(self, kind: str, pattern: str) -> list[InputFile]:
        files = listed(self._warehouse.spark, pattern)
        if not files:
            problem = "no such file, or no file in it, where the server of Spark Connect looks"
            raise InputRefused(pattern, None, problem, EXPECTED_PATH)
        for folder in sorted({folder for file in files for folder in _folders(file)}):
            if self._warehouse.log.has(f"{folder}/_delta_log"):
                raise delta_refusal(folder)
        return [input_file(kind, _uri(file.path), file.size, file.sha256) for file in files]


def _folders(file: ServerFile) -> Iterator[str]:
    """The folder of a Parquet file that may be a table's: above those of partitions."""
    folder, _, name = file.path.rpartition("/")
    if name.lower().endswith(".parquet"):
        yield re.sub(r"(/[^/]+=[^/]*)+$", "", folder)


def _uri(path: str) -> str:
    scheme, colon, rest = path.partition(":/") if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path) else ("", "", path)
    escaped = "".join(part if not part.isascii() else quote(part, safe=_PLAIN) for part in rest)
    return one_form(f"{scheme}{colon}{escaped}")
