"""Names for SQL: every table, and every topic by its own name, as views of a session."""

from __future__ import annotations

import logging
import re
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from halfop.sinks.topics import TopicTables
from halfop.warehouse.schema import OF_A_TOPIC, table_names
from halfop.warehouse.tables import Warehouse

_LOG = logging.getLogger("halfop.sql")
_LENDING = threading.Lock()


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


@contextmanager
def lent_views(spark: SparkSession, known: dict[str, Callable[[], DataFrame]], wanted: Iterable[str]) -> Iterator[None]:
    """Makes these names views of the session in this block; after it, views that had them before are back.

    One block at a time: another's views are nobody's own. A server looks for a view's name when its rows are wanted, so
    those of before wait under another.
    """
    with _LENDING, ExitStack() as after:
        for name in wanted:
            if _has_view(spark, name):
                kept = f"halfop_{uuid.uuid4().hex}"
                _copy(spark, name, kept)
                after.callback(spark.catalog.dropTempView, kept)
                after.callback(_copy, spark, kept, name)
            else:
                after.callback(spark.catalog.dropTempView, name)
            make_views(known, [name])
        yield


def _copy(spark: SparkSession, view: str, other: str) -> None:
    spark.table(quoted(view)).createOrReplaceTempView(quoted(other))


def _has_view(spark: SparkSession, name: str) -> bool:
    """Returns whether the session has a view of this name. A table of a catalog is none: it waits behind a view."""
    found, catalog = quoted(name), spark.catalog
    return catalog.tableExists(found) and catalog.getTable(found).isTemporary


def make_views(known: dict[str, Callable[[], DataFrame]], wanted: Iterable[str]) -> None:
    """Makes these names views of the session, which show what is there now."""
    for name in wanted:
        known[name]().createOrReplaceTempView(quoted(name))


def named_in_sql(warehouse: Warehouse, topics: Collection[str]) -> dict[str, str]:
    """Returns the names, as SQL takes them, of topics that have tables of their own."""
    index = {row["topic"]: row["directory"] for row in warehouse.rows("topics_index")}
    return {topic: as_name(name) for topic, name in views_of(index).items() if topic in topics}


_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def as_name(name: str) -> str:
    """Returns a name as SQL takes it: in backticks, if it has other characters than letters, digits and _."""
    return name if _PLAIN.fullmatch(name) else quoted(name)


def quoted(name: str) -> str:
    """Returns a name as SQL takes it whatever characters it has."""
    return f"`{name.replace('`', '``')}`"
