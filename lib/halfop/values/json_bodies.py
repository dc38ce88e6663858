"""Bodies of JSON, by msgspec: strict about types, so that no value is guessed; other fields do not count."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import Annotated, Any, TypedDict

import msgspec

from halfop.settings.ddl import Kind, parsed
from halfop.values.misfit import Misfit

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_SINGLE = 3.4028234663852886e38  # the largest FLOAT
_MOST_DEEP = 200  # Python's own limit depends on who calls
_PARTS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,9})?")
_quantized = Context(prec=39).quantize  # rounding may carry: one digit more than a DECIMAL has
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime(1, 1, 1, tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND
_LAST = (datetime(9999, 12, 31, 23, 59, 59, 999_999, timezone.utc) - _EPOCH) // _MICROSECOND


def reader(schema: str, _message: str) -> Callable[[bytes], object]:
    """Returns what reads a body of these fields as a dict; it raises Misfit."""
    decode = msgspec.json.Decoder(_type(parsed(schema)), dec_hook=_made, float_hook=Decimal).decode

    def read(body: bytes) -> object:
        try:
            if nests_too_deep(body):
                raise Misfit(f"nested more than {_MOST_DEEP} deep")
            return decode(body)
        except msgspec.ValidationError as error:
            raise Misfit(str(error).replace(" | null`", "`")) from None
        except msgspec.DecodeError as error:
            raise Misfit(f"no JSON: {str(error).removeprefix('JSON is malformed: ')}") from None
        except UnicodeDecodeError:
            raise Misfit("no JSON: a text is no UTF-8") from None
        except ArithmeticError:
            raise Misfit("a number is beyond what any column's type holds") from None

    return read


def nests_too_deep(body: bytes) -> bool:
    """Returns whether arrays and objects lie deeper in each other than is read."""
    if len(body) <= _MOST_DEEP:
        return False
    return body.count(b"[") + body.count(b"{") > _MOST_DEEP and _depth(body) > _MOST_DEEP


def _depth(body: bytes) -> int:
    deep = most = 0
    for part in _PARTS.findall(body):
        deep += (part in b"[{") - (part in b"]}")
        most = max(most, deep)
    return most


# ---- types as msgspec knows them ----


def _type(kind: Kind) -> Any:
    if kind.name == "STRUCT":
        return _struct(kind)
    if kind.name == "ARRAY":
        return list[_type(kind.parts[0]) | None]  # type: ignore[misc]
    if kind.name == "MAP":
        return dict[str, _type(kind.parts[0]) | None]  # type: ignore[misc]
    if kind.name == "DECIMAL":
        about = {"unit": Decimal(1).scaleb(-kind.scale), "beyond": Decimal(1).scaleb(kind.precision - kind.scale)}
        return type(f"DECIMAL({kind.precision},{kind.scale})", (Exact,), {"__slots__": (), **about})
    return _scalar(kind.name)


def _struct(kind: Kind) -> Any:
    fields = {name: _type(of) | None for name, of in kind.fields}
    msgspec.json.encode([*fields])  # else a name that is no ASCII is never found: Python keeps its UTF-8 only then
    return TypedDict("STRUCT", fields, total=False)  # type: ignore[operator]


def _scalar(name: str) -> Any:
    if name in _BITS:
        most = 2 ** (_BITS[name] - 1) - 1
        return Annotated[int, msgspec.Meta(ge=-most - 1, le=most)]
    if name == "FLOAT":
        return Annotated[float, msgspec.Meta(ge=-_SINGLE, le=_SINGLE)]
    return _PLAIN[name]


class Moment(int):
    """Microseconds since 1970."""

    __slots__ = ()


class Exact(Decimal):
    """A multiple of `unit` whose absolute value is less than `beyond`."""

    __slots__ = ()

    unit: Decimal
    beyond: Decimal


_PLAIN = {"BOOLEAN": bool, "DOUBLE": float, "STRING": str, "BINARY": bytes, "DATE": date, "TIMESTAMP": Moment}


# ---- what msgspec does not know: a ValueError becomes its error, with the place ----


def _made(kind: type, given: object) -> object:
    return Moment(_micros(given)) if kind is Moment else _exact(given, kind)


def _micros(given: object) -> int:
    if type(given) is int:
        micros = given * 1000
    elif type(given) is str:
        try:
            found = msgspec.convert(given, datetime)
        except msgspec.ValidationError:
            raise ValueError("Expected `TIMESTAMP`: epoch milliseconds, or a time as 2026-01-31T09:30:00Z") from None
        micros = ((found if found.tzinfo else found.replace(tzinfo=timezone.utc)) - _EPOCH) // _MICROSECOND
    else:
        raise ValueError(f"Expected `TIMESTAMP`, got `{_named(given)}`")
    if not _FIRST <= micros <= _LAST:
        raise ValueError("Expected `TIMESTAMP` of the years 1 to 9999")
    return micros


def _exact(given: object, kind: type[Exact]) -> Exact:
    if not (_NUMBER.fullmatch(given) if type(given) is str else type(given) in (int, Decimal)):
        raise ValueError(f"Expected `{kind.__name__}`, got `{_named(given)}`")
    found = kind(given)  # type: ignore[arg-type]
    if found.copy_abs() < kind.beyond:
        if found.same_quantum(kind.unit):  # as most are written, and nothing is made anew
            return found
        if (whole := _quantized(found, kind.unit)) == found:
            return kind(whole)
    raise ValueError(f"Expected `{kind.__name__}`")


def _named(given: object) -> str:
    """A type under msgspec's name for it."""
    return {"dict": "object", "list": "array", "Decimal": "float"}.get(type(given).__name__, type(given).__name__)
