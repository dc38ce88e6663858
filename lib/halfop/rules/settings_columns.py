"""The settings of a run as Columns, and a message's own immunity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from zlib import crc32

from pyspark.sql import Column
from pyspark.sql import functions as F

from halfop.columns.keys import FARTHEST, in_micros, micros, whole_number
from halfop.columns.lives import Lost
from halfop.rocketmq.names import ROCKSDB_QUEUES
from halfop.settings.model import RuleOverride, RuleSettings

NO_TIME = -2 * FARTHEST  # a queue clock on which no time has passed yet
FOREVER = 9 * 10**18
_NO_LIMIT = -1


@dataclass(frozen=True)
class RuleColumns:
    """The settings of one run as Columns; a topic's value wins over a group's, a group's over the default.

    `watched`: the brokers that `rules.ask: auto` only watches; `counting_delivered`: those for which by
    `rules.count: auto` only delivered questions count; `lost`: what brokers lost; `forgets`: a broker keeps
    transactions in RocksDB, and forgets them.
    """

    settings: RuleSettings
    now: datetime
    watched: frozenset[str] = frozenset()
    counting_delivered: frozenset[str] = frozenset()
    lost: tuple[Lost, ...] = ()
    forgets: bool = False

    @property
    def timeout(self) -> Column:
        return self._chosen(_timeout_of, self.settings.transaction_timeout)

    @property
    def check_max(self) -> Column:
        return self._chosen(lambda o: o.transaction_check_max, self.settings.transaction_check_max)

    @property
    def check_interval(self) -> int:
        return in_micros(self.settings.transaction_check_interval)

    def forgotten_at(self, immunity: Column, *later: str) -> Column:
        """Returns when a broker that keeps a transaction in RocksDB has forgotten it; null for all others.

        The broker asks first after the immunity, then after each interval, once more than its limit says; another
        interval is for the last answer. `forgets_after` has this by the broker's own settings, if they are known.
        `later`: columns of instants before which it did not ask.
        """
        most = F.lit(FARTHEST // max(self.check_interval, 1))  # more would be no number
        by_rules = F.least(most, self.check_max.cast("bigint") + 2) * self.check_interval
        after = F.coalesce(F.col("forgets_after"), by_rules)
        immune = F.greatest(F.lit(-FARTHEST), F.least(F.lit(FARTHEST), F.coalesce(immunity, self.timeout)))
        born = F.col("born_timestamp")
        begun = F.greatest(micros(born) + immune, *[micros(F.coalesce(F.col(c), born)) for c in later])
        return F.when(F.col("queue_id") >= ROCKSDB_QUEUES, begun + after)

    @property
    def file_reserved_time(self) -> int:
        return in_micros(self.settings.file_reserved_time)

    @property
    def checks_a_run(self) -> Column:
        """How many questions a group gets; null: no limit."""
        default = _NO_LIMIT if self.settings.checks_a_run is None else self.settings.checks_a_run
        chosen = _looked_up(F.col("producer_group"), self._own_limits, F.lit(default).cast("bigint"))
        return F.nullif(chosen, F.lit(_NO_LIMIT)).cast("int")

    @property
    def checks_limits(self) -> list[int]:
        """The limits of all groups that have one."""
        default = [] if self.settings.checks_a_run is None else [self.settings.checks_a_run]
        return [*default, *(limit for limit in self._own_limits.values() if limit != _NO_LIMIT)]

    @property
    def _own_limits(self) -> dict[str, int]:
        own = {name: group for name, group in self.settings.groups.items() if group.limits_checks}
        return {name: _NO_LIMIT if of.checks_a_run is None else of.checks_a_run for name, of in own.items()}

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
        by_group = _looked_up(F.col("producer_group"), _given(self.settings.groups, of), base)
        return _looked_up(F.col("real_topic"), _given(self.settings.topics, of), by_group)


def _given(overrides: Mapping[str, RuleOverride], of: Callable[[RuleOverride], int | None]) -> dict[str, int]:
    values = {name: of(override) for name, override in overrides.items()}
    return {name: value for name, value in values.items() if value is not None}


def _looked_up(name: Column, values: Mapping[str, int], default: Column) -> Column:
    """The name's value by a hash table in one constant: thousands of names are a small plan, and are not compared.

    RocketMQ's names have neither of its separators.
    """
    if not values:
        return default
    buckets = [""] * len(values)
    for key, value in values.items():
        buckets[crc32(key.encode()) % len(values)] += f"{key}={value},"
    width = max(map(len, buckets))
    table = F.lit("".join(bucket.ljust(width) for bucket in buckets).encode())  # only bytes are cut without a search
    bucket = F.substring(table, F.crc32(name) % len(values) * width + 1, F.lit(width)).cast("string")
    found = F.try_element_at(F.str_to_map(bucket, F.lit(","), F.lit("=")), name)
    return F.coalesce(found.cast("bigint"), default)


def own_immunity(timeout: Column) -> Column:
    """CHECK_IMMUNITY_TIME_IN_SECONDS in microseconds; null if the message carries none."""
    seconds = whole_number(F.col("check_immunity"))
    bounded = F.greatest(F.lit(-FOREVER // 10**6), F.least(F.lit(FOREVER // 10**6), seconds))
    unreadable = seconds.isNull() | (seconds == -1)
    return F.when(F.col("check_immunity").isNotNull(), F.when(unreadable, timeout).otherwise(bounded * F.lit(10**6)))


def _timeout_of(override: RuleOverride) -> int | None:
    return None if override.transaction_timeout is None else in_micros(override.transaction_timeout)
