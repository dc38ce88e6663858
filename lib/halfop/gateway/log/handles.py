"""Files that are written to again and again, kept open between writes."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable


class Handles:
    """The file that each owner wrote to last, of the owners that wrote last: `most` files at most. For one thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()

    def get(self, owner: Hashable, number: int, opened: Callable[[int], int]) -> int:
        """The handle of an owner's file; closes the owner's other file, and those that are too many."""
        found = self._open.get(owner)
        if found is not None and found[0] == number:
            self._open.move_to_end(owner)
            return found[1]
        self._drop(owner)
        while len(self._open) >= self._most:
            self._drop(next(iter(self._open)))
        self._open[owner] = number, opened(number)
        return self._open[owner][1]

    def close(self) -> None:
        """Closes all files."""
        for owner in list(self._open):
            self._drop(owner)

    def _drop(self, owner: Hashable) -> None:
        found = self._open.pop(owner, None)
        if found is not None:
            os.close(found[1])
