"""The address that a gateway listens at."""

from __future__ import annotations

import socket

from halfop.frame.errors import UsageError


def bound(host: str, number: int) -> socket.socket:
    """A socket at the address. Raises UsageError if it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        raise UsageError(f"--listen {host}:{number}: {error.strerror}; give an address of this machine") from error
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
