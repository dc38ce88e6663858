"""`spark.read.format("rocketmq")`: a broker's store, or queues of a live one, as whole Arrow batches."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from halfop.frame.errors import InputRefused, UsageError
from halfop.landing.outcomes.within_stretch import NEEDED, StretchOutcomes, split
from halfop.landing.survey import SURVEY, surveyed
from halfop.rocketmq.batches import BATCH, HALF, KINDS, OP, Build
from halfop.rocketmq.buffers import Longs
from halfop.rocketmq.record import chain
from halfop.rocketmq.store.layout import StoreLayout, layout
from halfop.rocketmq.store.stretch import Piece, Stretch, read
from halfop.rocketmq.wire.answers import decoded
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.pull import Hole, QueueRange, pull
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.rocketmq.wire.security import Credentials

_NOTHING = chain(b"").records
_BATCHES: dict[str, pa.RecordBatch] = {kind: batch(_NOTHING) for kind, batch in BATCH.items()}
# For land store alone: a stretch in one row, and ops as items with their outcomes.
SURVEYED, ENDED = "survey", "ended"
_SCHEMAS = {kind: batch.schema for kind, batch in _BATCHES.items()}
_SCHEMAS |= {SURVEYED: SURVEY, ENDED: split(_BATCHES[OP]).schema.append(pa.field("outcome", pa.string()))}
_HOLES = ("hole_from", "hole_to")
_OFFSETS_A_TASK = 200_000
T = TypeVar("T")


@dataclass
class Part(InputPartition):
    """What one task reads."""

    stretch: Stretch


class RocketMQ(DataSource):
    """Options: `path`, a store directory on a file system that all workers see; `kind`: half (the default), op, final
    or discard; `skipCorrupt`.
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        kind = self.options.get("kind", HALF)
        if kind not in _SCHEMAS:
            raise UsageError(f"kind {kind!r} of format rocketmq: expected one of {', '.join(KINDS)}")
        columns = _SCHEMAS[kind]
        if "queues" in self.options:
            for name in _HOLES:
                columns = columns.append(pa.field(name, pa.int64()))
        return from_arrow_schema(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return QueueReader(self.options) if "queues" in self.options else StoreReader(self.options)


class StoreReader(DataSourceReader):
    """Reads one kind of a store's records. A corrupt place is an error, unless it is the survey that finds it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._kind = options.get("kind", HALF)
        self._skip = options.get("skipcorrupt", options.get("skipCorrupt", "false")).lower() == "true"
        self._plan, self._path, self._far = options.get("plan"), options.get("path"), options.get("far")

    def partitions(self) -> list[InputPartition]:
        if self._plan is None and self._path is None:
            raise UsageError("format rocketmq needs option path: a broker's store directory")
        found = layout(str(self._path)) if self._plan is None else unpacked(self._plan, StoreLayout)
        return [Part(stretch) for stretch in found.stretches]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(
            partition, Part
        ):  # a store without a record has no stretch, and Spark makes a task of its own
            return
        if self._kind == SURVEYED:
            yield surveyed(partition.stretch, self._skip)
        elif self._kind == ENDED:
            yield from self._ended(partition.stretch)
        else:
            for piece in self._pieces(partition.stretch, {self._kind: BATCH[self._kind]}):
                yield from piece.batches.values()

    def _ended(self, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        ended = StretchOutcomes(stretch.start, None if self._far is None else unpacked(self._far, np.ndarray))
        ended.look_back(stretch)
        for piece in self._pieces(stretch, NEEDED):
            ended.see(piece.batches, bool(piece.faults))
        yield from ended.items()

    def _pieces(self, stretch: Stretch, build: Mapping[str, Build]) -> Iterator[Piece]:
        for piece in read(stretch, build, self._skip):
            if piece.faults and not self._skip:
                fault = piece.faults[0]
                raise InputRefused(fault.file, fault.offset, fault.text)
            yield piece


@dataclass(frozen=True)
class Pulls:
    """What to pull from a live broker. Credentials are not in it: each worker takes them from its environment."""

    address: str
    queues: tuple[QueueRange, ...]
    settings: RemotingSettings


@dataclass
class Pulled(InputPartition):
    """What one task pulls, through a connection of its own."""

    asked: QueueRange


class QueueReader(DataSourceReader):
    """Pulls one kind of messages from queues. Offsets that the broker lost are rows with `hole_from` and `hole_to`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._kind, self._pulls = options["kind"], unpacked(options["queues"], Pulls)

    def partitions(self) -> list[InputPartition]:
        return [Pulled(part) for asked in self._pulls.queues for part in _parts(asked)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Pulled):  # of nothing Spark makes a task, too
            return
        settings = replace(self._pulls.settings, credentials=Credentials.from_environment())
        broker = Broker(self._pulls.address, settings)
        try:
            for found in pull(broker, partition.asked):
                if isinstance(found, Hole):
                    yield _hole(self._kind, partition.asked, found)
                elif (batch := decoded(self._pulls.address, partition.asked, found, self._kind)) is not None:
                    yield _with_hole(batch, None, None)
        finally:
            broker.close()


def _parts(asked: QueueRange) -> Iterator[QueueRange]:
    for start in range(asked.start, asked.end, _OFFSETS_A_TASK):
        yield asked._replace(start=start, end=min(start + _OFFSETS_A_TASK, asked.end))


def _hole(kind: str, asked: QueueRange, hole: Hole) -> pa.RecordBatch:
    empty = _BATCHES[kind]
    known = {"queue_id": asked.queue, "topic": asked.topic}
    row = [pa.array([known.get(field.name)], field.type) for field in empty.schema]
    return _with_hole(pa.RecordBatch.from_arrays(row, schema=empty.schema), hole.first, hole.next)


def _with_hole(batch: pa.RecordBatch, first: int | None, end: int | None) -> pa.RecordBatch:
    for name, value in zip(_HOLES, (first, end), strict=True):
        batch = batch.append_column(name, pa.array([value] * len(batch), pa.int64()))
    return batch


def packed(found: StoreLayout | Pulls | Longs) -> str:
    """A plan as an option's text."""
    return base64.b64encode(pickle.dumps(found)).decode()


def unpacked(text: str, kind: type[T]) -> T:
    found = pickle.loads(base64.b64decode(text))  # noqa: S301 - our own, from `packed`
    if not isinstance(found, kind):
        raise UsageError(f"format rocketmq: expected a {kind.__name__}")
    return found


def register(spark: SparkSession) -> None:
    spark.dataSource.register(RocketMQ)
