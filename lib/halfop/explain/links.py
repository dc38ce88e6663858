"""Half keys that decisions name: of copies, of the live one, and of the one that an op names."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Row

from halfop.columns.keys import Key

Rows = list[Row]


def key_of(row: Row) -> Key:
    """The half key of a row."""
    return Key(row["broker_name"], row["queue_id"], row["queue_offset"])


def linked(row: Row) -> set[Key]:
    """The keys of all copies that a decision knows of."""
    copies = {key_of(copy) for copy in row["copies"] or ()}
    by = superseded_by(row)
    return copies if by is None else copies | {by}


def superseded_by(row: Row) -> Key | None:
    """The key of the copy that stands for this one."""
    return _other(row, "superseded_by", "superseded_by_broker", "superseded_by_queue")


def named_copy(row: Row) -> Key | None:
    """The key of the copy that the op of an ended transaction names, if it is another one."""
    return _other(row, "copy_offset", "copy_broker", "copy_queue")


def _other(row: Row, offset: str, broker: str, queue: str) -> Key | None:
    if row[offset] is None:
        return None
    own = key_of(row)
    if row[broker] is None:
        return own._replace(queue_offset=row[offset])
    return Key(row[broker], row[queue], row[offset])


def grouped(keys: Iterable[Key], rows: Rows) -> list[list[Key]]:
    """The keys by transaction."""
    of = {key: {key} for key in keys}
    for row in rows:
        together = set[Key]().union(*(of[key] for key in {key_of(row), *linked(row)} & of.keys()))
        of |= dict.fromkeys(together, together)
    return [list(group) for group in sorted({tuple(sorted(group)) for group in of.values()})]
