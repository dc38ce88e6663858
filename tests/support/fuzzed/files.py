"""Files that operators give: the accounts of a gateway, and plans."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

import pyarrow as pa
from halfop.columns.keys import Key
from halfop.ending import plan as ending
from halfop.erasure import plan as erasure
from halfop.frame.errors import InputRefused, UsageError
from halfop.gateway.account_files import read_accounts
from halfop.settings.load import load_settings

from support.fuzzed.target import SHARED, Draws, Target, as_file

# ---- accounts ----


def acl(content: bytes) -> None:
    """A file of accounts has only such, each with its keys as texts; or it is refused, whatever YAML it is."""
    with as_file(content, ".yml") as path:
        found = read_accounts(path)
    for key, account in found.known.items():
        assert account.access_key == key
        assert 0 < len(key) < len(content) + _WIDER
        assert 0 < len(account.secret) < len(content) + _WIDER
        assert all(account.may(right, "t") in (True, False) for right in ("PUB", "SUB"))


_WIDER = 40  # than YAML writes it, at most: a time as text
_ACL = b"""accounts:
  - accessKey: shop
    secretKey: 12345678
    admin: false
    defaultTopicPerm: DENY
    topicPerms: [orders=PUB|SUB, other=deny]
    groupPerms:
      - g=SUB
  - {accessKey: &a ops, secretKey: *a, admin: true}
"""
_PRINTED = b"""#UserName  #Password  #UserType  #UserStatus
shop  12345678  Normal  enable
ops  12345678  Super  disable
get user from 10.0.0.1:10911 success.
#Subject  #PolicyType  #Resource  #Actions  #SourceIp  #Decision
User:shop  Custom  Topic:orders*  [Pub, Sub]  [10.0.0.0/8, 10.1.0.1]  Allow
User:shop  Default  *  [All]  null  Deny
User:ops
"""


def _accounts() -> Iterator[bytes]:
    yield _ACL
    yield b"globalWhiteRemoteAddresses: [10.0.0.*]\n" + _ACL
    yield b"accounts:\n- accessKey: 2025-06-15 15:06:40.1 +2:00\n  secretKey: !!binary aGk=\n"
    yield b"a: &a {accessKey: x, secretKey: .inf}\naccounts:\n- <<: *a\n  admin: 0o7\n- ? [1]\n  : 0x_1f\n"
    yield _PRINTED


# ---- settings ----


def settings(content: bytes) -> None:
    """A file of settings is read, or refused; a value given beside it wins."""
    value, _, text = content.partition(b"\n")
    with as_file(text, ".yaml") as path:
        given = f"rules.transaction_timeout={value.decode(errors='replace')}"
        found = load_settings(Path(path), [given] if value else [], {})
    assert found.rules.transaction_timeout.total_seconds() >= 0


def _settings() -> Iterator[bytes]:
    yield b"7s\nrules:\n  transaction_check_max: 3\n  groups: {g: {transaction_timeout: 1m}}\ngateway: {queues: 4}\n"
    yield b"\ntopics: {a: {value: {format: json, schema: a INT}}}\nfollow: {every: 10s}\nretention: {runs: 30d}\n"
    yield b"[1]\nrules: {transaction_timeout: 10:00:00, transaction_check_max: 0x7}\nwarehouse: !!binary aGk=\n"


# ---- plans ----


def plan(read: Callable[[str], Any], write: Callable[[Any, str], None], content: bytes) -> None:
    """A plan is read as it was written, or refused; its rows are of the file, which are then written as they were."""
    draws = Draws(content)
    suffix, text = (".jsonl", ".parquet")[draws.below(8) == 7], draws.rest()
    with as_file(text, suffix) as path:
        found = read(path)
    assert all(_fits(getattr(found.head, name), kind) for name, kind in get_type_hints(type(found.head)).items())
    with TemporaryDirectory(dir=SHARED) as folder:
        for each in (".jsonl", ".parquet"):
            copy = str(Path(folder) / f"plan{each}")
            write(found, copy)
            assert read(copy) == found


def _fits(value: object, kind: object) -> bool:
    if isinstance(kind, UnionType):
        return any(_fits(value, each) for each in get_args(kind))
    if kind in (str, int, NoneType):
        return type(value) is kind
    return isinstance(value, dict) and all(type(each) is int for each in value.values())


_KEYS = [Key("b", 0, 7), Key("b\u00e9", 3, 2**40)]


def _ending_plans() -> Iterator[bytes]:
    row: dict[str, Any] = dict.fromkeys(ending.ROWS.names) | {"kind": "COMMIT", "origin": "KEY", "uniq_key": "U"}
    row |= {"producer_group": "pg", "copies": [{"queue_offset": 3, "commit_log_offset": None}], "check_times": 2}
    row |= {"born_timestamp": ending.new_head(0, "").instant.replace(year=2025), "evidence": "\u00e9"}
    rows = pa.Table.from_pylist([row | key._asdict() for key in _KEYS], schema=ending.ROWS)
    head = ending.PlanHead("id", 3, "2025-06-15T15:06:40+00:00", "me", "end --where", "2025-01-01")
    yield from _plans(partial(ending.write, ending.EndingPlan(head, rows)))


def _erasure_plans() -> Iterator[bytes]:
    rows = pa.Table.from_pylist([key._asdict() for key in _KEYS], schema=erasure.ROWS)
    head = erasure.ErasureHead("id", "2025-06-15T15:06:40+00:00", "me", "erase", 0, {"half_messages": 2})
    yield from _plans(partial(erasure.write, erasure.ErasurePlan(head, rows)))


def _plans(write: Callable[[str], None]) -> Iterator[bytes]:
    with TemporaryDirectory(dir=SHARED) as folder:
        for first, suffix in ((0, ".jsonl"), (7, ".parquet")):
            path = Path(folder) / f"plan{suffix}"
            write(str(path))
            content = path.read_bytes()
            yield bytes([first]) + content
            if not first:
                head, *rows = content.splitlines(keepends=True)
                yield bytes([first]) + head + rows[0] * 2
                odd = {"queue_id": 1.5, "queue_offset": "x", "born_timestamp": 7, "copies": {}, "seal": []}
                for name, value in odd.items():
                    yield bytes([first]) + head + json.dumps(json.loads(rows[0]) | {name: value}).encode()


TARGETS = (
    Target("acl", acl, _accounts, (UsageError,)),
    Target("settings", settings, _settings, (UsageError,)),
    Target("end-plan", partial(plan, ending.read, ending.write), _ending_plans, (InputRefused,)),
    Target("erase-plan", partial(plan, erasure.read, erasure.write), _erasure_plans, (InputRefused,)),
)
