"""The half keys of one transaction: those of all copies that its decisions know of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Row

from halfop.columns.keys import Key, key_of, superseded_by


def linked(decision: Row) -> set[Key]:
    """Returns the keys of all copies that a decision knows of."""
    copies = {key_of(copy) for copy in decision["copies"] or ()}
    by = superseded_by(decision)
    return copies if by is None else copies | {by}


def grouped(keys: Iterable[Key], decisions: Sequence[Row]) -> list[list[Key]]:
    """Returns the keys by transaction."""
    of = {key: {key} for key in keys}
    for row in decisions:
        together = set[Key]().union(*(of[key] for key in {key_of(row), *linked(row)} & of.keys()))
        of |= dict.fromkeys(together, together)
    return [list(group) for group in sorted({tuple(sorted(group)) for group in of.values()})]
