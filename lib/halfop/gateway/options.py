"""The options of a gateway, and which are refused before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass

from halfop.frame.errors import UsageError
from halfop.gateway.safety import refuse_open
from halfop.rocketmq.frames import FRAME_ROOM
from halfop.rocketmq.names import is_legal
from halfop.rocketmq.wire.remoting import endpoint
from halfop.settings.model import Settings

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
    host, number = endpoint(request.listen)
    refuse_open(host, own, request.insecure)
    if not is_legal(request.name):
        raise UsageError(f"--name {request.name}: expected letters, digits, %, |, _ and -, as a broker's name")
    if request.namesrv and not own.topics:
        raise UsageError("--namesrv needs the topics that the gateway is to serve: give --topics T,…")
    if number >= _NUMBERS:
        raise UsageError(f"--listen {request.listen}: expected a number below {_NUMBERS}")
    if own.file_size < (least := own.max_body + FRAME_ROOM):
        raise UsageError(f"gateway.file_size {own.file_size}: expected {least} or more, or a smaller gateway.max_body")
    return host, number
