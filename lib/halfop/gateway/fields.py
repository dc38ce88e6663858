"""Fields of a request as Java reads them: a broker answers a request with a bad one with an error."""

from __future__ import annotations

from collections.abc import Mapping

from halfop.gateway.refused import Refused
from halfop.rocketmq.numbers import parse_int, parse_long
from halfop.rocketmq.wire.codes import AnswerCode


def text(fields: Mapping[str, str], name: str) -> str:
    """The field's text. Raises Refused if there is none."""
    found = fields.get(name)
    if found is None:
        raise Refused(AnswerCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
    return found


def an_int(fields: Mapping[str, str], name: str) -> int:
    """The field's number of 32 bits. Raises Refused if it is none."""
    found = text(fields, name)
    if len(found) < 10 and found.isascii() and found.isdecimal():
        return int(found)
    return _number(parse_int(found), name)


def a_long(fields: Mapping[str, str], name: str) -> int:
    """The field's number of 64 bits. Raises Refused if it is none."""
    found = text(fields, name)
    if len(found) < 19 and found.isascii() and found.isdecimal():
        return int(found)
    return _number(parse_long(found), name)


def a_flag(fields: Mapping[str, str], name: str) -> bool:
    """Whether the field is true; it may be missing."""
    return fields.get(name, "").lower() == "true"


def _number(found: int | None, name: str) -> int:
    if found is None:
        raise Refused(AnswerCode.SYSTEM_ERROR, f"the custom field <{name}> is no number that fits")
    return found
