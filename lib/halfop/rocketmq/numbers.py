"""Whole numbers as Java's parseInt and parseLong read them: an optional sign and ASCII digits, nothing trimmed."""

from __future__ import annotations

import re

# For searches in whole texts; the type's bounds come on top.
WHOLE_NUMBER = "[+-]?[0-9]+"
# Leading zeros may be many, and Python reads no more than some thousand digits.
_SIGN_AND_DIGITS = re.compile(r"([+-]?)0*([0-9]{1,19})")


def parse_int(text: str | None) -> int | None:
    """Returns the number that Integer.parseInt gives; None if it throws."""
    return _parsed(text, 31)


def parse_long(text: str | None) -> int | None:
    """Returns the number that Long.parseLong gives; None if it throws."""
    return _parsed(text, 63)


def _parsed(text: str | None, bits: int) -> int | None:
    if text and len(text) <= bits * 3 // 10 and text.isascii() and text.isdecimal():  # as nearly all
        return int(text)
    match = _SIGN_AND_DIGITS.fullmatch(text or "")
    if match is None:
        return None
    number = int(match[2]) * (-1 if match[1] == "-" else 1)
    return number if -(2**bits) <= number < 2**bits else None
