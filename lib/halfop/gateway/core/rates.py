"""Rates of what a gateway counts, as a broker shows them: over ten seconds, a minute and ten minutes."""

from __future__ import annotations

from collections import deque

_PERIODS = (10, 60, 600)


class Rates:
    """Two counts that only rise, messages stored and messages read, as they were each second."""

    def __init__(self, started: float) -> None:
        self._known = deque([(started, 0, 0)], _PERIODS[-1] + 1)

    def note(self, now: float, stored: int, read: int) -> None:
        """Notes the counts, once a second, however often it is called."""
        if now - self._known[-1][0] >= 1.0:
            self._known.append((now, stored, read))

    @property
    def stored(self) -> str:
        """Messages stored a second, by period."""
        return self._shown(1)

    @property
    def read(self) -> str:
        """Messages read a second, by period."""
        return self._shown(2)

    def _shown(self, column: int) -> str:
        return " ".join(f"{self._rate(column, period):.2f}" for period in _PERIODS)

    def _rate(self, column: int, period: int) -> float:
        newest = self._known[-1]
        oldest = next(each for each in self._known if each[0] >= newest[0] - period)
        seconds = newest[0] - oldest[0]
        return (newest[column] - oldest[column]) / seconds if seconds else 0.0
