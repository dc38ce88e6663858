"""Accounts of a gateway: what the owner of a key may do to which topics and groups, and from where.

The model is RocketMQ's ACL 2.0, into which a file of ACL 1.0 is translated. Of an account's entries, the first one that
is about a request decides, so they stand in the order of their rank. What no entry is about is refused.
"""

from __future__ import annotations

import hmac
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network

import orjson

from halfop.gateway.core.refusals import NotSigned, Refused
from halfop.rocketmq.frames import Frame, signature
from halfop.rocketmq.names import AnswerCode, RequestCode

PUB, SUB, GET = "PUB", "SUB", "GET"
TOPIC, GROUP, CLUSTER, ANY = "TOPIC", "GROUP", "CLUSTER", "*"
_SIGNATURE, _ACCESS_KEY = "Signature", "AccessKey"
_MOST_ADDRESSES = 10_000  # of which an account remembers what counts
_UNKNOWN = "no account of this gateway has signed the request: its key or secret is wrong, or the user is disabled"


@dataclass(frozen=True)
class Entry:
    """Allows or denies actions on what has the name, or on all whose names begin with it."""

    kind: str
    name: str
    is_prefix: bool
    actions: frozenset[str]
    allows: bool = True
    sources: tuple[IPv4Network | IPv6Network, ...] = ()  # none: from everywhere
    is_default: bool = False  # counts if none of the others is about a request

    @property
    def rank(self) -> tuple[bool, bool, bool, int, bool]:
        """Exact before prefix, a longer prefix before a shorter one, deny before allow."""
        length = len(self.name) if self.is_prefix else 0
        return self.is_default, self.kind == ANY, self.is_prefix, -length, self.allows

    def is_about(self, kind: str, name: str, actions: tuple[str, ...]) -> bool:
        """Returns whether it is about any of the actions on what has the name."""
        if self.kind not in (kind, ANY) or self.actions.isdisjoint(actions):
            return False
        return name.startswith(self.name) if self.is_prefix else name == self.name

    def is_from(self, address: int) -> bool:
        """Returns whether it counts for a client of the address. As at a broker, both versions of IP are numbers."""
        ranges = ((int(each.network_address), int(each.broadcast_address)) for each in self.sources)
        return not self.sources or any(first <= address <= last for first, last in ranges)

    def info(self) -> dict[str, object]:
        """The entry, as AUTH_GET_ACL is answered."""
        return {
            "resource": ANY if self.kind == ANY else f"{self.kind}:{self.name}{'*' if self.is_prefix else ''}",
            "actions": sorted(self.actions),
            "sourceIps": [str(each) for each in self.sources],
            "decision": "Allow" if self.allows else "Deny",
        }


@dataclass(frozen=True)
class Account:
    """The rights of a key's owner; an admin may do all."""

    access_key: str
    secret: bytes = field(repr=False)
    entries: tuple[Entry, ...]
    admin: bool = False
    _seen: dict[bytes, Account] = field(default_factory=dict, init=False, repr=False, compare=False)

    def may(self, name: str, *actions: str, kind: str = TOPIC) -> bool:
        """Returns whether the account may do one of the actions."""
        exact, others = self._places
        near = (self.entries[place] for place in sorted([*exact.get((kind, name), ()), *others]))
        return self.admin or next((each.allows for each in near if each.is_about(kind, name, actions)), False)

    @cached_property
    def _places(self) -> tuple[Mapping[tuple[str, str], list[int]], list[int]]:
        """The places of exact entries by kind and name, and those of all others: an account may have many."""
        exact, others = defaultdict[tuple[str, str], list[int]](list), list[int]()
        for place, entry in enumerate(self.entries):
            (others if entry.is_prefix else exact[entry.kind, entry.name]).append(place)
        return exact, others

    def seen_from(self, address: bytes) -> Account:
        """Returns the account with the entries that count for a client of the address."""
        if not self._has_sources:
            return self
        if address not in self._seen:
            if len(self._seen) == _MOST_ADDRESSES:
                self._seen.clear()
            number = int.from_bytes(address, "big")
            self._seen[address] = replace(self, entries=tuple(each for each in self.entries if each.is_from(number)))
        return self._seen[address]

    @cached_property
    def _has_sources(self) -> bool:
        return any(each.sources for each in self.entries)

    def user(self) -> dict[str, object]:
        """The account, and its secret, as AUTH_GET_USER is answered."""
        kind, secret = "Super" if self.admin else "Normal", self.secret.decode()
        return {"username": self.access_key, "password": secret, "userType": kind, "userStatus": "enable"}

    def acl(self) -> dict[str, object]:
        """Its entries, as AUTH_GET_ACL is answered."""
        policies = [
            {"policyType": name, "entries": [each.info() for each in self.entries if each.is_default is is_default]}
            for name, is_default in (("Custom", False), ("Default", True))
        ]
        return {"subject": f"User:{self.access_key}", "policies": policies}


def ordered(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Returns entries in the order in which they count."""
    return tuple(sorted(entries, key=lambda each: each.rank))


def check_may(account: Account | None, name: str, *actions: str, kind: str = TOPIC) -> None:
    """Raises Refused for an account that may do none of the actions; None may do all."""
    if account is not None and not account.may(name, *actions, kind=kind):
        wanted = f"{' or '.join(actions)} on {kind.lower()} {name}"
        raise Refused(AnswerCode.NO_PERMISSION, f"account {account.access_key} has no {wanted}")


@dataclass(frozen=True)
class Accounts:
    """All accounts by access key, and the names of those that are disabled."""

    known: Mapping[str, Account]
    disabled: frozenset[str] = frozenset()

    def of(self, request: Frame, address: bytes) -> Account:
        """The account that has signed the request of a client of the address. Raises Refused if none has."""
        fields = request.fields
        key = fields.get(_ACCESS_KEY, "")
        account = self.known.get(key)
        secret = account.secret if account else b"no account"  # as much work for an unknown key
        expected = signature(secret, fields, request.body, request.version).encode()
        if not hmac.compare_digest(expected, fields.get(_SIGNATURE, "").encode()) or account is None:
            raise NotSigned(_UNKNOWN, self._why_not(key, _SIGNATURE in fields))
        return account.seen_from(address)

    def _why_not(self, key: str, is_signed: bool) -> str:
        """Returns why what is signed with the key does not count, for the log: who guesses keys must not know it."""
        if not key or not is_signed:
            why = "it is not signed"
        elif key in self.known:
            why = "its signature does not match: its secret is another, or it was changed on the way"
        else:
            why = "its account is disabled" if key in self.disabled else "there is no such account"
        return f"{why}; access key {key!r}" if key else why


def account_shown(accounts: Accounts | None, admin: Account | None, request: Frame) -> tuple[str, bytes]:
    """Returns the name of an account, and the account as AUTH_GET_USER or AUTH_GET_ACL is answered; empty if unknown.

    Raises Refused for others than admins: the secret is in it.
    """
    if accounts is None or admin is None or not admin.admin:
        raise Refused(AnswerCode.NO_PERMISSION, "only an admin is shown an account")
    fields, is_user = request.fields, request.code == RequestCode.AUTH_GET_USER
    name = fields.get("username", "") if is_user else fields.get("subject", "").removeprefix("User:")
    known = accounts.known.get(name)
    return name, orjson.dumps(known.user() if is_user else known.acl()) if known else b""
