"""All cases that one look decides."""

from __future__ import annotations

from support.rules import cases_of_lines as lines
from support.rules import cases_of_ops as ops

ONE_LOOK = [
    *lines.UNDELIVERABLE,
    *lines.ENDED,
    *lines.GIVEN_UP,
    *lines.WAITING,
    *lines.IMMUNITIES,
    *[case for case, _ in lines.TIMES],
    *ops.ITEMS,
    *ops.HEADERS,
    *ops.TOO_LATE,
    *ops.SEVERAL,
    *lines.CLOCK,
    *ops.REUSED,
]
