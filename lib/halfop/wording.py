"""Words that several rooms show: commands and SQL to copy, what a call has rejected, an empty warehouse.

In what is to be copied, any name stays one word of a shell, or one name of a statement.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from halfop.frame.errors import InputRefused
from halfop.frame.summary import Summary, add_counts
from halfop.frame.units import plural
from halfop.rules.reasons import allowed, urgency, words
from halfop.settings.home import launcher
from halfop.settings.model import Settings
from halfop.warehouse.schema import delta_table, literal
from halfop.warehouse.tables import NO_TABLE, Warehouse

# ---- to copy ----


def word(text: str) -> str:
    """Returns one word of bash; characters that no terminal should get are escapes."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_spelled(character) for character in text) + "'"


def _spelled(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="replace"))


def on_message(job: str, key: str, settings: Settings, option: str = "") -> str:
    """Returns the command of a job on one message of this warehouse; a key may look like an option."""
    if option:
        given = [with_value(option, key), *_warehouse(settings)]
    else:
        given = [*_warehouse(settings), "--", word(key)] if key.startswith("-") else [word(key), *_warehouse(settings)]
    return " ".join([launcher(), job, *given])


def with_value(option: str, value: str) -> str:
    """Returns an option with its value, which may look like an option."""
    return f"{option}={word(value)}" if value.startswith("-") else f"{option} {word(value)}"


def job_here(job: str, settings: Settings) -> str:
    """Returns the command of a job on this warehouse, to which options can be added."""
    return " ".join([launcher(), job, *_warehouse(settings)])


def plan_to_review(path: str) -> str:
    """Returns a note on a plan that was written: nothing has happened yet, and the command that carries it out."""
    command = f"{launcher()} end --apply {word(path)} --namesrv H:P --set end.brokers=NAME"
    return f"nothing has been ended; review {path}, then: {command} (brokers that landed from files need no --namesrv)"


def _warehouse(settings: Settings) -> Sequence[str]:
    return [] if settings.warehouse is None else ["--warehouse", word(settings.warehouse_root)]


def value(text: str) -> str:
    """Returns a literal of Spark's SQL that is printable, whatever the text is."""
    return "".join(c if c.isprintable() else _in_sql(c) for c in literal(text))


def _in_sql(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def select(root: str, table: str, *clauses: str) -> list[str]:
    """Returns a statement over a table of the warehouse, a clause a line."""
    name = delta_table(f"{root.rstrip('/')}/{table}")
    return [f"SELECT * FROM {name}", *clauses]  # noqa: S608 - shown, not run


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
