"""The result of a job, which it prints as its last line."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from numbers import Integral, Real
from typing import Any, Generic, Literal, TypedDict, TypeVar


def _plain(value: Any) -> Any:
    """A value as JSON has it: times as ISO-8601 in UTC, durations as seconds, no NaN or infinity."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, str | bool) else _plain_scalar(value)


def _plain_scalar(value: Any) -> object:
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.total_seconds() if isinstance(value, timedelta) else str(value)


def json_line(fields: Mapping[str, Any]) -> str:
    """One line of ASCII, whatever the values hold."""
    return json.dumps(_plain(fields), allow_nan=False)


def _sorted(counts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _sorted(value) if isinstance(value, Mapping) else value for key, value in sorted(counts.items())}


def add_counts(known: dict[str, int], more: Mapping[str, int]) -> None:
    for name, n in more.items():
        known[name] = known.get(name, 0) + n


Counts = dict[str, int]
FailedPart = Literal["failed_sinks", "failed_brokers", "failed_catalog"]


class JobFields(TypedDict, total=False):
    """The fields that only some jobs have; what each means is in docs/jobs.md."""

    transient: bool
    failed_sinks: dict[str, str]
    failed_brokers: dict[str, str]
    failed_catalog: dict[str, str]
    named_tables: list[str]
    path: str
    # land
    broker_name: str
    log_from: int
    log_to: int
    known_until: dict[str, Any]
    lost_ranges: int
    files_landed: int
    files_skipped: int
    bad_rows: int
    # reconcile and its readers
    runs: Any  # a list of ids; a page and a simulation count them
    now: datetime
    ways: dict[str, str]
    files_looked_back_into: Counts
    open_messages: int
    oldest_open_seconds: float | None
    queues_behind: Mapping[str, str]
    rejected: Counts
    value_errors: Counts
    value_errors_in: dict[str, str]
    owed: list[str]
    commit_latency: dict[str, Any]
    differs: Counts
    differences: int
    every: timedelta | None
    outcomes: list[Mapping[str, object]]
    messages: dict[str, str]
    # follow and gateway
    cycle: int
    cycles: int
    landing: dict[str, object]
    run: dict[str, object] | None
    sent: int
    ended: Counts
    questions: Counts
    refused: Counts | str  # resolve names a file
    open: int
    # end, resolve, resume
    plan: str
    plan_id: str
    planned: int
    left_out: Counts
    groups: dict[str, dict[str, Any]]
    endings: Counts
    not_tried: int
    resumed: int
    would_resume: int
    left_alone: Counts
    # erase
    to_erase: Counts
    erased: Counts
    left_open: int
    old_files_until: datetime
    elsewhere: list[str]
    # maintain, examine, audit
    rows_trimmed: dict[str, int | None]
    files_joined: dict[str, int | None]
    files_removed: dict[str, int | None]
    damaged: list[str]
    damaged_tables: Collection[str]
    repaired: list[str]
    remains: list[str]
    commands: list[str]
    audit_id: str
    inputs: Counts
    lost_by_broker: Counts
    findings: Counts
    transactions: Counts
    put_back: Counts
    brokers: dict[str, dict[str, Counts]]


@dataclass
class Summary:
    """A job's result; `status` is what it exits with, `extra` holds fields that only this job has."""

    job: str
    run_id: int | None = None
    status: int = 0
    decisions: dict[str, dict[str, int]] = field(default_factory=dict)
    rows_read: dict[str, int] = field(default_factory=dict)
    rows_written: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    extra: JobFields = field(default_factory=JobFields)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds what the block took to `seconds[name]`, also if it fails."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - start, 3)

    @contextmanager
    def shown_in_failure(self) -> Iterator[None]:
        """Lets an error that ends the block show what the summary knows by then."""
        try:
            yield
        except BaseException as error:
            error.summary = self  # type: ignore[attr-defined]
            raise

    def add(self, other: Summary) -> None:
        """Counts another summary's decisions and rows in."""
        for decision, reasons in other.decisions.items():
            add_counts(self.decisions.setdefault(decision, {}), reasons)
        add_counts(self.rows_read, other.rows_read)
        add_counts(self.rows_written, other.rows_written)

    def add_failed(self, what: FailedPart, parts: Mapping[str, str], transient: bool, status: int = 1) -> None:
        """Records parts of the work that failed while the others were done; the highest status counts.

        `transient`: all of them may succeed later though nobody has changed anything.
        """
        self.status = max(self.status, status)
        self.extra[what] = dict(parts)
        self.extra["transient"] = transient and self.extra.get("transient", True)

    def fields(self) -> dict[str, Any]:
        """The fields in their order, counts by name, phases as they came, then the extra fields by name."""
        own = {name: value for name, value in vars(self).items() if name != "extra"}
        counts = {name: _sorted(own[name]) for name in ("decisions", "rows_read", "rows_written")}
        return own | counts | _sorted(self.extra)

    def to_json(self) -> str:
        """The fields in one line."""
        return json_line(self.fields())


_Row = TypeVar("_Row")


@dataclass(frozen=True)
class WithRows(Generic[_Row]):
    """The summary of a call, and the rows that it lists: if there are many, some of them."""

    summary: Summary
    rows: Sequence[_Row]
