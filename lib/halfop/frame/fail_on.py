"""`--fail-on`: from how many findings on a call that is done ends with status 5."""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Collection
from fractions import Fraction
from typing import NamedTuple

from halfop.frame.summary import Summary
from halfop.rules.reasons import HARMLESS, Reason, known

log = logging.getLogger("halfop.fail_on")

_FORM = re.compile(r"(conflicts|rejects)(?:=([0-9]{1,18}(?:\.[0-9]{1,9})?%|[0-9]{1,18}))?", re.ASCII)


class FailOn(NamedTuple):
    """At least so many findings of a kind, or such a part of the rows that the call read."""

    kind: str
    rows: int = 1
    part: Fraction = Fraction(0)
    text: str = ""  # as it was given


def fail_on(text: str) -> FailOn:
    """`conflicts`, `rejects=100` or `rejects=1%`."""
    match = _FORM.fullmatch(text)
    kind, least = match.groups() if match else ("", "0")
    found = (FailOn(kind) if least is None else _least(kind, least))._replace(text=text)
    if found.rows < 1 or not 0 <= found.part <= 1:
        expected = "expected conflicts or rejects, or either with =100 (rows, at least 1) or =1% (above 0, at most 100)"
        raise argparse.ArgumentTypeError(f"{expected}; given {text!r}")
    return found


def _least(kind: str, text: str) -> FailOn:
    if not text.endswith("%"):
        return FailOn(kind, int(text))
    part = Fraction(text.removesuffix("%")) / 100
    return FailOn(kind, int(part > 0), part)


def add_fail_on(parser: argparse.ArgumentParser, call: str) -> None:
    """Adds the option to a call of that name."""
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        type=fail_on,
        metavar="KIND[=N|=N%]",
        help=f"end with status 5 if {call} has found some: conflicts, or rejects (any reason but REDUNDANT and "
        "FOUND_RANGE); with =100 at least 100 of them; with =1%% at least 1%% of the rows that it read (repeatable)",
    )


def failing_on(bounds: Collection[FailOn], summary: Summary) -> Summary:
    """Gives a call that is done status 5 if it has found what one of these asks for, and says which, and how many."""
    for bound in bounds:
        found = sum(n for name, n in summary.extra.get("rejected", {}).items() if _counts(bound.kind, name))
        read = sum(summary.rows_read.values())
        if summary.status in (0, 5) and found >= bound.rows and found >= bound.part * read:
            summary.status = 5
            note = f"status 5, by --fail-on {bound.text}: {found:,} {bound.kind}, of {read:,} rows that were read"
            log.warning(note)
            summary.notes.append(note)
    return summary


def _counts(kind: str, name: str) -> bool:
    reason = known(name.partition(".")[2])
    return reason is Reason.CONFLICT if kind == "conflicts" else reason not in HARMLESS
