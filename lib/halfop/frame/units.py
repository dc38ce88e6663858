"""Counts, durations and instants as people read them."""

from __future__ import annotations

import unicodedata
from datetime import datetime, timedelta, timezone
from itertools import accumulate

_SCALES = ((10**18, "E"), (10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
_WIDE = frozenset("WF")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def count(number: int) -> str:
    return f"{number:,}"


def plural(number: int, noun: str) -> str:
    """Returns a number with its noun: `1 run`, `2 runs`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def compact(number: float) -> str:
    """Returns a number in at most four characters, for an axis."""
    for size, letter in _SCALES:
        if abs(number) >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def duration(millis: float) -> str:
    """Returns a duration in two units at most: `2 d 3 h`, `4 min 10 s`, `3.2 s`, `120 ms`."""
    if millis < 0:
        return f"-{duration(-millis)}"
    if millis < 1000:
        return f"{millis:.0f} ms"
    if millis < 60_000:
        return f"{millis / 1000:.3g} s"
    place = next(i for i, (size, _) in enumerate(_UNITS) if millis >= size)
    (size, unit), (smaller, small_unit) = _UNITS[place], _UNITS[place + 1]
    whole, rest = divmod(int(millis), size)
    return f"{whole:,} {unit}" + (f" {rest // smaller} {small_unit}" if rest // smaller else "")


def length(span: timedelta) -> str:
    return duration(span / timedelta(milliseconds=1))


def instant(at: datetime | None) -> str:
    """Returns an instant in UTC, to the second."""
    return "never" if at is None else f"{at.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}"


def moment(millis: int | None) -> str:
    """Returns an instant given in milliseconds, to the second; a producer's clock may be outside of any calendar."""
    if millis is None:
        return ""
    try:
        return instant(EPOCH + timedelta(milliseconds=millis))
    except OverflowError:
        return f"{millis:,} ms after 1970"


def exact(millis: int) -> str:
    """Returns an instant as `moment` does, but to the millisecond."""
    text = moment(millis)
    return text if text.endswith("1970") else f"{text}.{millis % 1000:03}"


def cut(text: str, width: int) -> str:
    """Returns the text cut to that many columns, `…` included; wide characters take two."""
    ends = list(accumulate(2 if unicodedata.east_asian_width(c) in _WIDE else 1 for c in text))
    if not ends or ends[-1] <= width:
        return text
    return text[: sum(end < width for end in ends)] + "…"
