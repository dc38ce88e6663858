"""The one place that writes to stdout: tables and text for people, or a JSON object a line for machines.

Jobs give their results to an Output and do not know its form. At the end comes the summary: a JSON object in one line,
on a terminal some lines for people.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from halfop.frame.errors import TransientError
from halfop.frame.log import escaped
from halfop.frame.summary import Summary, json_line
from halfop.frame.trouble import named, plainly

FORMS = ("text", "json")
_WIDEST = 100


class Table(NamedTuple):
    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""


class Output(Protocol):
    def tables(self, *tables: Table) -> None:
        """Shows tables; in text those without rows are left out."""

    def text(self, text: str) -> None:
        """Shows lines for people; nothing in them may drive a terminal."""

    def summary(self, summary: Summary) -> None:
        """Writes the end of a call, or of a cycle."""

    def failure(self, fields: Mapping[str, object]) -> None:
        """Writes the end of a call that failed; stderr has the error for people."""


@dataclass(frozen=True)
class TextOutput:
    """Tables and lines for people; with `told`, which words a summary, that is for them, too."""

    told: Callable[[Summary], str] | None = None

    def tables(self, *tables: Table) -> None:
        write("\n".join(_titled(table) for table in tables if table.rows))

    def text(self, text: str) -> None:
        write(text)

    def summary(self, summary: Summary) -> None:
        write(self.told(summary) if self.told else f"{summary.to_json()}\n")

    def failure(self, fields: Mapping[str, object]) -> None:
        if self.told is None:
            write(f"{json_line(fields)}\n")


class JsonOutput:
    def tables(self, *tables: Table) -> None:
        for header, rows, title in tables:
            found = [dict(zip(header, row, strict=True)) for row in rows]
            write(json_line({"table": title, "rows": found}) + "\n")

    def text(self, text: str) -> None:
        write(json_line({"text": text}) + "\n")

    def summary(self, summary: Summary) -> None:
        write(f"{summary.to_json()}\n")

    def failure(self, fields: Mapping[str, object]) -> None:
        write(f"{json_line(fields)}\n")


def output_of(log: str, asked: str | None, told: Callable[[Summary], str]) -> Output:
    """Returns the form of stdout: of a log's form, with the summary as asked; unasked it is text on a terminal."""
    form = asked or ("text" if log == "text" and sys.stdout.isatty() else "json")
    if form == "text":
        return TextOutput(told)
    return JsonOutput() if log == "json" else TextOutput()


def write_alone(text: str) -> None:
    """Writes rows for a program as they are; on a terminal no character of them drives it."""
    write("\n".join(map(escaped, text.split("\n"))) if sys.stdout.isatty() else text)


def write(text: str) -> None:
    """Writes text as it is; after a reader has left, nothing. Raises TransientError if stdout does not take it."""
    try:
        with named("/dev/stdout"):
            sys.stdout.write(text)
            sys.stdout.flush()
    except OSError as error:
        # the interpreter's own flush at exit must not fail on it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise TransientError(plainly(error) or f"/dev/stdout: {error.strerror}") from error


# ---- a table as text ----


def _titled(table: Table) -> str:
    lines = [list(table.header), *[[_cell(value) for value in row] for row in table.rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.header))]
    rule = ["-" * width for width in widths]
    text = "".join(_line(line, widths) for line in [lines[0], rule, *lines[1:]])
    return f"{table.title}\n\n{text}" if table.title else text


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() + "\n"


def _cell(value: object) -> str:
    text = "" if value is None else escaped(str(value))
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
