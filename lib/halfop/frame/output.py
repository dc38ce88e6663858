"""Rows as a plain text table, safe to print whatever they hold."""

from __future__ import annotations

from collections.abc import Sequence

from halfop.frame.log import escaped

_WIDEST = 100


def text_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns aligned, values escaped and cut at 100 characters; empty without rows."""
    if not rows:
        return ""
    lines = [list(header), *[[_cell(value) for value in row] for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    rule = ["-" * width for width in widths]
    return "".join(_line(line, widths) for line in [lines[0], rule, *lines[1:]])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() + "\n"


def _cell(value: object) -> str:
    text = "" if value is None else escaped(str(value))
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
