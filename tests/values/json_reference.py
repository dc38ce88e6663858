"""What a JSON body means for a schema, as slowly and plainly as it can be said: by `json` and a check a type."""

from __future__ import annotations

import base64
import json
import re
import struct
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn

from halfop.settings.ddl import Kind

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
DEEPEST = 200
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:([Zz])|([+-])(\d\d):?(\d\d))?", re.ASCII
)


class Unfit(Exception):
    """The body does not fit."""


class Number(NamedTuple):
    """A number as it is written."""

    text: str

    @property
    def is_whole(self) -> bool:
        return re.fullmatch(r"-?\d+", self.text) is not None


class Pairs(NamedTuple):
    """An object: a name may come more than once."""

    pairs: list[tuple[str, Any]]


def value_of(body: bytes, kind: Kind) -> Any:
    """The value of a body; Unfit if it has none."""
    if depth(body) > DEEPEST:
        raise Unfit
    try:
        text = body.decode("utf-8", "surrogateescape")  # text that no field takes need not be UTF-8
        found = json.loads(
            text, object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=_no_constant
        )
    except ValueError:
        raise Unfit from None
    if half_surrogates(text):
        raise Unfit
    return checked(found, kind)


def depth(body: bytes) -> int:
    deep = most = 0
    in_text = escaped = False
    for byte in body:
        if in_text:
            in_text, escaped = byte != 34 or escaped, byte == 92 and not escaped
        else:
            in_text = byte == 34
            deep += (byte in b"[{") - (byte in b"]}")
            most = max(most, deep)
    return most


def half_surrogates(text: str) -> bool:
    """Returns whether an escape stands for half a character."""
    escapes = re.sub(r"\\[^u]", "", text)
    whole = re.sub(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}", "", escapes)
    return re.search(r"\\u[dD][89a-fA-F]", whole) is not None


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)


def checked(given: Any, kind: Kind) -> Any:
    if kind.name == "STRUCT":
        return _struct(given, kind)
    if kind.name == "MAP":
        _expect(isinstance(given, Pairs))
        return {_text(name): _or_none(value, kind.parts[0]) for name, value in given.pairs}
    if kind.name == "ARRAY":
        _expect(type(given) is list)
        return [_or_none(each, kind.parts[0]) for each in given]
    return _scalar(given, kind)


def _struct(given: Any, kind: Kind) -> dict[str, Any]:
    _expect(isinstance(given, Pairs))
    fields, found = dict(kind.fields), dict.fromkeys((name for name, _ in kind.fields), None)
    for name, value in given.pairs:
        if name in fields:
            found[name] = _or_none(value, fields[name])
    return found


def _or_none(given: Any, kind: Kind) -> Any:
    return None if given is None else checked(given, kind)


def _expect(is_so: bool) -> None:
    if not is_so:
        raise Unfit


def _text(given: Any) -> str:
    _expect(type(given) is str)
    _expect(not any("\ud800" <= character <= "\udfff" for character in given))
    return str(given)


def _scalar(given: Any, kind: Kind) -> Any:  # noqa: PLR0911
    name = kind.name
    if name == "STRING":
        return _text(given)
    if name == "BOOLEAN":
        _expect(type(given) is bool)
        return given
    if name in BITS:
        _expect(isinstance(given, Number) and given.is_whole and len(given.text) < 30)
        most = 2 ** (BITS[name] - 1)
        _expect(-most <= int(given.text) < most)
        return int(given.text)
    if name in ("FLOAT", "DOUBLE"):
        return _float(given, name)
    if name == "DECIMAL":
        return _decimal(given, kind.precision, kind.scale)
    if name == "BINARY":
        return _bytes(_text(given))
    return _time(given) if name == "TIMESTAMP" else _date(_text(given))


def _float(given: Any, name: str) -> float:
    _expect(isinstance(given, Number))
    found = float(given.text)
    _expect(abs(found) < float("inf"))
    if name == "DOUBLE":
        return found
    _expect(abs(found) <= 3.4028234663852886e38)
    return float(struct.unpack("f", struct.pack("f", found))[0])


def _decimal(given: Any, precision: int, scale: int) -> Decimal:
    text = given.text if isinstance(given, Number) else _text(given)
    match = re.fullmatch(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d{1,9}))?", text, re.ASCII)
    _expect(match is not None)
    assert match is not None
    sign, whole, after, exponent = match.groups(default="")
    digits, shift = whole + after, int(exponent or 0) - len(after) + scale
    digits = digits.lstrip("0")
    if not digits:
        return Decimal(0).scaleb(-scale)
    _expect(shift >= 0 or -shift < len(digits))
    if shift < 0:
        _expect(set(digits[shift:]) == {"0"})
        digits = digits[:shift]
    else:
        _expect(shift <= 40)
        digits += "0" * shift
    _expect(len(digits) <= precision)
    return Decimal(f"{sign}{digits}E-{scale}")


def _bytes(text: str) -> bytes:
    _expect(len(text) % 4 == 0 and re.fullmatch(r"[A-Za-z0-9+/]*={0,2}", text) is not None)
    return base64.b64decode(text)


def _date(text: str) -> date:
    _expect(re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) is not None)
    try:
        return date(*map(int, text.split("-")))
    except ValueError:
        raise Unfit from None


def _time(given: Any) -> datetime:
    try:
        if isinstance(given, Number):
            _expect(given.is_whole and len(given.text) < 30)
            return EPOCH + timedelta(milliseconds=int(given.text))
        match = _TIME.fullmatch(_text(given))
        _expect(match is not None)
        assert match is not None
        *whole, fraction, _, sign, hours, minutes = match.groups()
        found = datetime(*map(int, whole), tzinfo=timezone.utc)  # type: ignore[arg-type,misc]
        micros = round(Decimal(f"0.{fraction or 0}") * 1_000_000)
        off = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        _expect(off < timedelta(hours=24) and int(minutes or 0) < 60)
        return found + timedelta(microseconds=micros) - (-off if sign == "-" else off)
    except (ValueError, OverflowError):
        raise Unfit from None
