"""The result of a job, which it prints as its last line."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from numbers import Integral, Real
from typing import Any


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
    extra: dict[str, Any] = field(default_factory=dict)

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

    def add_failed(self, what: str, parts: Mapping[str, str], transient: bool, status: int = 1) -> None:
        """Records parts of the work that failed while the others were done; the highest status counts.

        `transient`: all of them may succeed later though nobody has changed anything.
        """
        self.status = max(self.status, status)
        self.extra[what] = dict(parts)
        self.extra["transient"] = transient and self.extra.get("transient", True)

    def fields(self) -> dict[str, Any]:
        """The fields in their order, counts by name, phases as they came, then the extra fields by name."""
        own = {name: value for name, value in vars(self).items() if name != "extra"}
        if clash := own.keys() & self.extra.keys():
            raise ValueError(f"extra fields would hide the summary's own: {', '.join(sorted(clash))}")
        counts = {name: _sorted(own[name]) for name in ("decisions", "rows_read", "rows_written")}
        return own | counts | _sorted(self.extra)

    def to_json(self) -> str:
        """The fields in one line."""
        return json_line(self.fields())
