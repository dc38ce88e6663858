"""Typed values from texts and numbers, strictly: null if a value is not exactly what it should be.

Expressions here and in the modules of rows are SQL text: a frame has some thousand of them, and each Column would be
several calls to the JVM.
"""

from __future__ import annotations

_ISO = (
    r"r'\A[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?"
    r"([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)?\z'"
)
_YEARS_1_TO_9999 = "BETWEEN -62135596800000L AND 253402300799999L"


def at_least_zero(number: str) -> str:
    return f"CASE WHEN {number} >= 0 THEN {number} END"


def epoch_millis(millis: str) -> str:
    return f"CASE WHEN {millis} {_YEARS_1_TO_9999} THEN timestamp_millis({millis}) END"


def iso_instant(text: str) -> str:
    """ISO-8601 with or without a zone (without: the session's, UTC)."""
    plain = f"replace(upper({text}), ',', '.')"
    with_colon = rf"regexp_replace({plain}, r'([+-]\d\d)(\d\d)\z', '$1:$2')"
    whole_zone = rf"regexp_replace({with_colon}, r'([+-]\d\d)\z', '$1:00')"
    with_seconds = rf"regexp_replace({whole_zone}, r'\A(.{{10}}.\d\d:\d\d)(?!:)', '$1:00')"
    return f"CASE WHEN {text} RLIKE {_ISO} THEN {known_years(f'try_cast({with_seconds} AS TIMESTAMP)')} END"


def known_years(instant: str) -> str:
    return f"CASE WHEN unix_millis({instant}) {_YEARS_1_TO_9999} THEN {instant} END"
