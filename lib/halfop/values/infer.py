"""The schema of JSON bodies as some of them show it: a proposal, for people to review."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import reduce
from typing import Any

import msgspec

from halfop.settings.ddl import refuse_names
from halfop.values.json_bodies import nests_too_deep

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_WIDER = {frozenset({"BIGINT", "DOUBLE"}): "DOUBLE", frozenset({"TIMESTAMP", "STRING"}): "STRING"}
_WIDER |= {frozenset({"BIGINT", "DECIMAL(38,0)"}): "DECIMAL(38,0)"}

# The name of a type, None if only nulls were seen, a list with an element's, a dict with those of fields; a frozenset
# with the names of types that no type fits.
Seen = Any


def inferred(bodies: Iterable[bytes]) -> tuple[str, list[str]]:
    """Returns the fields as SQL declares them, and the places that are left out, with the types seen there."""
    seen: Seen = reduce(_both, (_seen(value) for value in map(_decoded, bodies) if isinstance(value, dict)), {})
    left_out: list[str] = []
    fields = _fields(seen, "value", left_out)
    return ", ".join(fields), left_out


def _decoded(body: bytes) -> object:
    try:
        return None if nests_too_deep(body) else msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _seen(value: object) -> Seen:
    if isinstance(value, dict):
        return {name: _seen(each) for name, each in value.items()}
    if isinstance(value, list):
        return [reduce(_both, map(_seen, value), None)]
    if isinstance(value, bool) or value is None:
        return None if value is None else "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if -(2**63) <= value < 2**63 else "DECIMAL(38,0)"
    if isinstance(value, float):
        return "DOUBLE"
    return "TIMESTAMP" if _TIME.fullmatch(str(value)) else "STRING"


def _both(one: Seen, other: Seen) -> Seen:
    if one is None or other is None or one == other:
        return other if one is None else one
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _both(one.get(name), other.get(name)) for name in (*one, *(n for n in other if n not in one))}
    if isinstance(one, list) and isinstance(other, list):
        return [_both(one[0], other[0])]
    if isinstance(one, str) and isinstance(other, str):
        return _WIDER.get(frozenset({one, other})) or frozenset({one, other})
    return _names(one) | _names(other)


def _names(seen: Seen) -> frozenset[str]:
    if isinstance(seen, frozenset):
        return seen
    return frozenset({"STRUCT" if isinstance(seen, dict) else "ARRAY" if isinstance(seen, list) else seen})


def _fields(seen: dict[str, Seen], at: str, left_out: list[str]) -> list[str]:
    found: dict[str, str] = {}
    for name, kind in seen.items():
        text = _ddl(kind, f"{at}.{name}", left_out)
        try:
            refuse_names([*found, name])
        except ValueError:
            text = None
        if text is None:
            left_out.append(f"{at}.{name}{_seen_as(kind)}")
        else:
            found[name] = text
    return ["`{}` {}".format(name.replace("`", "``"), text) for name, text in found.items()]


def _seen_as(kind: Seen) -> str:
    return f" ({', '.join(sorted(kind))})" if isinstance(kind, frozenset) else ""


def _ddl(kind: Seen, at: str, left_out: list[str]) -> str | None:
    if isinstance(kind, dict):
        fields = _fields(kind, at, left_out)
        return f"STRUCT<{', '.join(fields)}>" if fields else None
    if isinstance(kind, list):
        element = _ddl(kind[0], f"{at}[...]", left_out)
        return None if element is None else f"ARRAY<{element}>"
    return kind if isinstance(kind, str) else None
