"""The business data of a producer group: its tables as views, and what queries over them give."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

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

from halfop.ending.plan import COMMIT, ROLLBACK
from halfop.frame.errors import InputRefused, UsageError
from halfop.frame.nearest import did_you_mean
from halfop.frame.trouble import missing_client
from halfop.frame.units import EPOCH
from halfop.settings.business import OPEN_TRANSACTIONS, Resolution, TableSource, fixed_instant
from halfop.warehouse.spark_errors import SPARK_ERRORS, innermost

KEY, OUTCOME, EVIDENCE = "key", "outcome", "evidence"
_KEYS = (StringType, ByteType, ShortType, IntegerType, LongType)
_INSTANTS = (TimestampType, TimestampNTZType, DateType)
_AHEAD = timedelta(minutes=1)  # a clock may be so wrong; a time zone is more so


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
        with self._named(what):
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
        with self._named(what):
            return self.spark.sql(f"SELECT * FROM (\n{text.strip().rstrip(';')}\n)")  # noqa: S608 - the user's own

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Names the group and the query in an error of Spark's."""
        try:
            yield
        except SPARK_ERRORS as error:
            raise UsageError(f"{self._place}.{what}: {innermost(error)}") from error

    @contextmanager
    def named(self) -> Iterator[None]:
        """The same for rows of the group's query that are worked out in the block."""
        with self._named("query"):
            yield

    def _evidence(self) -> Column:
        columns = [F.col(name) for name in self.how.evidence]
        found = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}) if columns else F.lit(None).cast("string")
        return found.alias(EVIDENCE)


@contextmanager
def business(spark: SparkSession, group: str, how: Resolution, transactions: DataFrame) -> Iterator[Business]:
    """Gives the tables of a group their names, and the transactions theirs, for as long as the block runs."""
    made: list[str] = []
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


def is_ahead(watermark: datetime, now: datetime) -> bool:
    """Returns whether a watermark lies in the future: then it is no watermark, but a wrong time zone or clock."""
    return watermark > now + _AHEAD


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
