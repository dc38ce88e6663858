"""The signature by which a client shows who it is (ACL 1.0), and encrypted connections (TLS)."""

from __future__ import annotations

import base64
import hmac
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from halfop.frame.errors import UsageError

_ACCESS, _SECRET, _TOKEN = "ROCKETMQ_ACCESS_KEY", "ROCKETMQ_SECRET_KEY", "ROCKETMQ_SECURITY_TOKEN"

_UNSIGNED = "_UNIQUE_KEY_QUERY"  # brokers leave it out, too


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
        """The fields with key, token and signature: HMAC-SHA1 over the values, by name, and the body."""
        token = {"SecurityToken": self.security_token} if self.security_token else {}
        all_fields = {**fields, "AccessKey": self.access_key, **token}
        content = "".join(all_fields[name] for name in sorted(all_fields) if name != _UNSIGNED).encode() + body
        signature = base64.b64encode(hmac.digest(self.secret_key.encode(), content, "sha1")).decode()
        return {**all_fields, "Signature": signature}


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
