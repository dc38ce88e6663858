"""Where a repair puts what it takes out of tables, and the mark that one has not been finished."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from halfop.frame.durable import make_durable
from halfop.warehouse.lock import UNFINISHED


@dataclass(frozen=True)
class Aside:
    """A folder of one repair, below `_damaged/` of the warehouse; nothing in it is ever removed."""

    root: Path
    stamp: str

    @property
    def folder(self) -> Path:
        return self.root / "_damaged" / self.stamp

    @property
    def _mark(self) -> Path:
        return self.root / UNFINISHED

    @property
    def unfinished(self) -> list[str]:
        """The tables that a repair which was stopped had found damaged; none if there is none."""
        return list(json.loads(self._mark.read_text())) if self._mark.exists() else []

    def begin(self, tables: Iterable[str]) -> None:
        """From here on no job works on the warehouse, until the repair is finished."""
        made = self.folder / "tables.json"
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(json.dumps(sorted({*tables, *self.unfinished})))
        os.replace(made, self._mark)
        make_durable([self._mark, self._mark.parent])

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
