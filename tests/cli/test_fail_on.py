"""--fail-on: plain kinds, numbers and percentages, of what a call has found and read; and what it takes none of."""

from __future__ import annotations

import argparse

import pytest
from halfop.frame.arguments import fail_on, failing_on
from halfop.frame.summary import Summary

READ = {"half_messages": 5_000, "op_messages": 4_000, "open": 1_000}


def status(asked: str, rejected: dict[str, int], read: dict[str, int] | None = None) -> int:
    summary = Summary("reconcile", rows_read=READ if read is None else read, extra={"rejected": rejected})
    return failing_on([fail_on(asked)], summary).status


@pytest.mark.parametrize(
    ("asked", "rejected", "wanted"),
    [
        ("rejects", {"HALF.BAD_REAL_TOPIC": 1}, 5),
        ("rejects", {"OP.REDUNDANT": 7, "RANGE.FOUND_RANGE": 1}, 0),
        ("rejects", {}, 0),
        ("rejects=100", {"HALF.BAD_REAL_TOPIC": 60, "OP.HALF_REJECTED": 39}, 0),
        ("rejects=100", {"HALF.BAD_REAL_TOPIC": 60, "OP.HALF_REJECTED": 40}, 5),
        ("rejects=1%", {"HALF.BAD_REAL_TOPIC": 99, "OP.REDUNDANT": 50}, 0),
        ("rejects=1%", {"HALF.BAD_REAL_TOPIC": 100}, 5),
        ("rejects=0.01%", {"HALF.BAD_REAL_TOPIC": 1}, 5),
        ("rejects=100%", {"HALF.BAD_REAL_TOPIC": 9_999}, 0),
        ("conflicts", {"HALF.BAD_REAL_TOPIC": 9}, 0),
        ("conflicts", {"OP.CONFLICT": 1}, 5),
        ("conflicts=2", {"OP.CONFLICT": 1}, 0),
        ("conflicts=0.02%", {"OP.CONFLICT": 2}, 5),
    ],
)
def test_findings(asked: str, rejected: dict[str, int], wanted: int) -> None:
    assert status(asked, rejected) == wanted


def test_what_was_read_may_be_nothing() -> None:
    assert (status("rejects=50%", {}, {}), status("rejects=50%", {"RANGE.LOST_RANGE": 1}, {})) == (0, 5)


def test_a_call_that_failed_keeps_its_status() -> None:
    failed = Summary("reconcile", status=1, extra={"rejected": {"OP.CONFLICT": 1}})
    assert failing_on([fail_on("conflicts")], failed).status == 1


@pytest.mark.parametrize(
    "text",
    [
        *("", "reject", "=1", "rejects=", "rejects=0", "rejects=-1", "rejects=1e9", "rejects=\u0661"),
        *("rejects=0%", "rejects=100.1%", "rejects=1 %", "rejects=1%%", "rejects=nan%", "conflicts=%"),
    ],
)
def test_what_is_neither_is_refused_and_says_what_is_expected(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected conflicts or rejects, or either with =100"):
        fail_on(text)


def test_a_call_says_which_bound_it_has_reached() -> None:
    found = Summary("land", rows_read={"half_messages": 200}, extra={"rejected": {"HALF.BAD_REAL_TOPIC": 3}})
    failing_on([fail_on("conflicts"), fail_on("rejects=1%")], found)
    assert found.notes == ["status 5, by --fail-on rejects=1%: 3 rejects, of 200 rows that were read"]
