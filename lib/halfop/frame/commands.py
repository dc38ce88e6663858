"""Commands to copy: any name stays one word of a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from halfop.settings.home import launcher
from halfop.settings.model import Settings


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


def plan_to_review(path: str, settings: Settings) -> str:
    """Returns a note on a plan that was written: nothing has happened yet, and the command that carries it out."""
    command = f"{job_here('end', settings)} --apply {word(path)} --namesrv H:P --set end.brokers=NAME"
    return f"nothing has been ended; review {path}, then: {command} (brokers that landed from files need no --namesrv)"


def _warehouse(settings: Settings) -> Sequence[str]:
    return [] if settings.warehouse is None else ["--warehouse", word(settings.warehouse_root)]


_PLAIN = re.compile(r'[^"$`\\!]*')  # what bash leaves as it is between double quotes


def select(table: str, clauses: str, settings: Settings) -> str:
    """Returns the command that shows rows of a table."""
    return sql(f"SELECT * FROM {table} {clauses}", settings)  # noqa: S608 - shown, not run


def sql(statement: str, settings: Settings) -> str:
    """Returns the command that shows what a statement of SQL selects in this warehouse."""
    plain = statement.isprintable() and _PLAIN.fullmatch(statement)
    return " ".join([launcher(), "sql", f'"{statement}"' if plain else word(statement), *_warehouse(settings)])
