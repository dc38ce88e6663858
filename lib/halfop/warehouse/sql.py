"""Texts and paths quoted for SQL that takes no parameters."""

from __future__ import annotations


def literal(text: str) -> str:
    """The text as a string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def delta_table(path: str) -> str:
    """The name by which SQL reads the Delta table in a folder."""
    return "delta.`{}`".format(path.replace("`", "``"))
