"""RocketMQ's remoting protocol: frames over one connection, each answer found by its request's opaque."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

from halfop.frame.errors import TransientError, UsageError
from halfop.rocketmq.wire.codes import ANSWER, RequestCode
from halfop.rocketmq.wire.security import Credentials, Tls

_LENGTHS = Struct(">II")  # of all that follows the first; of the header, whose high byte is its format
_MAX_FRAME = 64 << 20  # brokers refuse messages of more than 4 MiB by default
_NUMBERS = ("offset", "nextBeginOffset")
# Errors of reading JSON that is not as RocketMQ writes it.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
_VERSION = 392  # 4.9.7: from 4.9.4 on servers may write standard JSON


class RemotingError(TransientError):
    """Talking to a name server or broker failed."""


class Lost(RemotingError):
    """No connection, a connection that ended, or no answer in time: another connection may do."""


class Unreachable(RemotingError):
    """Still Lost, or busy, after all tries."""


class TlsFailed(RemotingError):
    """No encrypted connection: one side does not accept the other's certificate, or does not speak TLS."""

    transient = False


class Corrupt(RemotingError):
    """Bytes that are not what RocketMQ sends."""

    transient = False

    def __init__(self, address: str, problem: str) -> None:
        self.address, self.problem = address, problem
        super().__init__(f"{address}: {problem}; is it a RocketMQ name server or broker?")


class Refused(RemotingError):
    """The server answered, with an error that another try does not change."""

    transient = False

    def __init__(self, address: str, request: RemotingRequest, code: int, remark: str) -> None:
        self.address, self.request, self.code, self.remark = address, request, code, remark
        asked = ", ".join(f"{name} {request.fields[name]}" for name in ("topic", "queueId") if name in request.fields)
        what = f"{request.code.name}{f' ({asked})' if asked else ''}"
        super().__init__(f"{address} answered {what} with code {code}: {remark or 'no remark'}")


@dataclass(frozen=True)
class RemotingSettings:
    """Times in seconds. A request that got no answer is tried again; the last try begins before `give_up_after`."""

    connect_timeout: float = 5.0
    answer_timeout: float = 15.0
    give_up_after: float = 60.0
    in_flight: int = 16
    credentials: Credentials | None = None
    tls: Tls | None = None


class RemotingRequest(NamedTuple):
    code: RequestCode
    fields: Mapping[str, str] = {}


class Answer(NamedTuple):
    code: int
    remark: str
    fields: Mapping[str, str]
    body: memoryview


def _is_long(text: str) -> bool:
    return -(2**63) <= int(text) < 2**63


def endpoint(address: str) -> tuple[str, int]:
    host, _, port = address.strip().rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"{address!r} is no address; expected host:port")
    return host.strip("[]"), int(port)


class Connection:
    """A connection for one thread. It is closed once it has raised a RemotingError."""

    def __init__(
        self, address: str, timeout: float, tls: ssl.SSLContext | None, credentials: Credentials | None
    ) -> None:
        self._address, self._credentials = address, credentials
        self._opaque, self._asked = 0, set[int]()
        self._answers: dict[int, Answer] = {}
        self._hint = "" if tls else "; does it expect TLS?"
        with self._closing():
            self._socket = _connected(address, timeout, tls)

    def send(self, request: RemotingRequest, timeout: float) -> int:
        """Sends a request; returns the opaque by which `answer` finds its answer."""
        self._opaque += 1
        frame = _encoded(request, self._opaque, self._credentials)
        with self._closing():
            self._socket.settimeout(timeout)
            self._socket.sendall(frame)
        self._asked.add(self._opaque)
        return self._opaque

    def answer(self, opaque: int, timeout: float) -> Answer:
        """The answer to a request; answers to others that come first are kept. `timeout` begins now."""
        if opaque not in self._answers:
            deadline = time.monotonic() + timeout
            with self._closing():
                while opaque not in self._answers:
                    self._receive_answer(deadline)
        return self._answers.pop(opaque)

    def close(self) -> None:
        if hasattr(self, "_socket"):
            self._socket.close()

    @contextmanager
    def _closing(self) -> Iterator[None]:
        try:
            yield
        except RemotingError:
            self.close()
            raise
        except OSError as error:
            self.close()
            if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
                raise TlsFailed(f"{self._address}: no TLS connection: {error}") from error
            raise Lost(f"{self._address}: {str(error) or type(error).__name__}") from error

    def _receive_answer(self, deadline: float) -> None:
        length, header_length = _LENGTHS.unpack(self._received(_LENGTHS.size, deadline))
        if not 4 + header_length <= length <= _MAX_FRAME:  # also if the header's format is not JSON
            raise Corrupt(self._address, f"sent a frame of {length} bytes with a header of {header_length}")
        frame = self._received(length - 4, deadline)
        header = self._header(frame[:header_length])
        self._hint = ""
        if header["flag"] & ANSWER and header["opaque"] in self._asked:
            self._asked.remove(header["opaque"])
            body = memoryview(frame)[header_length:]
            self._answers[header["opaque"]] = Answer(
                header["code"], str(header.get("remark") or ""), header["extFields"], body
            )

    def _header(self, text: bytearray) -> dict[str, Any]:
        try:
            header = json.loads(text)
            fields = {str(name): str(value) for name, value in (header.get("extFields") or {}).items()}
            longs = all(_is_long(fields[name]) for name in _NUMBERS if name in fields)
            if longs and all(isinstance(header[name], int) for name in ("code", "flag", "opaque")):
                return {**header, "extFields": fields}
        except MALFORMED:
            pass
        raise Corrupt(self._address, f"sent a header that cannot be read: {bytes(text[:80])!r}")

    def _received(self, size: int, deadline: float) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            count = self._socket.recv_into(view)
            if not count:
                raise Lost(f"{self._address} closed the connection{self._hint}")
            view = view[count:]
        return data


def _connected(address: str, timeout: float, tls: ssl.SSLContext | None) -> socket.socket:
    host, port = endpoint(address)
    connected = socket.create_connection((host, port), timeout)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return tls.wrap_socket(connected, server_hostname=host) if tls else connected


def _encoded(request: RemotingRequest, opaque: int, credentials: Credentials | None) -> bytes:
    header = {
        "code": request.code,
        "flag": 0,
        "language": "PYTHON",
        "version": _VERSION,
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "extFields": credentials.signed(request.fields) if credentials else request.fields,
    }
    text = json.dumps(header).encode()
    return _LENGTHS.pack(4 + len(text), len(text)) + text
