"""Accounts of clients (RocketMQ's ACL 1.0): who has signed a request, what each may do, and how it is refused."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from halfop.rocketmq.codes import AnswerCode
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.requests import BadHeader, H
from halfop.rocketmq.wire.remoting import signature

_SIGNATURE, _ACCESS_KEY = "Signature", "AccessKey"


class Refused(Exception):
    """A request that is answered with an error, as a broker answers it: the code and the remark."""

    def __init__(self, code: int, remark: str) -> None:
        self.code, self.remark = code, remark
        super().__init__(f"{code} {remark}")


def header_of(kind: type[H], request: Frame) -> H:
    """Returns the request's header. Raises Refused if a field is missing, or no number."""
    try:
        return kind.read(request.fields)
    except BadHeader as error:
        raise Refused(AnswerCode.SYSTEM_ERROR, str(error)) from error


@dataclass(frozen=True)
class Account:
    """The rights of a key's owner; an admin may do all."""

    access_key: str
    secret: bytes = field(repr=False)
    admin: bool
    otherwise: frozenset[str]
    topics: Mapping[str, frozenset[str]]

    def may(self, right: str, topic: str) -> bool:
        """Returns whether the account has the right (PUB or SUB) to the topic."""
        return self.admin or right in self.topics.get(topic, self.otherwise)

    def check(self, right: str, topic: str) -> None:
        """Raises Refused if the account has no such right (PUB or SUB) to the topic."""
        if not self.may(right, topic):
            raise Refused(AnswerCode.NO_PERMISSION, f"account {self.access_key} has no {right} on topic {topic}")


@dataclass(frozen=True)
class Accounts:
    """All accounts by access key."""

    known: Mapping[str, Account]

    def of(self, request: Frame) -> Account:
        """The account that has signed the request. Raises Refused if none has."""
        fields = request.fields
        account = self.known.get(fields.get(_ACCESS_KEY, ""))
        secret = account.secret if account else b"no account"  # as much work for an unknown key
        expected = signature(secret, fields, request.body).encode()
        if not hmac.compare_digest(expected, fields.get(_SIGNATURE, "").encode()) or account is None:
            raise Refused(AnswerCode.NO_PERMISSION, "no account of this gateway has signed the request")
        return account
