"""Tables through Spark's public API alone: its reader, its writer and SQL, as Spark Connect gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame

from halfop.warehouse.connector import Connector
from halfop.warehouse.reading import FEW
from halfop.warehouse.rows import FoundRows, Rows, arrow, frame_of
from halfop.warehouse.schema import table
from halfop.warehouse.spark_log import SparkLog
from halfop.warehouse.tables import NO_TABLE, AlreadyWrittenError, Marker, Warehouse, no_rows, spec_of
from halfop.warehouse.where import Where, equal


@dataclass(frozen=True)
class SparkWarehouse(Warehouse):
    """A warehouse that only Spark can reach. Nothing but Delta's own commits keeps writers apart."""

    _made: set[str] = field(default_factory=set, repr=False)

    @cached_property
    def log(self) -> SparkLog:
        return SparkLog(self.spark, self.touched)

    @cached_property
    def connector(self) -> Connector:
        return Connector(self.spark, self.log)

    def version(self, name: str) -> int:
        return self.log.version(self.path(name))

    def keeps(self, name: str, version: int) -> bool:
        return self.log.keeps(self.path(name), version)

    def properties(self, name: str, version: int | None = None) -> Mapping[str, str]:
        """Those of the newest version: SQL shows no others."""
        return self.log.properties(self.path(name))

    def marker(self, name: str, app: str) -> int:
        return self.log.marker(self.path(name), app)

    def holds(self, name: str, run_id: int) -> bool:
        found = self.found(name, None, equal("run_id", run_id)).rows
        return len(found) > 0 if isinstance(found, pa.Table) else not found.isEmpty()

    def replaced(self, name: str, after: int, upto: int) -> bool:
        return self.log.takes_files_away(self.path(name), after, upto)

    # ---- reads ----

    def found(self, name: str, version: int | None = None, where: Where | None = None) -> FoundRows:
        if version == NO_TABLE or (version is None and self.version(name) == NO_TABLE):
            return FoundRows(no_rows(name), 0)
        spec = spec_of(name)
        rows = self.connector.read(self.path(name), spec, version)
        return self._of_kind(name, rows if where is None else rows.where(where.column(spec.struct)))

    def _of_kind(self, name: str, rows: DataFrame) -> FoundRows:
        """The rows are here if the whole table is small."""
        size, struct = self.log.size(self.path(name)), self.schema(name)
        if size.files > FEW.files or size.bytes > FEW.bytes:
            return FoundRows(rows, None)
        return FoundRows(arrow(rows.select(struct.names), struct), size.files)

    def added(self, name: str, before: int, upto: int) -> Rows:
        if before == upto:
            return no_rows(name)
        if before == NO_TABLE:
            return self.found(name, upto).rows
        return self._of_kind(name, self.connector.added(self.path(name), spec_of(name), before, upto)).rows

    def found_before(self, name: str, before: int, upto: int, where: Where) -> FoundRows:
        if not self.replaced(name, before, upto):
            return self.found(name, before, where)
        spec = spec_of(name)
        rows = self.connector.before(self.path(name), spec, before, upto)
        return self._of_kind(name, rows.where(where.column(spec.struct)))

    # ---- writes ----

    def make(self, *names: str) -> None:
        for name in names:
            if name not in self._made:
                self.log.complete(self.path(name), table(name))
                self._made.add(name)

    def commit(self, name: str, rows: Rows | Sequence[Mapping[str, object]], marker: Marker | None = None) -> None:
        if isinstance(rows, Sequence) and not rows and marker is None:
            return
        found, path, spec = self.given(name, rows), self.path(name), spec_of(name)
        frame = self.in_form(name, frame_of(self.spark, found)) if isinstance(found, pa.Table) else found
        self.log.complete(path, spec)
        self.connector.commit(path, spec, frame, marker)

    def commit_first(self, name: str, rows: pa.Table, marker: Marker) -> None:
        if not self.connector.commit_first(self.path(name), self.in_form(name, frame_of(self.spark, rows)), marker):
            raise AlreadyWrittenError(self.path(name))

    def replace_rows(self, name: str, version: int, rows: Sequence[Mapping[str, object]]) -> bool:
        """Leaves them as they are: Spark's writer cannot replace rows only if no other commit has come before."""
        return False
