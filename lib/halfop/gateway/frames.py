"""Frames of RocketMQ's remoting protocol as a server sees them: found in a stream, read, and written.

A frame is its length, the length of its header (the high byte is the header's form), the header, and a body. The header
is JSON, or binary in RocketMQ's own form. No I/O here.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple

import orjson

from halfop.rocketmq.wire.codes import ANSWER

MAX_HEADER = 64 << 10
FRAME_ROOM = 64 << 10  # for what a frame holds besides the body
JSON, BINARY = 0, 1

_PREFIX = Struct(">II")
_BEGIN = Struct(">hbhii")  # code, language, version, opaque, flag
_INT, _SHORT = Struct(">i"), Struct(">h")
_JAVA = 0
_VERSION = 493  # of 5.3.3
_SHORTEST_BINARY = _BEGIN.size + 8
_NO_FIELDS: dict[str, str] = {}


class BadFrame(Exception):
    """Bytes that no client of RocketMQ sends; the connection is of no use any more."""


class Request(NamedTuple):
    """A frame that was received. `form` is that of its header, in which it is answered."""

    code: int
    flag: int
    opaque: int
    fields: dict[str, str]
    remark: str
    version: int
    form: int
    body: bytes


class Splitter:
    """Finds whole frames in what arrives; a frame's lengths are judged before anything is kept for it."""

    def __init__(self, max_frame: int) -> None:
        self._max, self._held, self._wanted = max_frame, bytearray(), 0

    @property
    def held(self) -> int:
        """The bytes of a frame that has begun and is not whole yet."""
        return len(self._held)

    def feed(self, data: bytes) -> list[Request]:
        """The frames that are whole now. Raises BadFrame."""
        if self._held:
            self._held += data
            if len(self._held) < self._wanted:
                return []
            data = bytes(self._held)
            self._held = bytearray()
        found: list[Request] = []
        at, size = 0, len(data)
        while size - at >= _PREFIX.size:
            length, mark = _PREFIX.unpack_from(data, at)
            header = mark & 0xFFFFFF
            if length > self._max or header > MAX_HEADER or header + 4 > length:
                raise BadFrame(f"a frame of {length} bytes with a header of {header}")
            end = at + 4 + length
            if end > size:
                break
            begin = at + 8
            found.append(read(data[begin : begin + header], mark >> 24, data[begin + header : end]))
            at = end
        self._keep(data, at)
        return found

    def _keep(self, data: bytes, at: int) -> None:
        if at < len(data):
            self._held += data[at:]
            known = len(self._held) >= _PREFIX.size  # and so judged
            self._wanted = 4 + int(_PREFIX.unpack_from(self._held)[0]) if known else _PREFIX.size


# ---- reading ----


def read(header: bytes, form: int, body: bytes) -> Request:
    """The request that a frame holds. Raises BadFrame."""
    try:
        if form == JSON:
            return _json(header, body)
        if form == BINARY:
            return _binary(header, body)
    except (ValueError, KeyError, TypeError, AttributeError, struct_error, RecursionError) as error:
        raise BadFrame(f"a header that cannot be read: {type(error).__name__}") from error
    raise BadFrame(f"a header of unknown form {form}")


def _json(header: bytes, body: bytes) -> Request:
    found = orjson.loads(header)
    code, flag, opaque = found["code"], found["flag"], found["opaque"]
    if type(code) is not int or type(flag) is not int or type(opaque) is not int or not -(2**31) <= opaque < 2**31:
        raise ValueError
    fields = found.get("extFields")
    fields = _NO_FIELDS if fields is None else _texts(fields)
    version = found.get("version", 0)
    remark = found.get("remark")
    remark = remark if isinstance(remark, str) else ""
    return Request(code, flag, opaque, fields, remark, version if type(version) is int else 0, JSON, body)


def _texts(fields: dict[str, Any]) -> dict[str, str]:
    """The fields as texts; a client in another language than Java may send numbers and booleans."""
    for value in fields.values():
        if type(value) is not str:
            return {name: each for name, each in ((n, _text(v)) for n, v in fields.items()) if each is not None}
    return fields


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise ValueError


def _binary(header: bytes, body: bytes) -> Request:
    if len(header) < _SHORTEST_BINARY:
        raise ValueError
    code, _, version, opaque, flag = _BEGIN.unpack_from(header)
    remark, at = _string(header, _BEGIN.size, _INT)
    (length,) = _INT.unpack_from(header, at)
    at += 4
    if length < 0 or at + length != len(header):
        raise ValueError
    fields = {}
    while at < len(header):
        name, at = _string(header, at, _SHORT)
        fields[name], at = _string(header, at, _INT)
    return Request(code, flag, opaque, fields, remark, version, BINARY, body)


def _string(header: bytes, at: int, width: Struct) -> tuple[str, int]:
    (length,) = width.unpack_from(header, at)
    at += width.size
    end = at + length
    if length < 0 or end > len(header):
        raise ValueError
    return header[at:end].decode(), end


# ---- writing ----


def answer(
    request: Request, code: int, fields: Mapping[str, str] = _NO_FIELDS, remark: str = "", body: bytes = b""
) -> bytes:
    """The frame that answers a request, with a header in the request's form."""
    return written(code, ANSWER, request.opaque, fields, request.form, remark, body)


def written(  # noqa: PLR0913, PLR0917 - a frame's fields
    code: int, flag: int, opaque: int, fields: Mapping[str, str], form: int, remark: str = "", body: bytes = b""
) -> bytes:
    """A frame."""
    header = (_as_binary if form == BINARY else _as_json)(code, flag, opaque, fields, remark)
    return b"".join((_PREFIX.pack(4 + len(header) + len(body), form << 24 | len(header)), header, body))


def _as_json(code: int, flag: int, opaque: int, fields: Mapping[str, str], remark: str) -> bytes:
    header: dict[str, object] = {
        "code": code,
        "flag": flag,
        "language": "JAVA",
        "opaque": opaque,
        "version": _VERSION,
        "serializeTypeCurrentRPC": "JSON",
        "extFields": fields,  # never null: a client of 5.x reads it as it is
    }
    if remark:
        header["remark"] = remark
    return orjson.dumps(header)


def _as_binary(code: int, flag: int, opaque: int, fields: Mapping[str, str], remark: str) -> bytes:
    said = remark.encode()
    pairs = b"".join(_pair(name, value) for name, value in fields.items())
    begin = _BEGIN.pack(code, _JAVA, _VERSION, opaque, flag)
    return b"".join((begin, _INT.pack(len(said)), said, _INT.pack(len(pairs)), pairs))


def _pair(name: str, value: str) -> bytes:
    named, valued = name.encode(), value.encode()
    return b"".join((_SHORT.pack(len(named)), named, _INT.pack(len(valued)), valued))
