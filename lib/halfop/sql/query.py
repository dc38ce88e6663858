"""One statement of SQL that reads, over tables and topics by their names; errors in a sentence, without Spark's trace.

Whether a statement only reads is left to Spark's own grammar. A query runs as part of `SELECT * FROM (…)`, where
nothing else than a query can stand. DESCRIBE, EXPLAIN and SHOW run as they are, and change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from halfop.frame.errors import UsageError
from halfop.frame.nearest import did_you_mean
from halfop.sql.views import lent_views, names, quoted
from halfop.warehouse.tables import Warehouse
from halfop.wording import refuse_empty

_READS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
_SHOWS = ("DESCRIBE", "DESC", "EXPLAIN", "SHOW")
_MOST = 2**31 - 1  # that Spark can count for a limit
_ALLOWED = "a query (SELECT, WITH, FROM, VALUES, TABLE), DESCRIBE, EXPLAIN or SHOW"
# A comment before a statement that shows is refused: where it ends is Spark's to say.
_SHOWING = re.compile(rf"\s*({'|'.join(_SHOWS)})\b", re.IGNORECASE)
_FIRST_WORD = re.compile(r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(\w*)", re.DOTALL)
# Of SQLSTATE: wrong statements, wrong values, and errors that the statement itself raises.
_OF_STATEMENT = re.compile(r"SQLSTATE: (?:42|22|21|P0|0A)\w{3}")


def queried(warehouse: Warehouse, statement: str, most: int | None = None) -> pa.Table:
    """Returns the rows of a statement, at most so many; UsageError for one that is wrong, or does more than read.

    InputRefused for a warehouse without tables. The tables and topics whose names are in it are views of the
    session while it runs, and hide others of those names. It guards against mistakes: functions of Spark may still run
    anything.
    """
    text = statement.strip().rstrip("; \n\t")
    shows = _SHOWING.match(text)
    if shows is None:
        _refuse_other(text)
    refuse_empty(warehouse)
    known = names(warehouse)
    lowered = text.lower()
    everything = shows is not None and shows[1].upper() == "SHOW"
    wanted = [name for name in known if everything or _names(lowered, name.lower())]
    with _in_a_sentence(known), lent_views(warehouse.spark, known, wanted):
        rows = warehouse.spark.sql(text) if shows else _query(warehouse.spark, text)
        return (rows if most is None else rows.limit(min(most, _MOST))).toArrow()


def _names(text: str, name: str) -> bool:
    """Returns whether the text has the name, not as a part of a longer word."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _refuse_other(text: str) -> None:
    first = _FIRST_WORD.match(text)
    word = first[1].upper() if first else ""
    if word not in _READS:
        raise UsageError(f"{word or 'nothing'}: this is no statement that only reads; expected {_ALLOWED}")


def _query(spark: SparkSession, text: str) -> DataFrame:
    """The rows of a query. A statement that is right, but no query, does more than read."""
    try:
        return spark.sql(f"SELECT * FROM (\n{text}\n)")  # noqa: S608 - the user's own statement
    except ParseException:
        _refuse_wrong(spark, text)
    raise UsageError(f"this statement does more than read, so it was not started; expected one that is {_ALLOWED}")


def _refuse_wrong(spark: SparkSession, text: str) -> None:
    """Raises ParseException if that is no statement at all; nothing is run."""
    try:
        spark.sql(f"EXPLAIN\n{text}")
    except ParseException:
        raise
    except PySparkException:
        return


@contextmanager
def _in_a_sentence(known: Collection[str]) -> Iterator[None]:
    """Raises UsageError for what Spark finds wrong with the statement, or with a value that it meets."""
    try:
        yield
    except PySparkException as error:
        if not _OF_STATEMENT.search(str(error)):
            raise
        raise UsageError(_sentence(error, known)) from error


def _sentence(error: PySparkException, known: Collection[str]) -> str:
    condition, given = error.getCondition() or "", error.getMessageParameters() or {}
    if condition == "TABLE_OR_VIEW_NOT_FOUND" and "relationName" in given:
        return _no_table(_plain(given["relationName"]), known)
    if condition.startswith("UNRESOLVED_COLUMN") and "objectName" in given:
        column, columns = _plain(given["objectName"]), _listed(given.get("proposal", ""))
        return f"no column {column}{did_you_mean(column, columns) or _there(columns)}"
    return re.sub(r"\s*SQLSTATE: .*", "", str(error).strip().splitlines()[0], flags=re.DOTALL)


def _no_table(name: str, known: Collection[str]) -> str:
    if name in known:  # as `orders.eu`, of which SQL has made two names
        return f"no table or topic by that name without backticks: write {quoted(name)}"
    return f"no table or topic {name}{did_you_mean(name, known)}"


def _there(columns: Collection[str]) -> str:
    return f"; there are {', '.join(columns)}" if columns else ""


def _listed(proposal: str) -> list[str]:
    return [_plain(each) for each in proposal.split(", ") if each]


def _plain(name: str) -> str:
    """A name of several parts without its backticks."""
    return ".".join(part.replace("``", "`") for part in re.findall(r"`((?:[^`]|``)*)`", name)) or name
