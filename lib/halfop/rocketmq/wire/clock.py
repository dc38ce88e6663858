"""A broker's own clock, as its runtime information shows it: the host that lands may have another time."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

_RUNTIME = re.compile(r"\[ ?(\D*\d.*) days, (\d+) hours, (\d+) minutes, (\d+) seconds ?\]")
_SECOND = 1_000_000


@dataclass(frozen=True)
class BrokerClock:
    """The instant that a broker showed, epoch microseconds cut to seconds; `asked`: `time.monotonic()` before that."""

    shown: int
    asked: float

    def latest(self) -> int:
        """Returns an instant that the broker has not passed yet: what it has stored by now is not newer."""
        return self.shown + _SECOND + int((time.monotonic() - self.asked) * _SECOND)


def shown_time(table: Mapping[str, str]) -> int:
    """Returns the instant in a broker's runtime information: when it started, and for how long it has run."""
    found = _RUNTIME.fullmatch(table["runtime"].strip())
    if found is None:
        raise ValueError(table["runtime"])
    days, hours, minutes, seconds = (int(re.sub(r"\D", "", each)) for each in found.groups())
    return int(table["bootTimestamp"]) * 1000 + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * _SECOND
