"""The source by which workers of `land store` read a store: their task, and the reader of its stretches."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from halfop.frame.errors import InputRefused
from halfop.landing.columns.op_items import items
from halfop.landing.outcomes.within_stretch import NEEDED, StretchOutcomes
from halfop.rocketmq.batches import BATCH, OP, Build
from halfop.rocketmq.buffers import Longs
from halfop.rocketmq.record import chain
from halfop.rocketmq.store.layout import StoreLayout
from halfop.rocketmq.store.stretch import Piece, Stretch, read
from halfop.warehouse.in_memory import frame_of
from halfop.warehouse.session import few_rows_settings

# Bytes of a commit log.
_LITTLE = 8 * 1024 * 1024
# Ops as items with their outcomes.
ITEMS = "items"
SCHEMAS = {kind: batch(chain(b"").records).schema for kind, batch in BATCH.items()}
SCHEMAS[ITEMS] = items(BATCH[OP](chain(b"").records)).schema


@dataclass(frozen=True)
class StoreTask:
    """Stretches to read. `committed_later`: half messages whose final messages are in later stretches, as base64."""

    kind: str
    layout: StoreLayout
    skip_corrupt: bool
    committed_later: str | None = None


_JSON = TypeAdapter(StoreTask)


def longs_text(longs: Longs | None) -> str | None:
    return None if longs is None else base64.b64encode(longs.astype("<i8").tobytes()).decode()


def _longs(text: str | None) -> Longs | None:
    return None if text is None else np.frombuffer(base64.b64decode(text), "<i8")


def read_task(spark: SparkSession, task: StoreTask) -> DataFrame:
    """Returns what the task reads as a frame; little is read here and now, more by Spark's workers."""
    if sum(stretch.end - stretch.start for stretch in task.layout.stretches) <= _LITTLE:
        reader = StoreReader(task.kind, task.layout, task.skip_corrupt, _longs(task.committed_later))
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        return frame_of(spark, pa.Table.from_batches(batches, SCHEMAS[task.kind]))
    few_rows_settings(spark).leave()
    return spark.read.format(StoreSource.name()).option("task", _JSON.dump_json(task).decode()).load()


class StoreSource(DataSource):
    """Spark's data source of landings from a store. Option: `task`, a StoreTask as JSON."""

    @classmethod
    def name(cls) -> str:
        return "halfop_store"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMAS[self._task.kind])

    def reader(self, schema: StructType) -> DataSourceReader:
        task = self._task
        return StoreReader(task.kind, task.layout, task.skip_corrupt, _longs(task.committed_later))

    @property
    def _task(self) -> StoreTask:
        return _JSON.validate_json(self.options["task"])


@dataclass
class StretchPart(InputPartition):
    """The stretch that one worker reads."""

    stretch: Stretch


class StoreReader(DataSourceReader):
    """Reads one kind of a store's records. A corrupt place is an error, because a survey has found it before."""

    def __init__(
        self, kind: str, layout: StoreLayout, skip_corrupt: bool, committed_later: Longs | None = None
    ) -> None:
        self._kind, self._layout, self._skip, self._committed_later = kind, layout, skip_corrupt, committed_later

    def partitions(self) -> list[InputPartition]:
        return [StretchPart(stretch) for stretch in self._layout.stretches]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(
            partition, StretchPart
        ):  # a store without a record has no stretch, and Spark makes a task of its own
            return
        if self._kind == ITEMS:
            yield from self._items(partition.stretch)
        else:
            for piece in self._pieces(partition.stretch, {self._kind: BATCH[self._kind]}):
                yield from piece.batches.values()

    def _items(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        found = StretchOutcomes(stretch.start, self._committed_later)
        found.look_back(stretch)
        for piece in self._pieces(stretch, NEEDED):
            found.see(piece.batches, bool(piece.faults))
        yield from found.items()

    def _pieces(self, stretch: Stretch, build: Mapping[str, Build]) -> Iterator[Piece]:
        for piece in read(stretch, build, self._skip):
            if piece.faults and not self._skip:
                fault = piece.faults[0]
                raise InputRefused(fault.file, fault.offset, fault.text)
            yield piece
