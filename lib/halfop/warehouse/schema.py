"""The tables' columns, types and comments, read from schemas/, their single source; and the folders of topics."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple, cast

import yaml
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

# Properties of Delta's: the columns whose bounds its log has, and whether there is a change feed.
STATS, CHANGE_FEED = "delta.dataSkippingStatsColumns", "delta.enableChangeDataFeed"


class Made(NamedTuple):
    """The origin of a column: an entry of a map, in another column."""

    map: str
    entry: str


@dataclass(frozen=True)
class ColumnSpec:
    """A column. Runs by older versions of the rules than `since` left it null."""

    name: str
    type: str
    comment: str
    made: Made | None = None
    since: str = "1"

    @property
    def ddl(self) -> str:
        """The column as a statement of SQL declares it."""
        return f"`{self.name}` {self.type} COMMENT {literal(self.comment)}"


@dataclass(frozen=True)
class TableSpec:
    """A table. `landing` tables are inputs: a change feed and row versions let a run read a range of them.

    A topic's may have a change feed, too.
    `stats` are the columns whose bounds Delta keeps for each file, so that readers skip files; empty: the first 32.
    """

    name: str
    comment: str
    columns: tuple[ColumnSpec, ...]
    append_only: bool = False
    landing: bool = False
    change_feed: bool = False
    partitioned_by: tuple[str, ...] = ()
    stats: tuple[str, ...] = ()

    @property
    def struct(self) -> StructType:
        return _struct(self.columns)

    @property
    def json(self) -> str:
        """The columns as Delta's log has them."""
        return str(self.struct.json())

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]

    @property
    def given(self) -> list[str]:
        """The columns that a writer gives; the others are made of them."""
        return [c.name for c in self.columns if c.made is None]

    @property
    def properties(self) -> dict[str, str]:
        """Delta table properties. No retention for the markers of written runs: they must outlive any replay."""
        # Files are kept as long as a run can be verified by default, also from a VACUUM of the user's.
        made = {"delta.checkpointInterval": "20", "delta.deletedFileRetentionDuration": "interval 30 days"}
        if self.append_only:
            made["delta.appendOnly"] = "true"
        if self.stats:
            made[STATS] = ",".join(self.stats)
        if self.landing or self.change_feed:
            made[CHANGE_FEED] = "true"
        if self.landing:
            made["delta.enableRowTracking"] = "true"
        return made


@cache
def _struct(columns: tuple[ColumnSpec, ...]) -> StructType:
    """Spark's types of the columns; it parses their names in the JVM, so only once."""
    types = cast(StructType, StructType.fromDDL(", ".join(f"`{c.name}` {c.type}" for c in columns)))
    comments = {c.name: c.comment for c in columns}
    return StructType([StructField(f.name, f.dataType, True, {"comment": comments[f.name]}) for f in types])


@cache
def _texts() -> dict[str, str]:
    """The schema files by name: from the package when it travels as a zip, else from the checkout."""
    packaged = resources.files("halfop") / "schemas"
    files = (packaged if packaged.is_dir() else Path(__file__).parents[3] / "schemas").iterdir()
    return {f.name.removesuffix(".yaml"): f.read_text(encoding="utf-8") for f in files if f.name.endswith(".yaml")}


@cache
def table(name: str) -> TableSpec:
    raw = yaml.safe_load(_texts()[name])
    return TableSpec(
        name=raw["table"],
        comment=raw["comment"],
        columns=tuple(_column(**column) for column in raw["columns"]),
        append_only=raw.get("append_only", False),
        landing=raw.get("landing", False),
        partitioned_by=tuple(raw.get("partitioned_by", ())),
        stats=tuple(raw.get("stats", ())),
    )


def _column(made: Sequence[str] | None = None, **rest: str) -> ColumnSpec:
    return ColumnSpec(**rest, made=None if made is None else Made(*made))


VALUE, VALUE_ERROR = "value", "value_error"


@cache
def valued(topic: TableSpec, kind: str) -> TableSpec:
    """The form of a topic's table that has values of this type, and bounds of what does not fit: they count it."""
    value, error = (_column(**column) for column in yaml.safe_load(_texts()[OF_A_TOPIC])["valued"])
    columns = (*topic.columns, replace(value, type=kind), error)
    return replace(topic, columns=columns, stats=(*topic.stats, VALUE_ERROR))


OF_A_TOPIC = "real_topic"  # one for each topic, below topics/
REJECTED = "rejected"


def table_names() -> list[str]:
    return sorted(_texts())


def literal(text: str) -> str:
    """The text as a string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def delta_table(path: str) -> str:
    """The name by which SQL reads the Delta table in a folder."""
    return "delta.`{}`".format(path.replace("`", "``"))


def completed(name: str, rows: DataFrame) -> DataFrame:
    """Returns the rows with all columns of a table; a column that they lack is null."""
    missing = {f.name: F.lit(None).cast(f.dataType) for f in table(name).struct if f.name not in rows.columns}
    return rows.withColumns(missing).select(table(name).names)


_LONGEST = 100
_SPELLED = str.maketrans({"%": "~", "|": "!"})  # neither is legal in a topic, so names stay apart


def directories(topics: Iterable[str], taken: Mapping[str, str]) -> dict[str, str]:
    """A directory for each topic that has none in `taken` (topic → directory).

    Plain names stay as they are. Names that are too long, start with a character that hides files, or differ from
    another only in case get a hash.
    """
    used = {directory.lower() for directory in taken.values()}
    made: dict[str, str] = {}
    for topic in sorted(set(topics) - set(taken)):
        plain = topic.translate(_SPELLED)
        free = len(plain) <= _LONGEST and plain.lower() not in used and not plain.startswith("_")
        made[topic] = plain if free else _hashed(topic, plain)
        used.add(made[topic].lower())
    return made


def comment(topic: str) -> str:
    """The comment of a topic's table."""
    return f"Committed messages of real topic {topic}"


def _hashed(topic: str, plain: str) -> str:
    shown = plain.lstrip("_")[: _LONGEST - 17] or "topic"
    return f"{shown}.{hashlib.sha256(topic.encode()).hexdigest()[:16]}"
