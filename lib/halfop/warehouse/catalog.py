"""The tables' names in a catalog of Spark's. halfop itself reads and writes the tables by path.

Every name and text in SQL is quoted here by hand: Delta's parser takes no parameters in these statements.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from itertools import chain, count
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from halfop.frame.errors import HalfopError, UsageError, is_transient
from halfop.frame.summary import Summary
from halfop.settings.model import Settings
from halfop.warehouse.schema import OF_A_TOPIC, comment, literal, table, table_names
from halfop.warehouse.session import is_of_server
from halfop.warehouse.spark_errors import OPERATIONAL_ERRORS, log_failure
from halfop.warehouse.tables import NO_TABLE, Warehouse

log = logging.getLogger("halfop.catalog")

_LOCATION = re.compile(r"(?m)^Location: (.*)$")


class _Table(NamedTuple):
    directory: str
    comment: str


class _NameTaken(HalfopError):
    def __init__(self, place: str) -> None:
        super().__init__(f"the name is taken by {place}; drop that table, or choose another catalog.schema")


class Catalog:
    """The schema that gets the tables' names; nothing is named if the settings have none."""

    def __init__(self, warehouse: Warehouse, schema: str | None) -> None:
        self._warehouse, self._spark, self._schema = warehouse, warehouse.spark, schema

    @classmethod
    def of(cls, warehouse: Warehouse, settings: Settings) -> Catalog:
        schema = settings.catalog.schema_
        if schema is not None:
            _refuse_forgetful(warehouse.spark, schema)
        return cls(warehouse, schema)

    def publish(self, summary: Summary) -> Summary:
        """Gives every table its name. A job's work is done by now: a failure here is shown by status 1."""
        if self._schema is None:
            return summary
        try:
            failed = self._publish(self._schema, summary)
        except OPERATIONAL_ERRORS as error:
            failed = {self._schema: error}
        if failed:
            lines = {name: log_failure(log, f"catalog: {name}", error) for name, error in failed.items()}
            summary.add_failed("failed_catalog", lines, all(map(is_transient, failed.values())))
        return summary

    def _publish(self, schema: str, summary: Summary) -> dict[str, Exception]:
        wanted = self._wanted()
        if not self._spark.catalog.databaseExists(_quoted(schema)):
            self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {_quoted(schema)}")
        known = self._known(schema, wanted)
        failed: dict[str, Exception] = {
            f"{schema}.{name}": _NameTaken(place)
            for name, place in known.items()
            if not self._is_at(wanted[name].directory, place)
        }
        for name in sorted(wanted.keys() - known.keys()):
            if problem := self._create(f"{schema}.{name}", wanted[name], summary):
                failed[f"{schema}.{name}"] = problem
        return failed

    def _is_at(self, directory: str, place: str) -> bool:
        own = (each(directory) for each in (self._warehouse.path, self._warehouse.uri))  # the second may cost a query
        return any(_place(place) == _place(each) for each in own)

    def _wanted(self) -> dict[str, _Table]:
        """All tables that there may be, by name."""
        own = {name: _Table(name, table(name).comment) for name in table_names() if name != OF_A_TOPIC}
        topics = topic_names(self._warehouse.rows("topics_index"))
        return own | {name: _Table(f"topics/{r['directory']}", comment(r["topic"])) for name, r in topics.items()}

    def _known(self, schema: str, names: Iterable[str]) -> dict[str, str]:
        """Locations of the names that the schema has: one statement, however many tables there are.

        Spark lists the session's temporary views, too, as if they were in every schema.
        """
        rows = self._spark.sql(f"SHOW TABLE EXTENDED IN {_quoted(schema)} LIKE {literal('|'.join(names))}").collect()
        found = {row["tableName"]: _LOCATION.search(row["information"]) for row in rows if not row["isTemporary"]}
        return {name: location[1] if location else "nowhere" for name, location in found.items()}

    def _create(self, name: str, wanted: _Table, summary: Summary) -> Exception | None:
        """Gives a table its name; returns the error, if any. Without a table it does nothing: Delta would make one."""
        if self._warehouse.version(wanted.directory) == NO_TABLE:
            return None
        path = self._warehouse.path(wanted.directory)
        about = f"COMMENT {literal(wanted.comment)} LOCATION {literal(path)}"
        try:
            self._spark.sql(f"CREATE TABLE IF NOT EXISTS {_quoted(name)} USING delta {about}")
        except OPERATIONAL_ERRORS as error:
            return error
        summary.extra.setdefault("named_tables", []).append(name)
        return None


def topic_names(index: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The rows of topics_index by an identifier for each: metastores know letters, digits and _, and no case.

    The order is that in which the topics came, so that no name changes later. A name that another has gets a number.
    """
    names: dict[str, Mapping[str, Any]] = {}
    for row in sorted(index, key=lambda row: (row["run_id"], row["topic"])):
        plain = "topic_" + re.sub("[^a-z0-9_]", "_", row["directory"].lower())
        name = next(n for n in chain([plain], (f"{plain}_{n}" for n in count(2))) if n not in names)
        names[name] = row
    return names


def _refuse_forgetful(spark: SparkSession, schema: str) -> None:
    """Raises UsageError if the names would be lost when the job ends; a server's stay as long as the server."""
    if is_of_server(spark):
        return
    catalog = schema.partition(".")[0] if "." in schema else spark.catalog.currentCatalog()
    if catalog == "spark_catalog" and spark.conf.get("spark.sql.catalogImplementation") == "in-memory":
        raise UsageError(
            f"catalog.schema is {schema}, but this Spark's catalog is forgotten when the job ends. Give Spark one that "
            "stays: --conf spark.sql.catalogImplementation=hive (with a hive-site.xml), or a catalog of its own"
        )


def _quoted(name: str) -> str:
    return ".".join(f"`{part}`" for part in name.split("."))


def _place(location: str) -> str:
    """A location without the forms that a local path takes."""
    parts = urlsplit(location)
    return unquote(parts.path).rstrip("/") if parts.scheme in ("", "file") else location.rstrip("/")
