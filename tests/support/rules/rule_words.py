"""Words for cases of the rules: half messages as old as a case wants, and the ops that name them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from model import reference as m
from model.strategies import op_rows

from support.halves import half_at

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
NOW = 1_750_000_000_000
LONG_MAX = m.LONG_MAX

# Each makes the key's row another message.
ANOTHER_MESSAGE: list[dict[str, Any]] = [{"commit_log_offset": 7}, {"store": NOW - 5000}, {"uniq_key": "other"}]


def half(offset: int = 0, age: int = 10 * SECOND, **columns: Any) -> m.Half:
    """A half message that is `age` old at NOW, stored at once; who plays the case names its broker."""
    given: dict[str, Any] = {"real_qid": "3", "body": b"half %d" % (offset % 1000)}
    return half_at(("", 0), offset, NOW - age, **(given | columns))


def asked(times: int | str | None, ago: int, **columns: Any) -> m.Half:
    """The copy that the broker's check wrote `ago` before NOW: a half message that lands with check times."""
    text = None if times is None else str(times)
    return half(**({"age": ago + HOUR, "store": NOW - ago, "check_times": text} | columns))


def op(outcome: str | None = "COMMIT", of: int = 0, offset: int = 0, **columns: Any) -> m.Op:
    return replace(op_rows(("", 0), offset, str(of), [outcome], NOW - SECOND)[0], **columns)


def commit(of: int = 0, offset: int = 0, **columns: Any) -> m.Op:
    return op("COMMIT", of, offset, **columns)


def rollback(of: int = 0, offset: int = 0, **columns: Any) -> m.Op:
    return op("ROLLBACK", of, offset, **columns)


def batch(text: str, outcome: str = "COMMIT", offset: int = 0) -> list[m.Op]:
    return op_rows(("", 0), offset, text, [outcome], NOW - SECOND)


def headed(**columns: Any) -> m.Op:
    """A commit that carries the producer's END_TRANSACTION header, right where nothing else is said."""
    right: dict[str, Any] = {"group": "g", "tran_state_table_offset": 0, "commit_log_offset": 0, "uniq_key": "k0"}
    return commit(**(right | {"from_check": False} | columns))
