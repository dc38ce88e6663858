"""Files of accounts: RocketMQ's plain_acl.yml (ACL 1.0), or what mqadmin's listUser and listAcl print (ACL 2.0)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any, TypeVar

import yaml

from halfop.frame.errors import UsageError
from halfop.gateway.core.accounts import ANY, CLUSTER, GET, GROUP, PUB, SUB, TOPIC, Account, Accounts, Entry, ordered

T = TypeVar("T")
_EXPECTED = (
    "YAML with `accounts:`, each with accessKey, secretKey, admin, defaultTopicPerm, topicPerms, defaultGroupPerm, "
    "groupPerms; or what mqadmin's listUser and listAcl print"
)


def read_accounts(path: str) -> Accounts:
    """The accounts of a file. Raises UsageError if it is none of both."""
    try:
        text = Path(path).read_text("utf-8")
        printed = re.search(_HEADS, text, re.MULTILINE)
        accounts, disabled = _printed(text) if printed else (_plain(text), frozenset[str]())
    except OSError as error:
        raise UsageError(f"gateway.acl_file {path}: {error.strerror}; expected {_EXPECTED}") from error
    except (yaml.YAMLError, RecursionError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(f"gateway.acl_file {path}: {error}; expected {_EXPECTED}") from error
    return Accounts({account.access_key: account for account in accounts}, disabled)


def _keep(known: dict[str, T], name: str, given: T) -> None:
    """Adds what the file has of an account. The same again is nothing new: mqadmin prints it broker by broker."""
    if known.setdefault(name, given) != given:
        raise ValueError(f"{name} is there twice, with different secrets or rights: remove one of them")


# ---- ACL 1.0 ----

_KNOWN = {"accessKey", "secretKey", "admin", "defaultTopicPerm", "topicPerms", "defaultGroupPerm", "groupPerms"}
_PUBS, _SUBS = frozenset({PUB}), frozenset({SUB, GET})
_ALL = _PUBS | _SUBS
_RIGHTS = {"DENY": frozenset[str](), "PUB": _PUBS, "SUB": _SUBS, "ANY": _ALL, "PUB|SUB": _ALL, "SUB|PUB": _ALL}


def _plain(text: str) -> list[Account]:
    read = yaml.safe_load(text)
    accounts = dict[str, Account]()
    for account in map(_account, read["accounts"]):
        _keep(accounts, account.access_key, account)
    if read.get("globalWhiteRemoteAddresses"):
        raise ValueError("no globalWhiteRemoteAddresses here: give each client a key")
    return list(accounts.values())


def _account(entry: Mapping[str, Any]) -> Account:
    if unknown := set(entry) - _KNOWN:
        raise ValueError(f"{', '.join(sorted(unknown))}: not supported")
    entries = [Entry(ANY, "", True, _right(entry.get("defaultTopicPerm", "DENY")))]
    entries += _rights(GROUP, "", True, _right(entry.get("defaultGroupPerm", "SUB")))
    for kind, listed in (TOPIC, "topicPerms"), (GROUP, "groupPerms"):
        for name, right in sorted(dict(_permission(each) for each in entry.get(listed) or ()).items()):
            entries += _rights(kind, name, False, right)
    secret = _text(entry, "secretKey").encode()
    return Account(_text(entry, "accessKey"), secret, ordered(entries), entry.get("admin", False) is True)


def _rights(kind: str, name: str, is_prefix: bool, right: frozenset[str]) -> list[Entry]:
    """The entries that allow these actions on a topic or group, and deny the others."""
    return [Entry(kind, name, is_prefix, right), Entry(kind, name, is_prefix, _ALL - right, allows=False)]


def _text(entry: Mapping[str, Any], name: str) -> str:
    if entry[name] in (None, ""):
        raise ValueError(f"{name} is empty")
    return _scalar(entry[name])


def _scalar(value: object) -> str:
    if isinstance(value, list | dict | set):  # with references to others its text has no bound
        raise ValueError("a list or a mapping where a text belongs")
    return str(value)


def _permission(given: object) -> tuple[str, frozenset[str]]:
    text = _scalar(given)
    name, equals, right = text.partition("=")
    if not equals:
        raise ValueError(f"{text}: expected NAME=PUB, SUB, PUB|SUB or DENY")
    return name.strip(), _right(right)


def _right(given: object) -> frozenset[str]:
    text = _scalar(given).strip().upper()
    if text not in _RIGHTS:
        raise ValueError(f"{text} is no right: expected PUB, SUB, PUB|SUB or DENY")
    return _RIGHTS[text]


# ---- ACL 2.0 ----

_USER = ["#UserName", "#Password", "#UserType", "#UserStatus"]
_ENTRY = ["#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision"]
_HEADS = rf"^({_USER[0]}|{_ENTRY[0]}) "
_SAID = re.compile(r"get user from \S+ success\.")  # after listUser's table
_ACTIONS = frozenset({PUB, SUB, GET, "CREATE", "UPDATE", "DELETE", "LIST"})
_KINDS = (ANY, TOPIC, GROUP, CLUSTER, "NAMESPACE")
_ALLOWS = {"ALLOW": True, "DENY": False}


def _printed(text: str) -> tuple[list[Account], frozenset[str]]:
    """The accounts of users that are not disabled, and the names of those that are."""
    users, entries = dict[str, list[str]](), dict[str, list[Entry]]()
    for head, cells in _rows(text):
        if head == _USER:
            _keep(users, cells[0], cells)
        elif len(cells) == len(_ENTRY):  # a subject alone has none
            entries.setdefault(cells[0], []).append(_entry(*cells[1:]))
    if without := entries.keys() - {f"User:{name}" for name in users}:
        raise ValueError(f"{min(without)} has entries, but is no user here: add what listUser prints")
    disabled = frozenset(name for name, _, _, status in users.values() if status.lower() == "disable")
    accounts = [
        Account(name, secret.encode(), ordered(entries.get(f"User:{name}", ())), kind.lower() == "super")
        for name, secret, kind, _ in users.values()
        if name not in disabled
    ]
    return accounts, disabled


def _rows(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """The rows' cells, each with the head of its table. Cells are parted by two spaces or more."""
    head: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = re.split(" {2,}", line.strip())
        if cells in (_USER, _ENTRY):
            head = cells
        elif (head == _ENTRY and len(cells) == 1 and cells[0].startswith("User:")) or len(cells) == len(head):
            yield head, cells
        elif cells != [""] and not _SAID.fullmatch(cells[0]):
            raise ValueError(f"line {number} is no row of {' '.join(head) or 'a table'}")


def _entry(policy: str, resource: str, actions: str, sources: str, decision: str) -> Entry:
    kind, _, name = resource.partition(":")
    if kind.upper() not in _KINDS:
        raise ValueError(f"{resource} is no resource")
    return Entry(
        kind.upper(),
        name.partition("*")[0] if name.endswith("*") else name,
        name.endswith("*") or kind == ANY,
        _actions(actions),
        _ALLOWS[decision.upper()],
        tuple(ip_network(each, strict=False) for each in _listed(sources)),
        policy.upper() == "DEFAULT",
    )


def _actions(text: str) -> frozenset[str]:
    named = frozenset(each.upper() for each in _listed(text))
    if unknown := named - _ACTIONS - {"ALL"}:
        raise ValueError(f"{min(unknown)} is no action")
    return _ACTIONS if "ALL" in named else named


def _listed(text: str) -> list[str]:
    """The items of a list as Java prints it; null is none."""
    return [] if text in ("null", "[]") else text.strip("[]").split(", ")
