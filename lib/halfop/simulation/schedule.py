"""The instants of a simulation's runs, and the run that a row comes with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path

from pyspark.sql import Column
from pyspark.sql import functions as F

from halfop.frame.errors import UsageError
from halfop.frame.units import EPOCH
from halfop.settings.load import load_settings
from halfop.settings.model import RuleSettings, Settings

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Schedule:
    """The instants of the runs, ascending; `every` is the time between two if it is constant. Step 1 is the first."""

    instants: Sequence[datetime]
    every: timedelta | None = None

    @property
    def steps(self) -> range:
        return range(1, len(self.instants) + 1)

    @property
    def beyond(self) -> int:
        """The step of rows that come after the last run."""
        return len(self.instants) + 1

    def at(self, step: int) -> datetime:
        return self.instants[step - 1]

    def step_of(self, micros: str) -> Column:
        """The first step that is not before an instant, given as a column of microseconds."""
        bounds = [(instant - EPOCH) // _MICROSECOND for instant in self.instants]
        return F.expr(_search(micros, bounds, 1, self.beyond))


def _search(micros: str, bounds: Sequence[int], low: int, high: int) -> str:
    """A binary search as one expression."""
    if low == high:
        return str(low)
    middle = (low + high) // 2
    below, above = _search(micros, bounds, low, middle), _search(micros, bounds, middle + 1, high)
    return f"IF({micros} <= {bounds[middle - 1]}, {below}, {above})"


def regular(since: datetime, until: datetime, every: timedelta) -> Schedule:
    """Runs at each multiple of `every`, as a clock shows them, after `since` and before `until`, and at `until`."""
    first = _after(since, every)
    return Schedule([*(first + n * every for n in range(_number(since, until, every) - 1)), until], every)


def widened(since: datetime, until: datetime, every: timedelta, most: int) -> timedelta:
    """The least multiple of `every` that gives no more than `most` runs."""
    times = max(1, (until - since) // (every * most))
    while _number(since, until, every * times) > most:
        times += 1
    return every * times


def _number(since: datetime, until: datetime, every: timedelta) -> int:
    return max(0, -((_after(since, every) - until) // every)) + 1


def _after(since: datetime, every: timedelta) -> datetime:
    return ((since - EPOCH) // every + 1) * every + EPOCH


NOW = "now"
MOST = 12
_ALWAYS = "rules.ask"


def variants(settings: Settings, config: Path | None, given: Sequence[str]) -> dict[str, RuleSettings]:
    """The configured rules, then each combination of the values given as RULE=VALUE[,VALUE…], by name."""
    keys = [each.partition("=")[0].strip() for each in given]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise UsageError(f"--set {min(twice)} is given twice; several values of one setting: KEY=VALUE,VALUE")
    each_with_values = [_values(each) for each in given]
    tried = [list(chosen) for chosen in product(*each_with_values)] if given else []
    if len(tried) > MOST:
        raise UsageError(f"these are {len(tried)} variants; at most {MOST} are played")
    found = {NOW: settings.rules}
    for chosen in tried:
        found[", ".join(chosen)] = load_settings(config, [_override(each) for each in chosen]).rules
    return found


def _values(given: str) -> list[str]:
    key, equals, text = given.partition("=")
    return [f"{key.strip()}{equals}{value.strip()}" for value in text.split(",")]


def _override(given: str) -> str:
    """RULE=VALUE as any job's --set takes it: names of rules may go without the prefix."""
    key = given.partition("=")[0]
    first = key.partition(".")[0]
    if first in Settings.model_fields and first != "rules" and first not in RuleSettings.model_fields:
        raise UsageError(f"--set {key}: a simulation plays other settings of the rules, as transaction_timeout=30s")
    override = given if first == "rules" else f"rules.{given}"
    if override.startswith(f"{_ALWAYS}="):
        raise UsageError(f"--set {key}: in a simulation halfop always asks")
    return override
