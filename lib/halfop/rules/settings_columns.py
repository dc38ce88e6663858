"""The settings of a run as Columns, and a message's own immunity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from typing import TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F

from halfop.columns.lives import Lost
from halfop.columns.values import FARTHEST, in_micros, whole_number
from halfop.settings.model import GroupOverride, RuleOverride, RuleSettings

NO_TIME = -2 * FARTHEST  # a queue clock on which no time has passed yet
FOREVER = 9 * 10**18
_Override = TypeVar("_Override", bound=RuleOverride)


@dataclass(frozen=True)
class RuleColumns:
    """The settings of one run as Columns; a topic's value wins over a group's, a group's over the default.

    `watched`: the brokers that `rules.ask: auto` only watches; `counting_delivered`: those for which by
    `rules.count: auto` only delivered questions count; `lost`: what brokers lost.
    """

    settings: RuleSettings
    now: datetime
    watched: frozenset[str] = frozenset()
    counting_delivered: frozenset[str] = frozenset()
    lost: tuple[Lost, ...] = ()

    @property
    def timeout(self) -> Column:
        return self._chosen(_timeout_of, self.settings.transaction_timeout)

    @property
    def check_max(self) -> Column:
        return self._chosen(lambda o: o.transaction_check_max, self.settings.transaction_check_max)

    @property
    def check_interval(self) -> int:
        return in_micros(self.settings.transaction_check_interval)

    @property
    def file_reserved_time(self) -> int:
        return in_micros(self.settings.file_reserved_time)

    @property
    def checks_a_run(self) -> Column:
        """How many questions a group gets; null: no limit."""
        default = F.lit(self.settings.checks_a_run).cast("int")
        return _looked_up(F.col("producer_group"), self.settings.groups, _checks_of, default)

    @property
    def checks_limits(self) -> list[int]:
        """The limits of all groups that have one."""
        given = [self.settings.checks_a_run, *(group.checks_a_run for group in self.settings.groups.values())]
        return [limit for limit in given if limit is not None]

    @property
    def watch_for(self) -> int:
        return in_micros(self.settings.watch_for)

    @property
    def watching(self) -> Column | None:
        """Whether the message's broker asks by itself; None if none does."""
        if self.settings.ask == "auto" and self.watched:
            return F.col("broker_name").isin(*sorted(self.watched))
        return F.lit(True) if self.settings.ask is False else None

    @property
    def counts_later(self) -> Column | None:
        """Whether a question about the message counts only when it is delivered; None if none does."""
        if self.settings.count == "auto" and self.counting_delivered:
            return F.col("broker_name").isin(*sorted(self.counting_delivered))
        return F.lit(True) if self.settings.count == "delivered" else None

    def _chosen(self, of: Callable[[RuleOverride], int | None], default: timedelta | int) -> Column:
        base = F.lit(in_micros(default) if isinstance(default, timedelta) else default)
        by_group = _looked_up(F.col("producer_group"), self.settings.groups, of, base)
        return _looked_up(F.col("real_topic"), self.settings.topics, of, by_group)


def _looked_up(
    name: Column, overrides: Mapping[str, _Override], of: Callable[[_Override], int | None], default: Column
) -> Column:
    values = [(key, of(override)) for key, override in overrides.items()]
    given = [(key, value) for key, value in values if value is not None]
    return reduce(lambda otherwise, kv: F.when(name == kv[0], F.lit(kv[1])).otherwise(otherwise), given, default)


def own_immunity(timeout: Column) -> Column:
    """CHECK_IMMUNITY_TIME_IN_SECONDS in microseconds; null if the message carries none."""
    seconds = whole_number(F.col("check_immunity"))
    bounded = F.greatest(F.lit(-FOREVER // 10**6), F.least(F.lit(FOREVER // 10**6), seconds))
    unreadable = seconds.isNull() | (seconds == -1)
    return F.when(F.col("check_immunity").isNotNull(), F.when(unreadable, timeout).otherwise(bounded * F.lit(10**6)))


def _checks_of(override: GroupOverride) -> int | None:
    return override.checks_a_run


def _timeout_of(override: RuleOverride) -> int | None:
    return None if override.transaction_timeout is None else in_micros(override.transaction_timeout)
