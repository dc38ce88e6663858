"""Accounts of clients (RocketMQ's ACL 1.0): who has signed a request, and what each may do."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from halfop.frame.errors import UsageError
from halfop.gateway.refused import Refused
from halfop.rocketmq.codes import AnswerCode
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.wire.remoting import signature

_SIGNATURE, _ACCESS_KEY = "Signature", "AccessKey"
_KNOWN = {"accessKey", "secretKey", "admin", "defaultTopicPerm", "topicPerms", "defaultGroupPerm", "groupPerms"}
_RIGHTS = {"DENY": frozenset[str](), "PUB": frozenset({"PUB"}), "SUB": frozenset({"SUB"})}
_RIGHTS["ANY"] = _RIGHTS["PUB|SUB"] = _RIGHTS["SUB|PUB"] = frozenset({"PUB", "SUB"})


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


def read_accounts(path: str) -> Accounts:
    """The accounts of a file. Raises UsageError if it is not as RocketMQ's plain_acl.yml."""
    try:
        read = yaml.safe_load(Path(path).read_bytes())
        entries = read["accounts"]
        accounts = [_account(entry) for entry in entries]
    except OSError as error:
        raise UsageError(f"gateway.acl_file {path}: {error.strerror}; expected a YAML file of accounts") from error
    except (yaml.YAMLError, LookupError, TypeError, AttributeError, ValueError) as error:
        expected = "expected `accounts:` with accessKey, secretKey, admin, defaultTopicPerm, topicPerms"
        raise UsageError(f"gateway.acl_file {path}: {error}; {expected}") from error
    if read.get("globalWhiteRemoteAddresses"):
        raise UsageError(f"gateway.acl_file {path}: no globalWhiteRemoteAddresses here: give each client a key")
    return Accounts({account.access_key: account for account in accounts})


def _account(entry: Mapping[str, Any]) -> Account:
    if unknown := set(entry) - _KNOWN:
        raise ValueError(f"{', '.join(sorted(unknown))}: not supported")
    permissions = dict(_permission(each) for each in entry.get("topicPerms") or ())
    otherwise = _RIGHTS[str(entry.get("defaultTopicPerm", "DENY")).upper()]
    secret = str(entry["secretKey"]).encode()
    return Account(str(entry["accessKey"]), secret, entry.get("admin", False) is True, otherwise, permissions)


def _permission(text: str) -> tuple[str, frozenset[str]]:
    topic, equals, right = str(text).partition("=")
    if not equals:
        raise ValueError(f"{text}: expected topic=PUB, SUB, PUB|SUB or DENY")
    return topic.strip(), _RIGHTS[right.strip().upper()]
