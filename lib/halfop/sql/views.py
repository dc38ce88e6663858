"""Names for SQL: every table, and every topic by its own name, as views of a session."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from pyspark.sql import DataFrame

from halfop.sinks.topics import TopicTables
from halfop.warehouse.schema import OF_A_TOPIC, table_names
from halfop.warehouse.tables import Warehouse

_LOG = logging.getLogger("halfop.sql")


_TABLES = [name for name in table_names() if name != OF_A_TOPIC]


def names(warehouse: Warehouse) -> dict[str, Callable[[], DataFrame]]:
    """Returns every name that a query may use, with what reads its rows: tables, then topics."""
    topics = TopicTables.of(warehouse)
    found: dict[str, Callable[[], DataFrame]] = {name: partial(warehouse.read, name) for name in _TABLES}
    for topic, name in views_of(topics.names()).items():
        if name != topic:
            _LOG.warning("topic %s has the name of a table or of an older topic: query it as %s", topic, as_name(name))
        found[name] = partial(topics.rows, topic)
    return found


def views_of(topics: Mapping[str, str]) -> dict[str, str]:
    """Returns the name of each topic's view, of topics with their directories: the topic's own.

    SQL knows no case, so that may be the name of a table, or of a topic that came before (no hash is in its directory).
    Then it is `topics/` and the directory, and what a query means stays as it is.
    """
    found: dict[str, str] = {}
    taken = set(_TABLES)
    for topic, directory in sorted(topics.items(), key=lambda each: ("." in each[1], each)):
        found[topic] = f"topics/{directory}" if topic.lower() in taken else topic
        taken.add(found[topic].lower())
    return found


def make_views(known: dict[str, Callable[[], DataFrame]], wanted: Iterable[str]) -> None:
    """Makes these names views of the session, which show what is there now."""
    for name in wanted:
        known[name]().createOrReplaceTempView(quoted(name))


_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def as_name(name: str) -> str:
    """Returns a name as SQL takes it: in backticks, if it has other characters than letters, digits and _."""
    return name if _PLAIN.fullmatch(name) else quoted(name)


def quoted(name: str) -> str:
    """Returns a name as SQL takes it whatever characters it has."""
    return f"`{name.replace('`', '``')}`"
