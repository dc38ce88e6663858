"""Command line arguments that jobs share: types that refuse wrong text, --key or --where, and --fail-on."""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Collection
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from typing import Literal, NamedTuple

from halfop.columns.keys import Key, as_key
from halfop.frame.summary import Summary
from halfop.frame.units import EPOCH
from halfop.rules.reasons import HARMLESS, Reason, known
from halfop.settings.values import parse_duration

_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d)(:\d\d(?:[.,]\d{1,6})?)?)?(?:([Zz])|([+-]\d\d):?(\d\d))?", re.ASCII
)


def duration(text: str) -> timedelta:
    """`6s`."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, given {text!r}") from error


def interval(text: str) -> timedelta:
    """`6s`, and not `0s`."""
    if not (found := duration(text)):
        raise argparse.ArgumentTypeError(f"expected a duration above 0, given {text!r}")
    return found


def positive_int(text: str) -> int:
    """`1` and up."""
    if not re.fullmatch(r"0*[1-9][0-9]{0,17}", text):
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, given {text!r}")
    return int(text)


def offset(text: str) -> int:
    """`0` and up."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"expected an offset, a whole number of at least 0, given {text!r}")
    return int(text)


def half_key(text: str) -> Key:
    """`broker-a/0/4711`."""
    key = as_key(text)
    if key is None or not key.broker_name:
        raise argparse.ArgumentTypeError(f"expected BROKER/QUEUE/OFFSET, as broker-a/0/4711; given {text!r}")
    return key


def add_selection(parser: argparse.ArgumentParser, key: str, where: str) -> argparse._MutuallyExclusiveGroup:
    """Adds --key and --where with these help texts, and returns their group, of which a call gives one."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--key", action="append", default=[], type=half_key, metavar="BROKER/QUEUE/OFFSET", help=f"{key} (repeatable)"
    )
    which.add_argument("--where", metavar="SQL", help=where)
    return which


def instant(text: str) -> datetime:
    """`2025-06-15T15:06:40Z`, another zone or none (UTC), or epoch milliseconds."""
    try:
        if re.fullmatch(r"[0-9]{1,15}", text):
            return EPOCH + timedelta(milliseconds=int(text))
        return _iso(text).astimezone(timezone.utc)
    except (ValueError, OverflowError) as error:
        expected = "ISO-8601 as 2025-06-15T15:06:40Z (without a zone: UTC), or epoch milliseconds"
        raise argparse.ArgumentTypeError(f"expected an instant: {expected}; given {text!r}") from error


Now = Literal["now"]


def instant_or_now(text: str) -> datetime | Now:
    """As `instant`, or the word `now`: each call by these arguments has its own."""
    return "now" if text == "now" else instant(text)


def at_call(given: datetime | Now | None) -> datetime | None:
    """Returns the instant that is meant by a call that begins now."""
    return datetime.now(timezone.utc) if given == "now" else given


def _iso(text: str) -> datetime:
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError(text)
    date, minutes, seconds, _, hours_off, minutes_off = match.groups()
    whole, _, fraction = (seconds or ":00").replace(",", ".").partition(".")
    zone = f"{hours_off}:{minutes_off}" if hours_off else "+00:00"
    return datetime.fromisoformat(f"{date}T{minutes or '00:00'}{whole}.{fraction:0<6}{zone}")


log = logging.getLogger("halfop.fail_on")

_FORM = re.compile(r"(conflicts|rejects)(?:=([0-9]{1,18}(?:\.[0-9]{1,9})?%|[0-9]{1,18}))?", re.ASCII)


class FailOn(NamedTuple):
    """At least so many findings of a kind, or such a part of the rows that the call read."""

    kind: str
    rows: int = 1
    part: Fraction = Fraction(0)
    text: str = ""  # as it was given


def fail_on(text: str) -> FailOn:
    """`conflicts`, `rejects=100` or `rejects=1%`."""
    match = _FORM.fullmatch(text)
    kind, least = match.groups() if match else ("", "0")
    found = (FailOn(kind) if least is None else _least(kind, least))._replace(text=text)
    if found.rows < 1 or not 0 <= found.part <= 1:
        expected = "expected conflicts or rejects, or either with =100 (rows, at least 1) or =1% (above 0, at most 100)"
        raise argparse.ArgumentTypeError(f"{expected}; given {text!r}")
    return found


def _least(kind: str, text: str) -> FailOn:
    if not text.endswith("%"):
        return FailOn(kind, int(text))
    part = Fraction(text.removesuffix("%")) / 100
    return FailOn(kind, int(part > 0), part)


def add_fail_on(parser: argparse.ArgumentParser, call: str) -> None:
    """Adds the option to a call of that name."""
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        type=fail_on,
        metavar="KIND[=N|=N%]",
        help=f"end with status 5 if {call} has found some: conflicts, or rejects (any reason but REDUNDANT and "
        "FOUND_RANGE); with =100 at least 100 of them; with =1%% at least 1%% of the rows that it read (repeatable)",
    )


def failing_on(bounds: Collection[FailOn], summary: Summary) -> Summary:
    """Gives a call that is done status 5 if it has found what one of these asks for, and says which, and how many."""
    for bound in bounds:
        found = sum(n for name, n in summary.extra.get("rejected", {}).items() if _counts(bound.kind, name))
        read = sum(summary.rows_read.values())
        if summary.status in (0, 5) and found >= bound.rows and found >= bound.part * read:
            summary.status = 5
            note = f"status 5, by --fail-on {bound.text}: {found:,} {bound.kind}, of {read:,} rows that were read"
            log.warning(note)
            summary.notes.append(note)
    return summary


def _counts(kind: str, name: str) -> bool:
    reason = known(name.partition(".")[2])
    return reason is Reason.CONFLICT if kind == "conflicts" else reason not in HARMLESS
