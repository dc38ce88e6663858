"""Texts and paths as they stand in SQL that takes no parameters."""

from __future__ import annotations


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def delta_table(path: str) -> str:
    return "delta.`{}`".format(path.replace("`", "``"))
