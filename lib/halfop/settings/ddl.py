"""Types as Spark's SQL writes them, read without Spark: `id BIGINT, items ARRAY<STRUCT<sku: STRING, n: INT>>`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_SAME = {"BYTE": "TINYINT", "SHORT": "SMALLINT", "INTEGER": "INT", "LONG": "BIGINT", "REAL": "FLOAT"}
_SAME |= {"DEC": "DECIMAL", "NUMERIC": "DECIMAL"}
SIMPLE = frozenset(
    ["BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP"]
)
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|[<>(),:]|\S)")
_UNFIT = re.compile(r"[ ,;{}()\n\t=]")  # Delta refuses such names where columns have no mapping
MOST_DIGITS = 38


@dataclass(frozen=True)
class Kind:
    """A type. `parts` are an array's element, or a map's value; `fields` are a struct's."""

    name: str
    parts: tuple[Kind, ...] = ()
    fields: tuple[tuple[str, Kind], ...] = ()
    precision: int = 0
    scale: int = 0


def parsed(text: str) -> Kind:
    """The struct with these fields; a ValueError says what was expected, and where."""
    tokens = _Tokens(text)
    fields = tokens.fields(colon=False)
    if tokens.next:
        raise ValueError(f"expected `,` or the end, not {tokens.next!r}")
    return Kind("STRUCT", fields=fields)


def refuse_names(names: Iterable[str]) -> None:
    """Raises ValueError if a table's struct cannot have fields of these names."""
    known: dict[str, str] = {}
    for name in names:
        if _UNFIT.search(name):
            raise ValueError(f"a table has no field of the name {name!r}: a space or one of ,;{{}}()= is in it")
        if name.lower() in known:
            raise ValueError(f"the fields {known[name.lower()]} and {name} are one: a table's names have no case")
        known[name.lower()] = name


class _Tokens:
    def __init__(self, text: str) -> None:
        self._left = _TOKEN.findall(text.strip())

    @property
    def next(self) -> str:
        return self._left[0] if self._left else ""

    def take(self) -> str:
        return self._left.pop(0) if self._left else ""

    def expect(self, token: str) -> None:
        if (found := self.take()) != token:
            raise ValueError(f"expected `{token}`, not {found or 'the end'!r}")

    def fields(self, colon: bool) -> tuple[tuple[str, Kind], ...]:
        found = [self._field(colon)]
        while self.next == ",":
            self.take()
            found.append(self._field(colon))
        refuse_names(name for name, _ in found)
        return tuple(found)

    def _field(self, colon: bool) -> tuple[str, Kind]:
        name = self.take()
        if not re.match(r"[\w`]", name):
            raise ValueError(f"expected a field, as `id BIGINT`, not {name or 'the end'!r}")
        if colon and self.next == ":":
            self.take()
        plain = name[1:-1].replace("``", "`") if name.startswith("`") else name
        return plain, self._kind(plain)

    def _kind(self, field: str) -> Kind:
        given = self.take()
        name = _SAME.get(given.upper(), given.upper())
        if name in SIMPLE:
            return Kind(name)
        if name == "DECIMAL":
            return self._decimal(field)
        if name not in ("ARRAY", "MAP", "STRUCT"):
            known = ", ".join(sorted(SIMPLE))
            raise ValueError(f"{field}: expected a type ({known}, DECIMAL, ARRAY, MAP, STRUCT), not {given!r}")
        self.expect("<")
        found = self._nested(name, field)
        self.expect(">")
        return found

    def _nested(self, name: str, field: str) -> Kind:
        if name == "STRUCT":
            return Kind(name, fields=self.fields(colon=True))
        if name == "MAP":
            if (key := self.take().upper()) != "STRING":
                raise ValueError(f"{field}: expected MAP<STRING, …>, because JSON's names are texts, not {key!r}")
            self.expect(",")
        return Kind(name, (self._kind(field),))

    def _decimal(self, field: str) -> Kind:
        numbers = ["10", "0"]
        if self.next == "(":
            self.take()
            numbers[0] = self.take()
            if self.next == ",":
                self.take()
                numbers[1] = self.take()
            self.expect(")")
        digits, after = (int(each) if each.isdecimal() else -1 for each in numbers)
        if not (1 <= digits <= MOST_DIGITS and 0 <= after <= digits):
            raise ValueError(f"{field}: expected DECIMAL(digits, digits after the point), 1 to {MOST_DIGITS}")
        return Kind("DECIMAL", precision=digits, scale=after)
