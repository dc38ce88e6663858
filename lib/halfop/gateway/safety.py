"""Limits on who may reach a gateway: TLS, and the refusal to stand open to a network."""

from __future__ import annotations

import ipaddress
import ssl

from halfop.frame.errors import UsageError
from halfop.settings.gateway import GatewaySettings


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
