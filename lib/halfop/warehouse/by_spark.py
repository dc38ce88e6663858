"""Tables through Spark's public API alone: its reader, its writer and SQL, as Spark Connect gives them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from halfop.warehouse.connector import Connector, whole
from halfop.warehouse.disk import Listed
from halfop.warehouse.growth import as_it_is
from halfop.warehouse.reading import FEW, parquet
from halfop.warehouse.rows import FoundRows, Rows, arrow, frame_of
from halfop.warehouse.schema import TableSpec, delta_table
from halfop.warehouse.spark_log import SparkLog
from halfop.warehouse.tables import NO_TABLE, Marker, Warehouse, is_topic, no_rows, spec_of
from halfop.warehouse.where import Where, equal

_KEPT, _KEPT_BYTES = 16, 1 << 20  # results of reads, and the most bytes of each: some are asked for again and again
_PIECE = 32 << 20  # bytes of rows that go to Spark at once


@dataclass(frozen=True)
class SparkWarehouse(Warehouse):
    """A warehouse that only Spark can reach. Nothing but Delta's own commits keeps writers apart."""

    _made: set[str] = field(default_factory=set, repr=False)
    _whole: dict[str, int] = field(default_factory=dict, repr=False)  # the first version that had all columns
    _kept: dict[tuple[str, Where | None], tuple[int, FoundRows]] = field(default_factory=dict, repr=False)
    _sent: set[str] = field(default_factory=set, repr=False)

    @cached_property
    def log(self) -> SparkLog:
        return SparkLog(self.spark, self.touched)

    @cached_property
    def connector(self) -> Connector:
        return Connector(self.spark, self.log)

    def uri(self, name: str) -> str:
        """As the server's own file system has it: a root may leave out what that adds."""
        path = self.path(name)
        if self.version(name) == NO_TABLE:
            return path
        return str(self.spark.sql(f"DESCRIBE DETAIL {delta_table(path)}").select("location").collect()[0][0])

    def has(self, file: str) -> bool:
        return self.log.has(self.path(file))

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
        version = self.version(name)
        return version != NO_TABLE and not self._at(name, version, equal("run_id", run_id), spec_of(name)).isEmpty()

    def first_removal(self, name: str, after: int, upto: int) -> int | None:
        return self.log.first_removal(self.path(name), after, upto)

    def listed(self, name: str, version: int | None = None) -> Sequence[Listed]:
        """Spark reads no column for it, only how many rows each file has."""
        if (version := self.version(name) if version is None else version) == NO_TABLE:
            return []
        rows, by = self.connector.read_as_it_is(self.path(name), version), spec_of(name).partitioned_by
        partition = [F.col(column).cast("string") for column in by]
        found = rows.select("_metadata.file_path", "_metadata.file_size", *partition).distinct().collect()
        return [Listed(path, size, dict(zip(by, values, strict=True))) for path, size, *values in found]

    def spec(self, name: str) -> TableSpec:
        if not is_topic(name) or self.version(name) == NO_TABLE:
            return spec_of(name)
        return as_it_is(spec_of(name), self.log.columns(self.path(name)))

    # ---- reads ----

    def found(self, name: str, version: int | None = None, where: Where | None = None) -> FoundRows:
        """The rows stay those of the newest version, too: a server would look for it again at each use of a frame."""
        version = self.version(name) if version is None else version
        if version == NO_TABLE:
            return FoundRows(no_rows(name), 0)
        kept = self._kept.get((name, where))
        if kept is not None and kept[0] == version:
            return kept[1]
        found = self._found(name, version, where)
        if isinstance(found.rows, pa.Table) and found.rows.nbytes <= _KEPT_BYTES:
            self._kept[name, where] = version, found
            for oldest in [*self._kept][:-_KEPT]:
                self._kept.pop(oldest, None)
        return found

    def _found(self, name: str, version: int, where: Where | None) -> FoundRows:
        spec = self.spec(name)
        rows = self._at(name, version, where, spec)
        if _is_wide(name):
            size = self.log.size(self.path(name), version)
            if size.files > FEW.files or size.bytes > FEW.bytes:
                return FoundRows(rows, None)
        return self._few(rows, spec.struct) or FoundRows(rows, None)

    def _at(self, name: str, version: int, where: Where | None, spec: TableSpec) -> DataFrame:
        """The rows of a version that meet the condition. To ask for its columns is a request: later ones lack none."""
        rows = self.connector.read_as_it_is(self.path(name), version)
        if version < self._whole.get(name, version + 1):
            found = whole(rows, spec)
            if found is rows:
                self._whole[name] = version
            rows = found
        return rows if where is None else rows.where(where.column(spec.struct))

    def _few(self, rows: DataFrame, struct: StructType) -> FoundRows | None:
        """The rows, here; None if they are not few. Nobody has counted their files."""
        few = arrow(rows.select(struct.names).limit(FEW.rows + 1), struct)
        return FoundRows(few, min(len(few), 1)) if len(few) <= FEW.rows else None

    def added(self, name: str, before: int, upto: int) -> Rows:
        if before == upto:
            return no_rows(name)
        if before == NO_TABLE:
            return self.found(name, upto).rows
        rows = self.connector.added(self.path(name), spec_of(name), before, upto)
        few = self._few(rows, spec_of(name).struct)
        return rows if few is None else few.rows

    def found_before(self, name: str, before: int, upto: int, where: Where) -> FoundRows:
        if not self.replaced(name, before, upto):
            return self.found(name, before, where)
        spec = spec_of(name)
        rows = self.connector.before(self.path(name), spec, before, upto)
        rows = rows.where(where.column(spec.struct))
        return self._few(rows, spec.struct) or FoundRows(rows, None)

    # ---- writes ----

    def make(self, *names: str) -> None:
        missing = [name for name in names if name not in self._made]
        with ThreadPoolExecutor(max(len(missing), 1)) as pool:  # they wait for the server more than they work
            list(pool.map(lambda name: self.log.complete(self.path(name), spec_of(name)), missing))
        self._made.update(missing)

    def commit(
        self,
        name: str,
        rows: Rows | Sequence[Mapping[str, object]],
        marker: Marker | None = None,
        spec: TableSpec | None = None,
    ) -> None:
        if isinstance(rows, Sequence) and not rows and marker is None:
            return
        frame = rows if isinstance(rows, DataFrame) else frame_of(self.spark, self.given(name, rows))
        if spec is None:
            self.make(name)
        else:
            self.log.complete(self.path(name), spec)
        form = spec or spec_of(name)
        self.connector.commit(self.path(name), form, self.in_form(name, frame, form), marker)

    def compact(self, name: str, version: int) -> None:
        """Joins those of the newest version: SQL knows no other, and rows carry the version that they came with."""
        self.spark.sql(f"OPTIMIZE {delta_table(self.path(name))}")

    def join_files(self, name: str, version: int, most: int) -> None:
        """Joins the files of a table that has more of them."""
        if version != NO_TABLE and self.log.size(self.path(name), version).files > most:
            self.compact(name, version)

    # ---- rows of a client that are not few ----

    def sent(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], folder: str) -> Rows:
        """Returns rows of any number as Spark reads them: they are here if all fit into one piece.

        Else Spark writes each piece to files in that folder below the root, which `forget` empties.
        """
        pieces = _pieces(schema, batches)
        first = next(pieces, schema.empty_table())
        second = next(pieces, None)
        if second is None:
            return first
        self._sent.add(folder)
        paths = []
        for piece in chain([first, second], pieces):
            paths.append(f"{self.path(folder)}/{uuid.uuid4().hex}")
            frame_of(self.spark, piece).write.parquet(paths[-1])
        return parquet(self.spark, from_arrow_schema(schema), paths)

    def forget(self, folder: str) -> None:
        """Empties a folder of rows that were sent; Spark removes none."""
        if folder in self._sent:
            self.spark.range(0).selectExpr("'' AS value").write.mode("overwrite").text(self.path(folder))
            self._sent.remove(folder)


def _is_wide(name: str) -> bool:
    """Returns whether the rows of a table may be large, so that nobody asks for them before its size is known."""
    return any(column.type == "BINARY" for column in spec_of(name).columns)


def _pieces(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in tables of at most about so many bytes."""
    some, size = list[pa.RecordBatch](), 0
    for batch in (part for each in batches for part in _cut(each)):
        if some and size + batch.nbytes > _PIECE:
            yield pa.Table.from_batches(some, schema)
            some, size = [], 0
        some, size = [*some, batch], size + batch.nbytes
    if some:
        yield pa.Table.from_batches(some, schema)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts of at most about so many bytes."""
    rows = max(1, len(batch) * _PIECE // max(batch.nbytes, 1))
    return (batch.slice(first, rows) for first in range(0, len(batch), rows))
