"""The one place that writes to stdout: tables and text for people, or a JSON object a line for machines.

Jobs give their results to an Output and do not know its form. The last line is the summary in both forms.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from halfop.frame.log import escaped
from halfop.frame.summary import json_line

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

    def summary(self, line: str) -> None:
        """Writes the last line, which is JSON already."""


class TextOutput:
    def tables(self, *tables: Table) -> None:
        _write("\n".join(_titled(table) for table in tables if table.rows))

    def text(self, text: str) -> None:
        _write(text)

    def summary(self, line: str) -> None:
        _write(f"{line}\n")


class JsonOutput:
    def tables(self, *tables: Table) -> None:
        for header, rows, title in tables:
            found = [dict(zip(header, row, strict=True)) for row in rows]
            _write(json_line({"table": title, "rows": found}) + "\n")

    def text(self, text: str) -> None:
        _write(json_line({"text": text}) + "\n")

    def summary(self, line: str) -> None:
        _write(f"{line}\n")


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has left; the interpreter's own flush at exit must not fail on it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
