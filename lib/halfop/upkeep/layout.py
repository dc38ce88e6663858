"""`maintain` brings topics' tables into the layout of their settings: bounds of columns, clustering, a change feed.

Delta's clustering asks nothing of a reader. Compaction then lays out new files, with clustered ones of less than half a
gigabyte in all; larger ones stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from halfop.frame.summary import Summary
from halfop.settings.topics import TopicOverride, TopicSettings
from halfop.sinks.layout import laid_out, unfit_column
from halfop.warehouse.schema import CHANGE_FEED, STATS, TableSpec
from halfop.warehouse.tables import NO_TABLE, Warehouse
from halfop.warehouse.upkeep import TableUpkeep


@dataclass(frozen=True)
class Layout:
    """What a table lacks: properties, and columns by which its rows are laid out (None: it has those)."""

    table: TableUpkeep
    properties: dict[str, str]
    cluster_by: Sequence[str] | None

    def commit(self) -> None:
        """The bounds come first, because Delta clusters by no column without them. Killed, it is called again."""
        self.table.set(self.properties)
        if self.cluster_by is not None:
            self.table.cluster(self.cluster_by)


def lacking_layouts(warehouse: Warehouse, topics: TopicSettings, summary: Summary) -> Iterator[Layout]:
    """The tables that lack a part of their layout; notes those that cannot have it yet."""
    all_own = topics.own
    for row in warehouse.rows("topics_index") if all_own else ():
        name, own = f"topics/{row['directory']}", all_own.get(row["topic"])
        if own is None or warehouse.version(name) == NO_TABLE:
            continue
        table = warehouse.spec(name)
        if (problem := unfit_column(own, table)) is not None:
            summary.notes.append(f"topics.{row['topic']}.cluster_by: not yet, because {problem}")
            continue
        found = _lacking(TableUpkeep(warehouse, name), own, laid_out(table, own))
        if found.properties or found.cluster_by is not None:
            yield found


def _lacking(table: TableUpkeep, own: TopicOverride, wanted: TableSpec) -> Layout:
    properties = dict[str, str]()
    if own.cluster_by is not None:
        properties[STATS] = ",".join(wanted.stats)
    if own.change_feed is not None:
        properties[CHANGE_FEED] = str(own.change_feed).lower()
    known = {CHANGE_FEED: "false"} | dict(table.properties)
    has_it = own.cluster_by is None or own.cluster_by == table.clustered_by
    lacking = {key: text for key, text in properties.items() if known.get(key) != text}
    return Layout(table, lacking, None if has_it else own.cluster_by)
