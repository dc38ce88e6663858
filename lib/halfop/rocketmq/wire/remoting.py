"""A connection to a server: sends requests, and finds each answer by its request's opaque."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from halfop.frame.errors import TransientError, UsageError
from halfop.rocketmq.frames import ANSWER, BadFrame, Frame, Splitter, signature
from halfop.rocketmq.names import AnswerCode
from halfop.rocketmq.requests import Header

_ACCESS, _SECRET, _TOKEN = "ROCKETMQ_ACCESS_KEY", "ROCKETMQ_SECRET_KEY", "ROCKETMQ_SECURITY_TOKEN"
_MAX_FRAME = 64 << 20  # brokers refuse messages of more than 4 MiB by default
VERSION = 392  # 4.9.0-SNAPSHOT: from 4.9.4 on servers may write standard JSON, clients sign `_UNIQUE_KEY_QUERY`, too
_AT_ONCE = 1 << 18  # bytes; a pull's answer has no more


class RemotingError(TransientError):
    """Talking to a name server or broker failed."""


class ConnectionLost(RemotingError):
    """No connection, a connection that ended, or no answer in time: another connection may do."""


class Unreachable(RemotingError):
    """Still Lost, or busy, after all tries."""


class TlsFailed(RemotingError):
    """No encrypted connection: one side does not accept the other's certificate, or does not speak TLS."""

    transient = False


class Corrupt(RemotingError):
    """Bytes that are not what RocketMQ sends."""

    transient = False

    def __init__(self, address: str, problem: str, hint: str = "; is it a RocketMQ name server or broker?") -> None:
        self.address, self.problem = address, problem
        super().__init__(f"{address}: {problem}{hint}")


class RefusedByBroker(RemotingError):
    """The server answered, with an error that another try does not change."""

    transient = False

    def __init__(self, address: str, request: Header, code: int, remark: str, has_keys: bool = False) -> None:
        self.address, self.request, self.code, self.remark = address, request, code, remark
        fields = request.fields()
        asked = ", ".join(f"{name} {fields[name]}" for name in ("topic", "queueId", "queueOffset") if name in fields)
        what = f"{request.code.name}{f' ({asked})' if asked else ''}"
        is_account = code == AnswerCode.NO_PERMISSION or "AclException" in remark  # 5.x, 4.x
        keys = f"may the account of {_ACCESS} do that, and is {_SECRET} its key?"
        hint = f"; {keys if has_keys else f'{_ACCESS} is not set, if the broker wants one'}" if is_account else ""
        super().__init__(f"{address} answered {what} with code {code}: {remark or 'no remark'}{hint}")


@dataclass(frozen=True)
class Credentials:
    """The keys of a client. Requests carry the access key and a signature, never the secret key."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Credentials | None:
        """ROCKETMQ_ACCESS_KEY, ROCKETMQ_SECRET_KEY and perhaps ROCKETMQ_SECURITY_TOKEN; None without the first two."""
        access, secret = environment.get(_ACCESS, ""), environment.get(_SECRET, "")
        if bool(access) != bool(secret):
            raise UsageError(f"only one of {_ACCESS} and {_SECRET} is set: set both or none")
        return cls(access, secret, environment.get(_TOKEN, "")) if access else None

    def signed(self, fields: Mapping[str, str], body: bytes = b"") -> dict[str, str]:
        """Returns the fields with key, token and signature, for a frame of VERSION."""
        token = {"SecurityToken": self.security_token} if self.security_token else {}
        all_fields = {**fields, "AccessKey": self.access_key, **token}
        return {**all_fields, "Signature": signature(self.secret_key.encode(), all_fields, body, VERSION)}


@dataclass(frozen=True)
class Tls:
    """PEM files of encrypted connections. Servers are verified by default, without a CA file against the system's."""

    ca_file: str | None = None
    certificate: str | None = None
    key: str | None = None
    verify: bool = True
    check_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:  # ssl.SSLError is one
            files = ", ".join(name for name in (self.ca_file, self.certificate, self.key) if name)
            raise UsageError(f"cannot use the TLS files {files}: {error}; expected readable PEM files") from error
        context.check_hostname = self.verify and self.check_hostname
        context.verify_mode = ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE
        return context


@dataclass(frozen=True)
class RemotingSettings:
    """Times in seconds. A request that got no answer is tried again; the last try begins before `give_up_after`."""

    connect_timeout: float = 5.0
    answer_timeout: float = 15.0
    give_up_after: float = 60.0
    in_flight: int = 16
    credentials: Credentials | None = None
    tls: Tls | None = None


def endpoint(address: str, listening: bool = False) -> tuple[str, int]:
    """The host and the port. Raises UsageError for an address that none can connect to, or listen at."""
    host, _, port = address.strip().rpartition(":")
    is_port = port.isdecimal() and len(port) <= 5 and (listening or 0 < int(port) < 1 << 16)
    if not host or not is_port or not _is_encodable(host):
        raise UsageError(f"{address!r} is no address; expected host:port, with a port from 1 to 65535")
    return host.strip("[]"), int(port)


def _is_encodable(host: str) -> bool:
    """Returns whether a name can be looked up: Python encodes it before, with an error of its own."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


class Connection:
    """A connection for one thread. It is closed once it has raised a RemotingError."""

    def __init__(
        self, address: str, timeout: float, tls: ssl.SSLContext | None, credentials: Credentials | None
    ) -> None:
        self._address, self._credentials = address, credentials
        self._splitter = Splitter(_MAX_FRAME)
        self._opaque, self._asked = 0, set[int]()
        self._answers: dict[int, Frame] = {}
        self._hint = "" if tls else "; does it expect TLS?"
        with self._closing():
            self._socket = _connected(address, timeout, tls)

    def send(self, request: Header, timeout: float) -> int:
        """Sends a request; returns the opaque by which `answer` finds its answer."""
        self._opaque += 1
        fields = request.fields()
        signed = self._credentials.signed(fields) if self._credentials else fields
        with self._closing():
            self._socket.settimeout(timeout)
            self._socket.sendall(Frame(request.code, 0, self._opaque, signed, version=VERSION).packed())
        self._asked.add(self._opaque)
        return self._opaque

    def answer(self, opaque: int, timeout: float) -> Frame:
        """Returns the answer to a request; answers to others that come first are kept. `timeout` begins now."""
        if opaque not in self._answers:
            deadline = time.monotonic() + timeout
            with self._closing():
                while opaque not in self._answers:
                    self._receive(deadline)
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
            raise ConnectionLost(f"{self._address}: {str(error) or type(error).__name__}") from error

    def _receive(self, deadline: float) -> None:
        self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
        data = self._socket.recv(_AT_ONCE)
        if not data:
            raise ConnectionLost(f"{self._address} closed the connection{self._hint}")
        try:
            frames = self._splitter.feed(data)
        except BadFrame as error:
            raise Corrupt(self._address, f"sent {error}{f': {error.header!r}' if error.header else ''}") from error
        for frame in frames:
            self._hint = ""
            if frame.flag & ANSWER and frame.opaque in self._asked:
                self._asked.remove(frame.opaque)
                self._answers[frame.opaque] = frame


def _connected(address: str, timeout: float, tls: ssl.SSLContext | None) -> socket.socket:
    host, port = endpoint(address)
    connected = socket.create_connection((host, port), timeout)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return tls.wrap_socket(connected, server_hostname=host) if tls else connected
