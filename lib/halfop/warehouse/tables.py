"""The warehouse: tables by name, made from their schemas, read at a version, appended to at most once a run.

`Warehouse` is the interface. Its verbs are what a store does: `kernel` has the one of files and Delta Kernel,
`by_spark` the one of Spark's public API, and `simulation.replay` one that plays history. What can be said by these
verbs is said here, once for all stores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from halfop.frame.errors import HalfopError, LostRows
from halfop.frame.openlineage import Touched
from halfop.warehouse.parquet import arrow_schema
from halfop.warehouse.rows import FoundRows, Rows, Stage, frame_of
from halfop.warehouse.schema import OF_A_TOPIC, TableSpec, delta_table, table
from halfop.warehouse.where import Where, equal

NO_TABLE = -1


class Selected(NamedTuple):
    """Rows of a table, and the number of files that may hold them."""

    rows: DataFrame
    files: int


class Marker(NamedTuple):
    """Makes a commit happen once: a table has the greatest number of each app."""

    app: str
    number: int


class AlreadyWrittenError(Exception):
    """The table holds this run's write, or a later run's."""


@dataclass(frozen=True)
class Warehouse(ABC):
    """All tables below a root. `lands_again`: whether a row may be in more than one landing."""

    lands_again: ClassVar[bool] = True
    spark: SparkSession
    root: str
    touched: Touched = field(default_factory=Touched, repr=False)

    # ---- the verbs of a store: what a table is ----

    @abstractmethod
    def version(self, name: str) -> int:
        """Returns the table's newest version; NO_TABLE if there is no table."""

    @abstractmethod
    def keeps(self, name: str, version: int) -> bool:
        """Returns whether a version can still be read: log clean-up removes versions of long ago."""

    @abstractmethod
    def properties(self, name: str, version: int | None = None) -> Mapping[str, str]:
        """Returns the table's properties; none if there is no table."""

    @abstractmethod
    def marker(self, name: str, app: str) -> int:
        """Returns the last run that appended to the table under this app id; -1 if none did."""

    @abstractmethod
    def holds(self, name: str, run_id: int) -> bool:
        """Returns whether the table may hold rows of a run: RESTORE keeps the run's marker, not its rows."""

    @abstractmethod
    def replaced(self, name: str, after: int, upto: int) -> bool:
        """Returns whether a commit after version `after`, up to `upto`, replaced or deleted files, or may have."""

    @abstractmethod
    def has(self, file: str) -> bool:
        """Returns whether a file of this name is below the root."""

    # ---- the verbs of a store: reads, as rows of one of both kinds ----

    @abstractmethod
    def found(self, name: str, version: int | None = None, where: Where | None = None) -> FoundRows:
        """Returns the rows, at a version, that meet the condition; none if there is no table (NO_TABLE).

        Columns that the schema got later are null.
        """

    @abstractmethod
    def added(self, name: str, before: int, upto: int) -> Rows:
        """Returns the rows that landed after version `before`, up to and with version `upto`, as they landed."""

    @abstractmethod
    def found_before(self, name: str, before: int, upto: int, where: Where) -> FoundRows:
        """Returns the rows up to version `before` that meet the condition, as version `upto` has them."""

    # ---- the verbs of a store: writes ----

    @abstractmethod
    def make(self, *names: str) -> None:
        """Creates the tables that are missing, and adds columns that an older version of halfop did not know."""

    @abstractmethod
    def commit(
        self,
        name: str,
        rows: Rows | Sequence[Mapping[str, object]],
        marker: Marker | None = None,
        spec: TableSpec | None = None,
    ) -> None:
        """Appends rows. With a marker once: a second commit with it, now or ever, changes nothing.

        Columns that given mappings lack are null. `spec`: the form that the table gets, if values come to a topic's.
        """

    # ---- names ----

    def path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def uri(self, name: str) -> str:
        """Returns the table's path as Spark's catalog has it."""
        return self.path(name)

    def spec(self, name: str) -> TableSpec:
        """Returns the table's form; a topic's table, and only its log, shows the type of its values."""
        return spec_of(name)

    def schema(self, name: str) -> StructType:
        return self.spec(name).struct

    # ---- reads as frames of the stage ----

    @cached_property
    def stage(self) -> Stage:
        """The kind of the work at hand."""
        return Stage(self.spark)

    def for_few_rows(self) -> AbstractContextManager[None]:
        """A stage of work that is here until it takes rows that are there."""
        return self.stage.begun()

    def read(self, name: str, version: int | None = None, where: Where | None = None) -> DataFrame:
        """Returns the rows that `found` returns."""
        return self.stage.take(self.found(name, version, where).rows)

    def select(self, name: str, version: int | None = None, where: Where | None = None) -> Selected:
        """Returns these rows with the number of files that may hold them."""
        return self._selected(self.found(name, version, where))

    def landed_between(self, name: str, before: int, upto: int) -> DataFrame:
        """Returns the rows that `added` returns."""
        return self.stage.take(self.added(name, before, upto))

    def landed_until(self, name: str, before: int, upto: int, where: Where) -> Selected:
        """Returns the rows that `found_before` returns, and the number of files that may hold them."""
        return self._selected(self.found_before(name, before, upto, where))

    def _selected(self, found: FoundRows) -> Selected:
        rows = self.stage.take(found.rows)
        return Selected(rows, len(rows.inputFiles()) if found.files is None else found.files)

    def empty(self, name: str) -> DataFrame:
        """Returns no rows: Spark's optimizer drops all that joins with them."""
        return frame_of(self.spark, no_rows(name))

    def frame(self, rows: Iterable[Sequence[object]], columns: str) -> DataFrame:
        """Returns a small frame of given values (`columns` as DDL), made without a Python worker."""
        struct = cast(StructType, StructType.fromDDL(columns))
        named = [dict(zip(struct.names, row, strict=True)) for row in rows]
        return frame_of(self.spark, pa.Table.from_pylist(named, schema=arrow_schema(struct)))

    # ---- tables of few rows, without a Spark job ----

    def rows(self, name: str, version: int | None = None, run_id: int | None = None) -> list[dict[str, Any]]:
        """Returns all rows of a small table, or one run's; times with their zone, UTC."""
        return list(self.arrow(name, version, run_id).to_pylist(maps_as_pydicts="strict"))

    def arrow(self, name: str, version: int | None = None, run_id: int | None = None) -> pa.Table:
        """Returns these rows as an Arrow table."""
        where = None if run_id is None else equal("run_id", run_id)
        found = self.found(name, version, where).rows
        return found if isinstance(found, pa.Table) else self.stage.take(found).toArrow()

    def refuse_lost(self, name: str, run_id: int) -> None:
        """Raises LostRows if the rows of a run were removed."""
        if not self.holds(name, run_id):
            raise LostRows(self.path(name), run_id)

    # ---- what a commit gets ----

    def in_form(self, name: str, rows: DataFrame, spec: TableSpec | None = None) -> DataFrame:
        """Returns the table's columns, with those that are made of others."""
        spec = spec or self.spec(name)
        lacking = {c.name: c.made for c in spec.columns if c.made and c.name not in rows.columns}
        made = {name: F.try_element_at(of, F.lit(entry)) for name, (of, entry) in lacking.items()}
        return (rows.withColumns(made) if made else rows).select(*spec.names)

    def given(self, name: str, rows: Rows | Sequence[Mapping[str, object]]) -> Rows:
        """Returns rows as a store writes them, in the table's form."""
        if isinstance(rows, pa.Table):
            return rows
        if isinstance(rows, DataFrame):
            return self.rows_of(name, rows)
        return pa.Table.from_pylist([dict(row) for row in rows], schema=arrow_schema(self.schema(name)))

    def rows_of(self, name: str, frame: DataFrame) -> Rows:
        """Returns a frame's rows in the table's form, of the stage's kind."""
        return self.stage.rows(self.in_form(name, frame), self.schema(name))


_FORGETS = "delta.setTransactionRetentionDuration"


def refuse_forgetful(path: str, properties: Mapping[str, str]) -> None:
    """Raises HalfopError if a table's markers last for some time only."""
    if _FORGETS in properties:
        raise HalfopError(
            f"{path} has {_FORGETS} set: it would forget the runs that it holds, and get their rows twice. Repair: "
            f"ALTER TABLE {delta_table(path)} UNSET TBLPROPERTIES ('{_FORGETS}')"
        )


def is_topic(name: str) -> bool:
    """Returns whether the table is a topic's own."""
    return name.startswith("topics/")


def spec_of(name: str) -> TableSpec:
    return table(OF_A_TOPIC if is_topic(name) else name)


def no_rows(name: str) -> pa.Table:
    """Returns no rows of a table, with its columns."""
    return arrow_schema(spec_of(name).struct).empty_table()
