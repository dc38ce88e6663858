"""The words of the rules: whole numbers, times, the half key, and settings that differ by group and topic."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from halfop.settings import RuleOverride, RuleSettings

# The offset first: it tells rows apart fastest, in hashes and in sorts.
HALF_KEY = ["queue_offset", "queue_id", "broker_name"]
QUEUE = ["broker_name", "queue_id"]

_FAR = 4 * 10**17  # microseconds; some 12,000 years, beyond any time worth telling apart
NO_TIME = -2 * _FAR  # a queue clock on which no time has passed yet
FOREVER = 9 * 10**18

_KEY = re.compile(r"(.*)/([0-9]{1,10})/([0-9]{1,19})", re.DOTALL)


class Key(NamedTuple):
    """A half key, as users write it: BROKER/QUEUE/OFFSET."""

    broker_name: str
    queue_id: int
    queue_offset: int

    def __str__(self) -> str:
        return "/".join(map(str, self))


def as_key(text: str) -> Key | None:
    """`BROKER/QUEUE/OFFSET`; the broker's name may hold a slash, too."""
    match = _KEY.fullmatch(text)
    if match is None or int(match[2]) >= 2**31 or int(match[3]) >= 2**63:
        return None
    return Key(match[1], int(match[2]), int(match[3]))


def whole_number(text: Column) -> Column:
    """RocketMQ's whole number: an optional sign and ASCII digits within a Java long, nothing trimmed; else null."""
    return F.when(text.rlike(r"\A[+-]?[0-9]+\z"), text.try_cast("bigint"))


def present(text: Column) -> Column:
    """A property that is there: a broker's store loses empty values."""
    return F.nullif(text, F.lit(""))


def micros(time: Column) -> Column:
    """Microseconds since 1970, kept within bounds that differences cannot overflow."""
    return F.greatest(F.lit(-_FAR), F.least(F.lit(_FAR), F.unix_micros(time)))


def in_micros(length: timedelta) -> int:
    return length // timedelta(microseconds=1)


@dataclass(frozen=True)
class RuleColumns:
    """The settings of one run as Columns; a topic's value wins over a group's, a group's over the default."""

    settings: RuleSettings
    now: datetime

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

    def _chosen(self, of: Callable[[RuleOverride], int | None], default: timedelta | int) -> Column:
        base = F.lit(in_micros(default) if isinstance(default, timedelta) else default)
        by_group = _looked_up(F.col("producer_group"), self.settings.groups, of, base)
        return _looked_up(F.col("real_topic"), self.settings.topics, of, by_group)


def _looked_up(
    name: Column, overrides: dict[str, RuleOverride], of: Callable[[RuleOverride], int | None], default: Column
) -> Column:
    values = [(key, of(override)) for key, override in overrides.items()]
    given = [(key, value) for key, value in values if value is not None]
    return reduce(lambda otherwise, kv: F.when(name == kv[0], F.lit(kv[1])).otherwise(otherwise), given, default)


def own_immunity(timeout: Column) -> Column:
    """CHECK_IMMUNITY_TIME_IN_SECONDS in microseconds; null where the message carries none."""
    seconds = whole_number(F.col("check_immunity"))
    bounded = F.greatest(F.lit(-FOREVER // 10**6), F.least(F.lit(FOREVER // 10**6), seconds))
    unreadable = seconds.isNull() | (seconds == -1)
    return F.when(F.col("check_immunity").isNotNull(), F.when(unreadable, timeout).otherwise(bounded * F.lit(10**6)))


def _timeout_of(override: RuleOverride) -> int | None:
    return None if override.transaction_timeout is None else in_micros(override.transaction_timeout)
