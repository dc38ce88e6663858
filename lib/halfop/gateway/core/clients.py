"""Clients of a gateway: what each may do (RocketMQ's ACL 1.0), which producer groups it is of, how it is refused."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from halfop.rocketmq.frames import Frame, signature
from halfop.rocketmq.names import AnswerCode
from halfop.rocketmq.requests import BadHeader, H

_SIGNATURE, _ACCESS_KEY = "Signature", "AccessKey"
_MOST_GROUPS = 100  # of a client


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


# ---- clients and their groups ----


class Client:
    """A client's connection. `name` is the client's own id, or its address until it has given one."""

    def __init__(self, host: bytes, name: str) -> None:
        self.host, self.name, self.form = host, name, 0
        self.groups: set[str] = set()
        self.account: Account | None = None  # whose key signed the last request; none if clients need no key
        self.is_open = True  # whether a frame that is sent now will go out soon: the server says so

    def may_send(self, topic: str) -> bool:
        """Returns whether the client may send to the topic, and so may see the messages of its group there."""
        return self.account is None or self.account.may("PUB", topic)


class Producers:
    """Producer groups, and the clients by which each can be asked."""

    def __init__(self) -> None:
        self._clients: dict[str, dict[Client, None]] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def __contains__(self, group: str) -> bool:
        return group in self._clients

    def add(self, group: str, client: Client) -> None:
        """Adds a client to a group, unless it is of too many."""
        if len(client.groups) < _MOST_GROUPS:
            client.groups.add(group)
            self._clients.setdefault(group, {})[client] = None

    def remove(self, groups: Iterable[str], client: Client) -> None:
        """Takes a client out of groups."""
        for group in list(groups):
            client.groups.discard(group)
            clients = self._clients.get(group, {})
            clients.pop(client, None)
            if not clients:
                self._clients.pop(group, None)

    def in_turn(self, group: str) -> Iterator[Client]:
        """The group's open clients, each once, beginning with the one that was asked longest ago."""
        clients = self._clients.get(group, {})
        for client in list(clients):
            if client in clients and client.is_open:
                del clients[client]
                clients[client] = None
                yield client
