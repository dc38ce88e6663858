"""Command line arguments that jobs share: types that refuse wrong text with what was expected, and --key or --where."""

from __future__ import annotations

import argparse
import re
from datetime import datetime, timedelta, timezone

from halfop.columns.keys import Key, as_key
from halfop.frame.units import EPOCH
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


def _iso(text: str) -> datetime:
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError(text)
    date, minutes, seconds, _, hours_off, minutes_off = match.groups()
    whole, _, fraction = (seconds or ":00").replace(",", ".").partition(".")
    zone = f"{hours_off}:{minutes_off}" if hours_off else "+00:00"
    return datetime.fromisoformat(f"{date}T{minutes or '00:00'}{whole}.{fraction:0<6}{zone}")
