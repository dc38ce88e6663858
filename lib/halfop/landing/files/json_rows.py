"""Typed rows from JSON lines. A value keeps its JSON type until it is checked: no number goes through a double."""

from __future__ import annotations

import json
import re
from binascii import a2b_base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfop.frame.units import EPOCH
from halfop.landing.fields import STRINGS, Field, fields, instants, known_names, numbers
from halfop.landing.files.typed import (
    BAD_BASE64,
    BAD_TIME,
    OUT_OF_RANGE,
    WRONG_TYPE,
    Cells,
    Problem,
    Typed,
    batch_of,
    first_problems,
    missing,
    null_value,
    unfit,
    unreadable,
)
from halfop.rocketmq.buffers import WHOLE_NUMBER, parse_long

_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?"
    r"(?:[Zz]|([+-][0-9]{2})(?::?([0-9]{2}))?)?"
)
_FARTHEST_ZONE = 18 * 60  # minutes
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_WHOLE = re.compile(WHOLE_NUMBER)
_ESCAPE = b"\\u"
_EPOCH, _MICROSECOND = EPOCH.replace(tzinfo=None), timedelta(microseconds=1)
_MILLIS_IN_TEXT = range(10**12, 10**13)  # from 2001 to 2286
_LONG = range(-(2**63), 2**63)
Row = Mapping[str, Any]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


_DECODE = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_number).decode
_UNREADABLE: Row = {}


def typed(kind: str, lines: Sequence[bytes], first: int) -> Typed:
    """The rows of these lines; `first` is the place of the first line. Blank lines are no rows."""
    places = np.array([place for place, line in enumerate(lines) if line.strip(b" ")], np.int64)
    given = [lines[place] for place in places]
    rows = [_parsed(line) for line in given]
    columns = {field.name: _cells(field, rows) for field in fields(kind)}
    found = first_problems(kind, columns, lambda field, row: _problem(field, rows[row], given[row]))
    unknown = {name for row in rows for name in row} - {*known_names(kind)}
    return Typed(kind, batch_of(kind, columns), places + first, found, unknown)


def _parsed(line: bytes) -> Row:
    """The object that the line is; _UNREADABLE, which lacks all that a row must have, if it is none."""
    try:
        found = _DECODE(line.decode())
        if _ESCAPE in line:  # it may be half of a character that JSON writes as two
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return _UNREADABLE
    return found if isinstance(found, dict) else _UNREADABLE


def _cells(field: Field, rows: Sequence[Row]) -> Cells:
    raw = [row.get(field.name) for row in rows]
    kinds = set(map(type, raw))
    if kinds <= {type(None)}:
        return Cells(pa.nulls(len(raw), field.arrow), np.zeros(len(raw), np.bool_))
    if type(None) in kinds:
        given = np.fromiter((value is not None for value in raw), np.bool_, len(raw))
    else:
        given = np.ones(len(raw), np.bool_)
    return Cells(_values(field, raw, kinds - {type(None)}), given)


# ---- values ----


def _values(field: Field, raw: list[Any], kinds: set[type]) -> pa.Array:
    """The values, null if they do not fit; `kinds` are the types of those that are not null."""
    if field.type in ("INT", "BIGINT"):
        return numbers(_longs(raw, kinds), field)
    if field.type == "TIMESTAMP":
        return _instants(raw, kinds)
    if field.type == STRINGS:
        return _maps(raw)
    if field.type == "BOOLEAN":
        return pa.array(_only(raw, kinds, bool), field.arrow)
    texts = _only(raw, kinds, str)
    return pa.array(map(_bytes, texts) if field.type == "BINARY" else texts, field.arrow)


def _only(raw: list[Any], kinds: set[type], kind: type) -> list[Any]:
    return raw if kinds == {kind} else [value if type(value) is kind else None for value in raw]


def _bytes(text: str | None) -> bytes | None:
    return a2b_base64(text) if text is not None and len(text) % 4 == 0 and _BASE64.fullmatch(text) else None


def _longs(raw: list[Any], kinds: set[type]) -> pa.Array:
    if kinds == {int}:
        with suppress(OverflowError):
            return pa.array(raw, pa.int64())
    return pa.array(map(_long, raw), pa.int64())


def _long(value: Any) -> int | None:
    return parse_long(_number_text(value))


def _number_text(value: Any) -> str | None:
    """The text of a string, or of a whole number that is a Java long."""
    if type(value) is int and value in _LONG:
        return str(value)
    return value if type(value) is str else None


def _instants(raw: list[Any], kinds: set[type]) -> pa.Array:
    if str not in kinds:
        return instants(_longs(raw, kinds))
    from_millis = instants(pa.array(map(_millis, raw), pa.int64()))
    micros = [_iso_micros(value) if type(value) is str else None for value in raw]
    return pc.coalesce(from_millis, instants(pa.array(micros, pa.timestamp("us"))))


def _millis(value: Any) -> int | None:
    """A number, or a text with as many digits as epoch milliseconds have: `20250615` is a date of another form."""
    found = _long(value)
    return found if type(value) is int or (found is not None and found in _MILLIS_IN_TEXT) else None


def _iso_micros(text: str) -> int | None:
    """Microseconds since 1970 of ISO-8601 with or without a zone (without: UTC)."""
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, hours, minutes = match.groups("0")
    zone = int(hours) * 60 + int(minutes) * (-1 if hours.startswith("-") else 1)
    if abs(zone) > _FARTHEST_ZONE or int(minutes) > 59:
        return None
    try:
        day_and_hour = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second))
    except ValueError:
        return None
    return (day_and_hour - _EPOCH - timedelta(minutes=zone)) // _MICROSECOND + int(f"{fraction:0<6}"[:6])


def _maps(raw: list[Any]) -> pa.MapArray:
    maps = [value if type(value) is dict and all(type(v) is str for v in value.values()) else None for value in raw]
    ends = np.zeros(len(maps) + 1, np.int32)
    np.cumsum([len(each or ()) for each in maps], out=ends[1:])
    keys = pa.array([name for each in maps if each for name in each], pa.string())
    values = pa.array([value for each in maps if each for value in each.values()], pa.string())
    mask = pa.array([each is None for each in maps]) if None in maps else None
    return pa.MapArray.from_arrays(pa.array(ends), keys, values, mask=mask)


# ---- problems ----


def _problem(field: Field, row: Row, line: bytes) -> Problem:
    if row is _UNREADABLE:
        return unreadable(line)
    if row.get(field.name) is None:
        return null_value(field) if field.name in row else missing(field)
    return unfit(_reason(field, row[field.name]), field, row[field.name])


def _reason(field: Field, value: Any) -> str:
    text = _number_text(value)
    if field.type in ("INT", "BIGINT") and text is not None and _WHOLE.fullmatch(text):
        return OUT_OF_RANGE
    if field.type == "TIMESTAMP" and text is not None:
        return BAD_TIME
    if field.type == "BINARY" and type(value) is str:
        return BAD_BASE64
    return WRONG_TYPE
