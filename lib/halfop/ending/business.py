"""The business data of a producer group: its tables as views, what queries give, and the keys that join them.

A transaction without a row there is rolled back only if the data is fresh, and reaches back far enough.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from halfop.columns.keys import HALF_KEY, present
from halfop.ending.plan import COMMIT, ROLLBACK
from halfop.frame.errors import InputRefused, UsageError
from halfop.frame.nearest import did_you_mean
from halfop.frame.trouble import missing_client
from halfop.frame.units import EPOCH
from halfop.planning.counts import covers, ranges_of
from halfop.rocketmq.message import COMPRESSED, decompressed
from halfop.settings.business import OPEN_TRANSACTIONS, Resolution, TableSource, fixed_instant
from halfop.settings.values import duration_text
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.spark_errors import SPARK_ERRORS, innermost

KEY, OUTCOME, EVIDENCE = "key", "outcome", "evidence"
_KEYS = (StringType, ByteType, ShortType, IntegerType, LongType)
_INSTANTS = (TimestampType, TimestampNTZType, DateType)


@dataclass(frozen=True)
class Business:
    """The business data of a producer group; valid while its views are there."""

    spark: SparkSession
    group: str
    how: Resolution

    def outcomes(self) -> DataFrame:
        """Returns what the group's query gives: `key` as text, `outcome`, and its `evidence` as JSON or null.

        A key's blanks at the end are cut: a database fills CHAR columns with them.
        """
        where, rows = f"{self._place}.query", self._sql("query", self.how.query)
        for name in (KEY, OUTCOME, *self.how.evidence):
            _refuse_missing(where, name, rows.columns)
        _refuse_type(where, KEY, rows.schema[KEY].dataType, _KEYS, "a text or a whole number: cast it")
        return rows.select(F.rtrim(F.col(KEY).cast("string")).alias(KEY), _known(where), self._evidence())

    def watermark(self) -> datetime | None:
        """Returns the instant up to which the data is complete; None if nobody knows."""
        return self._instant("watermark", self.how.watermark)

    def complete_since(self) -> datetime | None:
        """Returns the instant since which the data is complete; None if nobody knows."""
        given = self.how.complete_since
        return (given and fixed_instant(given)) or self._instant("complete_since", given)

    def _instant(self, what: str, query: str | None) -> datetime | None:
        """The one instant that a query gives."""
        if query is None:
            return None
        where, rows = f"{self._place}.{what}", self._sql(what, query)
        if len(rows.columns) != 1:
            raise UsageError(f"{where}: expected one column, an instant; it gives {', '.join(rows.columns)}")
        _refuse_type(where, rows.columns[0], rows.schema[0].dataType, _INSTANTS, "an instant: cast it to TIMESTAMP")
        with self.named(what):
            found = rows.select(F.unix_micros(F.col(rows.columns[0]).cast("timestamp"))).limit(2).collect()
        if len(found) > 1:
            raise UsageError(f"{where}: expected one row, as of max(…) or min(…); it gives several")
        if not found or found[0][0] is None:
            return None
        return EPOCH + timedelta(microseconds=found[0][0])

    @property
    def _place(self) -> str:
        return f"resolve.groups.{self.group}"

    def _sql(self, what: str, text: str) -> DataFrame:
        """The rows of a query; a command that changes something is none, and is refused by the parser."""
        with self.named(what):
            return self.spark.sql(f"SELECT * FROM (\n{text.strip().rstrip(';')}\n)")  # noqa: S608 - the user's own

    @contextmanager
    def named(self, what: str) -> Iterator[None]:
        """Names the group and the query in an error of Spark's."""
        try:
            yield
        except SPARK_ERRORS as error:
            raise UsageError(f"{self._place}.{what}: {innermost(error)}") from error

    def _evidence(self) -> Column:
        columns = [F.col(name) for name in self.how.evidence]
        found = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}) if columns else F.lit(None).cast("string")
        return found.alias(EVIDENCE)


@contextmanager
def business(spark: SparkSession, group: str, how: Resolution, transactions: DataFrame) -> Iterator[Business]:
    """Gives the tables of a group their names, and the transactions theirs, for as long as the block runs.

    The caller's own views of these names are back afterwards.
    """
    made: list[str] = []
    own = [(name, view) for name in (*how.tables, OPEN_TRANSACTIONS) if (view := _view(spark, name)) is not None]
    try:
        for name, source in how.tables.items():
            _loaded(spark, f"resolve.groups.{group}.tables.{name}", source).createOrReplaceTempView(name)
            made.append(name)
        transactions.createOrReplaceTempView(OPEN_TRANSACTIONS)
        made.append(OPEN_TRANSACTIONS)
        yield Business(spark, group, how)
    finally:
        for name in made:
            spark.catalog.dropTempView(name)
        for name, view in own:
            view.createOrReplaceTempView(name)


def _view(spark: SparkSession, name: str) -> DataFrame | None:
    is_view = spark.catalog.tableExists(name) and spark.catalog.getTable(name).isTemporary
    return spark.table(name) if is_view else None


def _loaded(spark: SparkSession, place: str, source: TableSource) -> DataFrame:
    try:
        if source.path is not None:
            return spark.read.format(source.format).load(source.path)
        if source.table is not None:
            return spark.table(source.table)
        given = {"url": source.url, "dbtable": source.dbtable, **source.properties, **_password(place, source)}
        return spark.read.format("jdbc").options(**given).load()
    except SPARK_ERRORS as error:
        raise InputRefused(place, None, f"it cannot be read: {missing_client(error) or innermost(error)}") from error


def _password(place: str, source: TableSource) -> dict[str, str]:
    if source.password_env is None:
        return {}
    if (found := os.environ.get(source.password_env)) is None:
        raise UsageError(f"{place}.password_env: there is no environment variable {source.password_env}")
    return {"password": found}


def _known(where: str) -> Column:
    """The outcome, if it is one."""
    text = F.col(OUTCOME).cast("string")
    wrong = F.concat(F.lit(f"{where}: outcome: expected {COMMIT}, {ROLLBACK} or null; it gives "), text)
    return F.when(text.isNull() | text.isin(COMMIT, ROLLBACK), text).otherwise(F.raise_error(wrong)).alias(OUTCOME)


def _refuse_missing(where: str, name: str, columns: Sequence[str]) -> None:
    if columns.count(name) != 1:
        near = did_you_mean(name, [each for each in columns if each != name])
        raise UsageError(f"{where}: expected one column {name}; it gives {', '.join(columns)}{near}")


def _refuse_type(where: str, name: str, found: DataType, known: tuple[type[DataType], ...], expected: str) -> None:
    if not isinstance(found, known):
        raise UsageError(f"{where}: {name}: expected {expected}; it is {found.simpleString().upper()}")


JOIN_KEYS = "join_keys"
UNIQ_KEY, KEYS, _BODY = "uniq_key", "keys", "body."
_SEPARATOR = " "  # RocketMQ's own between several keys


def with_join_keys(warehouse: KernelWarehouse, rows: DataFrame, by: str) -> DataFrame:
    """Returns transactions with an array of the keys that business data may know them by; null if there is none."""
    if by == UNIQ_KEY:
        return rows.withColumn(JOIN_KEYS, _several(F.array(present(F.col("uniq_key")))))
    near = covers(ranges_of(rows, "queue_offset"), "queue_offset")
    if near is None:
        return rows.withColumn(JOIN_KEYS, F.lit(None).cast("array<string>"))
    landed = warehouse.read("half_messages", where=near)
    mine = landed.join(rows.select(*HALF_KEY, F.col("commit_log_offset").alias("place")), HALF_KEY)
    same = mine.where(F.col("commit_log_offset").eqNullSafe(F.col("place")))  # else a broker was rebuilt
    found = same.groupBy(HALF_KEY).agg(F.any_value(_keys(by)).alias(JOIN_KEYS))
    return rows.join(found, HALF_KEY, "left")


def _keys(by: str) -> Column:
    if by == KEYS:
        return _several(F.split("keys", _SEPARATOR))
    found = F.get_json_object(_text(), by.removeprefix(_BODY))
    return _several(F.array(F.when(~_is_structure(found), found)))


def _is_structure(value: Column) -> Column:
    """An object or a list is no key, though it is there: nothing can be found by it, and nothing is absent."""
    return value.rlike(r"^\s*[\[{]") & F.get_json_object(value, "$").isNotNull()


def _several(keys: Column) -> Column:
    """The keys that are there, each once; null if none is."""
    found = F.array_distinct(F.filter(F.transform(keys, _trimmed), lambda key: key != ""))
    return F.when(F.size(found) > 0, found)


def _trimmed(key: Column) -> Column:
    """`F.rtrim` itself would take the key's number in the array for the characters to cut."""
    return F.rtrim(key)


def _text() -> Column:
    """The body as text; null if it cannot be decompressed."""
    is_compressed = F.coalesce(F.col("sys_flag"), F.lit(0)).bitwiseAND(COMPRESSED) != 0
    undo = F.udf(_decompressed, "binary", useArrow=False)
    undone = undo(F.when(is_compressed, F.col("body")), F.col("sys_flag"))  # other bodies do not travel
    return F.when(is_compressed, undone).otherwise(F.col("body")).cast("string")


def _decompressed(body: bytes | None, flag: int) -> bytes | None:
    return None if body is None else decompressed(bytes(body), flag)


NOT_FRESH, NOT_COVERED = "NOT_FRESH", "NOT_COVERED"
WHY_NOT, ABSENT = "why_not", "absent"


@dataclass(frozen=True)
class Absence:
    """The absence of rows from business data that was complete up to `watermark` before it was read."""

    after: timedelta | None
    watermark: datetime | None

    @property
    def counts(self) -> bool:
        return self.after is not None

    @property
    def is_fresh(self) -> Column:
        """Whether the data is fresh up to long after a transaction's birth; null for none without a born time."""
        if self.after is None or self.watermark is None:
            return F.lit(False)
        return F.coalesce(F.col("born_timestamp") < F.lit(self.watermark - self.after), F.lit(False))

    def covered(self, found: pa.Table, since: datetime | None) -> pa.Table:
        """Returns the rows with evidence of absence, or NOT_COVERED if the data does not reach back to their birth."""
        absent = pc.and_(found[ABSENT], pc.is_null(found[WHY_NOT]))
        young = pa.scalar(False) if since is None else pc.greater_equal(found["born_timestamp"], pa.scalar(since))
        too_old = pc.and_(absent, pc.invert(pc.fill_null(young, False)))
        columns = {
            WHY_NOT: pc.if_else(too_old, NOT_COVERED, found[WHY_NOT]),
            EVIDENCE: pc.if_else(absent, self._evidence(since), found[EVIDENCE]),
        }
        for name, column in columns.items():
            found = found.set_column(found.column_names.index(name), name, column)
        return found

    def _evidence(self, since: datetime | None) -> str | None:
        if self.after is None or self.watermark is None or since is None:
            return None
        known = {"absent_after": duration_text(self.after), "watermark": self.watermark, "complete_since": since}
        return json.dumps(known, separators=(",", ":"), default=datetime.isoformat)
