"""Frames of RocketMQ's remoting protocol: found in a stream of bytes, read, and written. Nothing here does I/O.

A frame is a request, or the answer to one:

    4 bytes   the length of all that follows
    1 byte    the form of the header: JSON, or RocketMQ's own binary form
    3 bytes   the length of the header
    header    code, flag, opaque, remark, and fields: texts by name (`requests` declares those of each code)
    body

The owner of a connection feeds what arrives to a Splitter of its own, and gets the frames that are whole by then. A
frame's lengths are judged before anything is kept for it. A BadFrame means that nothing after it can be read, either:
the connection is of no use any more. An answer has the opaque of its request, and ANSWER in its flag; a request with
ONE_WAY gets none.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
from collections.abc import Mapping
from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple

import orjson

MAX_HEADER = 64 << 10
FRAME_ROOM = 64 << 10  # for what a frame holds besides the body
JSON, BINARY = 0, 1  # forms of a header
ANSWER, ONE_WAY = 1, 2  # in a flag

# Errors of reading JSON that is not as RocketMQ writes it.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)

_PREFIX = Struct(">II")
_BEGIN = Struct(">hbhii")  # code, language, version, opaque, flag
_INT, _SHORT = Struct(">i"), Struct(">h")
# by the number in a binary header
_LANGUAGES = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST"),
    "NODE_JS",
)
_JAVA, _OTHER = 0, "OTHER"
_NEWEST = 493  # 5.4.0
_SHORTEST_BINARY = _BEGIN.size + 8
_NO_FIELDS: dict[str, str] = {}


class BadFrame(Exception):
    """Bytes that no program of RocketMQ sends; `header` is the beginning of a header that cannot be read."""

    def __init__(self, problem: str, header: bytes = b"") -> None:
        self.header = header[:80]
        super().__init__(problem)


class Frame(NamedTuple):
    """A request or an answer. `form` is that of its header; an answer has the form of its request."""

    code: int
    flag: int = 0
    opaque: int = 0
    fields: dict[str, str] = _NO_FIELDS
    remark: str = ""
    body: bytes = b""
    form: int = JSON
    version: int = _NEWEST  # of the sender
    language: str = _LANGUAGES[_JAVA]

    def packed(self) -> bytes:
        """Returns the frame's bytes."""
        header = (_binary_header if self.form == BINARY else _json_header)(self)
        lengths = _PREFIX.pack(4 + len(header) + len(self.body), self.form << 24 | len(header))
        return b"".join((lengths, header, self.body))

    def answer(self, code: int, fields: dict[str, str] = _NO_FIELDS, remark: str = "", body: bytes = b"") -> bytes:
        """Returns the bytes of the frame that answers this request."""
        return Frame(code, ANSWER, self.opaque, fields, remark, body, self.form).packed()


class Splitter:
    """Finds whole frames in what arrives; a longer one than `max_frame` is bad."""

    def __init__(self, max_frame: int) -> None:
        self._max, self._held, self._wanted = max_frame, bytearray(), 0

    @property
    def held(self) -> int:
        """The bytes of a frame that has begun and is not whole yet."""
        return len(self._held)

    def feed(self, data: bytes) -> list[Frame]:
        """Returns the frames that are whole now. Raises BadFrame."""
        if self._held:
            self._held += data
            if len(self._held) < self._wanted:
                return []
            data = bytes(self._held)
            self._held = bytearray()
        found: list[Frame] = []
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
            found.append(_read(data[begin : begin + header], mark >> 24, data[begin + header : end]))
            at = end
        self._keep(data, at)
        return found

    def _keep(self, data: bytes, at: int) -> None:
        if at < len(data):
            self._held += data[at:]
            known = len(self._held) >= _PREFIX.size  # and so judged
            self._wanted = 4 + int(_PREFIX.unpack_from(self._held)[0]) if known else _PREFIX.size


# ---- headers ----


def _read(header: bytes, form: int, body: bytes) -> Frame:
    try:
        if form == JSON:
            return _from_json(header, body)
        if form == BINARY:
            return _from_binary(header, body)
    except (*MALFORMED, struct_error) as error:
        raise BadFrame(f"a header that cannot be read: {type(error).__name__}", header) from error
    raise BadFrame(f"a header of unknown form {form}")


def _from_json(header: bytes, body: bytes) -> Frame:
    found = orjson.loads(header)
    code, flag, opaque = found["code"], found["flag"], found["opaque"]
    if type(code) is not int or type(flag) is not int or type(opaque) is not int or not -(2**31) <= opaque < 2**31:
        raise ValueError
    fields, remark = found.get("extFields"), found.get("remark")
    texts = _NO_FIELDS if fields is None else _texts(fields)
    told, version, spoken = remark if isinstance(remark, str) else "", found.get("version"), found.get("language")
    by = version if type(version) is int else 0, spoken if spoken in _LANGUAGES else _OTHER
    return Frame(code, flag, opaque, texts, told, body, JSON, *by)


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


def _json_header(frame: Frame) -> bytes:
    header: dict[str, object] = {
        "code": frame.code,
        "flag": frame.flag,
        "language": "JAVA",
        "opaque": frame.opaque,
        "version": frame.version,
        "serializeTypeCurrentRPC": "JSON",
        "extFields": frame.fields,  # never null: a client of 5.x reads it as it is
    }
    if frame.remark:
        header["remark"] = frame.remark
    return orjson.dumps(header)


def _from_binary(header: bytes, body: bytes) -> Frame:
    if len(header) < _SHORTEST_BINARY:
        raise ValueError
    code, language, version, opaque, flag = _BEGIN.unpack_from(header)
    remark, at = _string(header, _BEGIN.size, _INT)
    (length,) = _INT.unpack_from(header, at)
    at += 4
    if length < 0 or at + length != len(header):
        raise ValueError
    fields = {}
    while at < len(header):
        name, at = _string(header, at, _SHORT)
        fields[name], at = _string(header, at, _INT)
    spoken = _LANGUAGES[language] if 0 <= language < len(_LANGUAGES) else _OTHER
    return Frame(code, flag, opaque, fields, remark, body, BINARY, version, spoken)


def _string(header: bytes, at: int, width: Struct) -> tuple[str, int]:
    (length,) = width.unpack_from(header, at)
    at += width.size
    end = at + length
    if length < 0 or end > len(header):
        raise ValueError
    return header[at:end].decode(), end


def _binary_header(frame: Frame) -> bytes:
    begin = _BEGIN.pack(frame.code, _JAVA, frame.version, frame.opaque, frame.flag)
    pairs = b"".join(_packed(name, _SHORT) + _packed(value, _INT) for name, value in frame.fields.items())
    return b"".join((begin, _packed(frame.remark, _INT), _INT.pack(len(pairs)), pairs))


def _packed(text: str, width: Struct) -> bytes:
    content = text.encode()
    return width.pack(len(content)) + content


_V4_9_3 = 399  # clients up to it add `_UNIQUE_KEY_QUERY` after they have signed
_UNSIGNED, _UNSIGNED_THEN = ("Signature",), ("Signature", "_UNIQUE_KEY_QUERY")


def signature(secret: bytes, fields: Mapping[str, str], body: bytes, version: int) -> str:
    """Returns the signature of a request by a client of the version: HMAC-SHA1 of the values, by name, and the body."""
    unsigned = _UNSIGNED_THEN if version <= _V4_9_3 else _UNSIGNED
    content = "".join([fields[name] for name in sorted(fields) if name not in unsigned]).encode() + body
    return base64.b64encode(hmac.digest(secret, content, "sha1")).decode()


# ---- bodies ----

# a string is kept as it is; what follows { or , and comes before : is a key
_STRING_OR_KEY = re.compile(r'("(?:[^"\\]|\\.)*")|([{,]\s*)(-?\d+)(\s*:)')


def read_json(text: bytes) -> Any:
    """Returns what a body of JSON holds. RocketMQ's servers write with fastjson: keys that are numbers have no quotes.

    Raises ValueError for what is no JSON even then. Number keys become strings, as JSON's are.
    """
    decoded = text.decode()
    try:
        return json.loads(decoded)
    except json.JSONDecodeError:
        return json.loads(_STRING_OR_KEY.sub(lambda found: found[1] or f'{found[2]}"{found[3]}"{found[4]}', decoded))
