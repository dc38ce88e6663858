"""Rows for check_deliveries on their way from the loop, where questions are asked, to the thread that writes tables."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence

from halfop.gateway.tables import Delivery

_MOST_ROWS = 200_000
_log = logging.getLogger("halfop.gateway")


class Deliveries:
    """A queue between two threads: only `put` is called in the loop's, only `write` in the other. No row is lost.

    If the table cannot be written for so long that there are too many rows, the oldest go, with a warning.
    """

    def __init__(self, most: int = _MOST_ROWS) -> None:
        self._came = deque[Delivery](maxlen=most)  # one thread appends, the other one takes: both are atomic
        self._rows = deque[Delivery](maxlen=most)  # that were taken, and are not in the table yet
        self._dropped = 0

    def put(self, row: Delivery) -> None:
        """Adds a row."""
        self._dropped += len(self._came) == self._came.maxlen
        self._came.append(row)

    def write(self, append: Callable[[Sequence[Delivery]], bool]) -> None:
        """Writes all rows; if that raises an error, or returns False, the next call tries them again."""
        dropped = 0
        while self._came:
            dropped += len(self._rows) == self._rows.maxlen
            self._rows.append(self._came.popleft())
        if dropped or self._dropped:
            _log.warning("%s rows of check_deliveries were dropped: it could not be written", dropped + self._dropped)
            self._dropped = 0
        if self._rows and append(list(self._rows)):
            self._rows.clear()
