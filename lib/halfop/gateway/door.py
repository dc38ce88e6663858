"""A gateway's door: the address that it listens at, who may reach it, and how many connections there may be."""

from __future__ import annotations

import ipaddress
import logging
import resource
import socket
import ssl
from dataclasses import dataclass

from halfop.frame.errors import UsageError
from halfop.rocketmq.frames import FRAME_ROOM
from halfop.rocketmq.names import is_legal
from halfop.rocketmq.wire.remoting import endpoint
from halfop.settings.gateway import GatewaySettings
from halfop.settings.model import Settings

_OWN = 512  # kept for the log, 256 files of queues, the tables, 32 connections to the pages
_log = logging.getLogger("halfop.gateway")

_NUMBERS = 1 << 16  # of addresses


@dataclass(frozen=True)
class GatewayRequest:
    """The options of `gateway`: where it listens, its store and name, name servers, its role."""

    listen: str
    store: str
    name: str
    namesrv: str | None = None
    is_slave: bool = False
    insecure: bool = False


def listening_at(settings: Settings, request: GatewayRequest) -> tuple[str, int]:
    """Returns the host and the number at which it is to listen. Raises UsageError for what cannot be."""
    own = settings.gateway
    host, number = endpoint(request.listen, listening=True)
    refuse_open(host, own, request.insecure)
    if not is_legal(request.name):
        raise UsageError(f"--name {request.name}: expected letters, digits, %, |, _ and -, as a broker's name")
    if request.namesrv and not own.topics:
        raise UsageError("--namesrv needs the topics that the gateway is to serve: give --topics T,…")
    addresses = {"--listen": request.listen, "gateway.advertise": own.advertise, "gateway.metrics": own.metrics}
    for name, address in addresses.items():
        if address and endpoint(address, listening=True)[1] >= _NUMBERS:
            raise UsageError(f"{name} {address}: expected a number below {_NUMBERS}")
    if own.file_size < (least := own.max_body + FRAME_ROOM):
        raise UsageError(f"gateway.file_size {own.file_size}: expected {least} or more, or a smaller gateway.max_body")
    return host, number


# ---- who may reach it ----


def tls_context(settings: GatewaySettings) -> ssl.SSLContext | None:
    """The context of encrypted connections; None if they are not encrypted. Raises UsageError."""
    if settings.certificate is None:
        if settings.key or settings.client_ca:
            raise UsageError("gateway.key and gateway.client_ca need gateway.certificate: give its file, too")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings)
    if settings.client_ca:
        try:
            context.load_verify_locations(settings.client_ca)
        except OSError as error:
            raise UsageError(f"gateway.client_ca {settings.client_ca}: {error}; expected a PEM file") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def load_certificate(context: ssl.SSLContext, settings: GatewaySettings) -> None:
    """Reads certificate and key, for connections from now on. Raises UsageError, and then changes nothing."""
    try:
        # a context that has met a certificate without its key has lost the one before, too
        for each in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
            each.load_cert_chain(str(settings.certificate), settings.key)
    except OSError as error:  # ssl.SSLError is one
        files = ", ".join(name for name in (settings.certificate, settings.key) if name)
        raise UsageError(f"gateway.certificate, gateway.key: {files}: {error}; expected readable PEM files") from error


def refuse_open(host: str, settings: GatewaySettings, insecure: bool) -> None:
    """Raises UsageError if anybody on a network could use the gateway, or repeat what a client has signed."""
    if insecure or _is_loopback(host) or (settings.certificate and (settings.acl_file or settings.client_ca)):
        return
    known, needed = "gateway.acl_file or gateway.client_ca", "gateway.certificate"
    if settings.acl_file:  # a signature has no nonce
        raise UsageError(
            f"--listen {host}: anybody there could read signed requests and repeat them. Give {needed}; or --insecure, "
            "if the network is yours alone"
        )
    raise UsageError(
        f"--listen {host}: anybody there could send, end and read messages. Give {needed} with {known}; or --insecure, "
        "if the network is yours alone"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# ---- its address ----


def bound(host: str, number: int) -> socket.socket:
    """A socket at the address. Raises UsageError if it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        raise UsageError(
            f"--listen {host}:{number}: {error.strerror}; give an address of this machine, and a free port"
        ) from error
    return made


def shown(listening: socket.socket) -> str:
    """The address that producers use. Raises UsageError for all addresses at once."""
    host, number, *_ = listening.getsockname()
    if host in ("0.0.0.0", "::"):  # noqa: S104 - it is refused
        raise UsageError("--listen at all addresses: producers must know one of them. Give gateway.advertise=host:port")
    return f"[{host}]:{number}" if ":" in host else f"{host}:{number}"


def resolved(host: str) -> str:
    """The IP address of a host. Raises UsageError."""
    try:
        return str(socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise UsageError(f"gateway.advertise: {host} has no address: {error.strerror}") from error


# ---- how many connections ----


def room_for(connections: int) -> int:
    """How many connections there may be, at most so many; raises the process's limit as far as it may be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _number(hard)
    if _number(soft) < connections + _OWN:
        soft = int(min(connections + _OWN, most))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    room = int(min(connections, _number(soft) - _OWN))
    if room < 1:
        raise UsageError(f"the process may open only {soft} files, a gateway needs {_OWN} and more: raise `ulimit -n`")
    if room < connections:
        _log.warning(
            "gateway.max_connections is %s, but the process may open only %s files, so it takes %s: raise `ulimit -n`",
            *(connections, soft, room),
        )
    return room


def _number(limit: int) -> float:
    return float("inf") if limit == resource.RLIM_INFINITY else limit
