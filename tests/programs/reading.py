"""reading.py ROOT JOURNALS WHO: a reader of all topics by deltalake, which writes down what came and what vanished."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.dataset as ds
from deltalake import DeltaTable
from support.histories.events import Journal, Read, Row, Unreadable, now

from programs.producing import NOTE, digest

_EVERY_SECONDS = 0.5
_COLUMNS = ["transaction_id", "broker_name", "half_queue_offset", "run_id", "body", "properties"]


@dataclass
class Topic:
    """What a reader has seen of a topic."""

    version: int = -1
    files: set[str] = field(default_factory=set)
    rows: Counter[Row] = field(default_factory=Counter)


class Reader:
    """`root` is a warehouse's. A look reads only files that are new, unless files were removed."""

    def __init__(self, root: Path, journal: Journal) -> None:
        self._root, self._journal, self._topics = root, journal, dict[str, Topic]()

    def look(self) -> None:
        for path in sorted(self._root.glob("topics/*")):
            if DeltaTable.is_deltatable(str(path)):
                self._look_at(path)

    def _look_at(self, path: Path) -> None:
        known, began = self._topics.get(path.name, Topic()), now()
        try:
            table = DeltaTable(str(path))
            if table.version() == known.version:
                return
            files = set(table.file_uris())
            removed = bool(known.files - files)
            read = rows_of(files if removed else files - known.files)
        except Exception as error:
            self._journal.write(Unreadable(now(), self._journal.who, path.name, f"{type(error).__name__}: {error}"))
            return
        came, gone = (read - known.rows, known.rows - read) if removed else (read, Counter[Row]())
        self._topics[path.name] = Topic(table.version(), files, known.rows + came - gone)
        each = (list(came.elements()), list(gone.elements()))
        about = (began, now(), self._journal.who, path.name, table.version(), known.version < 0)
        self._journal.write(Read(*about, *each))


def rows_of(files: set[str]) -> Counter[Row]:
    """The rows of a topic's files."""
    if not files:
        return Counter()
    found = ds.dataset(sorted(each.removeprefix("file://") for each in files), format="parquet").to_table(_COLUMNS)
    return Counter(
        Row(key, broker, offset, run, digest(body, dict(properties).get(NOTE)))
        for key, broker, offset, run, body, properties in zip(*found.to_pydict().values(), strict=True)
    )


def main(root: str, journals: str, who: str) -> None:
    reader = Reader(Path(root), Journal(Path(journals), who))
    while True:
        reader.look()
        time.sleep(_EVERY_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
