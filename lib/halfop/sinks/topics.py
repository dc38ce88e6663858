"""The committed messages of one real topic, wherever runs have written them."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame

from halfop.frame.errors import UsageError
from halfop.frame.nearest import did_you_mean
from halfop.warehouse.tables import NO_TABLE, Warehouse
from halfop.warehouse.where import equal

_SINGLE = "real_topics"


def topic_rows(warehouse: Warehouse, topic: str) -> DataFrame:
    """Returns them: of the topic's own table, and of the table of all topics (`topics.layout`)."""
    known = {row["topic"]: row["directory"] for row in warehouse.rows("topics_index")}
    parts = [warehouse.read(f"topics/{known[topic]}")] if topic in known else []
    if warehouse.version(_SINGLE) != NO_TABLE:
        parts.append(warehouse.read(_SINGLE, None, equal("topic", topic)))
    if not parts:
        raise UsageError(f"{topic}: no message was committed to that topic{did_you_mean(topic, known)}")
    return reduce(DataFrame.unionByName, parts)
