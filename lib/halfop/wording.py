"""Words that several rooms show: values in SQL to copy, what a call has rejected, an empty warehouse."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from halfop.frame.errors import InputRefused
from halfop.frame.summary import Summary, add_counts
from halfop.frame.units import plural
from halfop.rules.reasons import allowed, urgency, words
from halfop.settings.home import launcher
from halfop.warehouse.schema import literal
from halfop.warehouse.tables import NO_TABLE, Warehouse


def value(text: str) -> str:
    """Returns a literal of Spark's SQL that is printable, whatever the text is."""
    return "".join(c if c.isprintable() else _in_sql(c) for c in literal(text))


def _in_sql(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


# ---- rejects ----


class Reject(NamedTuple):
    """The rejects of one kind and reason: their number, and where and what one of them is."""

    kind: str
    reason: str
    rows: int
    place: str
    detail: str

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.reason}"


def warn_of(log: logging.Logger, who: str, summary: Summary, found: Iterable[Reject]) -> None:
    """Adds rejects to the summary, and warns of each reason; what matters most comes first."""
    every = sorted(found, key=lambda each: (urgency(each.reason), -each.rows, each.name))
    add_counts(summary.extra.setdefault("rejected", {}), {each.name: each.rows for each in every})
    for each in every:
        log.warning("%s rejected %s", who, _worded(each))


def _worded(each: Reject) -> str:
    meaning = f" ({found})" if (found := words(each.reason)) else ""
    to_do = f". {found}" if (found := allowed(each.reason)) else ""
    example = ": ".join(filter(None, (each.place, each.detail)))
    return f"{plural(each.rows, 'row')} as {each.name}{meaning}; one of them: {example}{to_do}. Table rejected has all"


# ---- an empty warehouse ----

_READ = ("half_messages", "op_messages", "landing_progress", "decisions", "runs", "rejected")


def refuse_empty(warehouse: Warehouse) -> None:
    """Raises InputRefused if the warehouse has none of the tables that a reader looks at."""
    if all(warehouse.version(name) == NO_TABLE for name in _READ):
        hint = f"name another with --warehouse, or land messages first ({launcher()} land --help)"
        raise InputRefused(warehouse.root, None, "no table of halfop is there", hint)
