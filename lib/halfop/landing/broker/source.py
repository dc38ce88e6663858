"""The source by which workers of `land broker` pull queues of a running broker: their task, and its reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pydantic import TypeAdapter
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from halfop.rocketmq.batches import BATCH
from halfop.rocketmq.record import chain
from halfop.rocketmq.wire.answers import checked
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.pull import Hole, QueueRange, pull
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.rocketmq.wire.security import Credentials
from halfop.warehouse.in_memory import frame_of
from halfop.warehouse.session import few_rows_settings

_EMPTY: dict[str, pa.RecordBatch] = {kind: batch(chain(b"").records) for kind, batch in BATCH.items()}
_HOLES = ("hole_from", "hole_to")
_OFFSETS_A_PART = 200_000
# So much is pulled by this process: offsets, and bytes of messages.
_FEW_OFFSETS, _LITTLE = 20_000, 16 * 1024 * 1024


@dataclass(frozen=True)
class QueueTask:
    """Queues to pull. Credentials are never in it: each worker takes them from its environment."""

    kind: str
    address: str
    queues: tuple[QueueRange, ...]
    settings: RemotingSettings


_JSON = TypeAdapter(QueueTask)


def pull_task(spark: SparkSession, task: QueueTask) -> DataFrame:
    """Returns what the task pulls as a frame, little of it here and now.

    Offsets that the broker lost are rows with `hole_from` and `hole_to`.
    """
    task = replace(task, settings=replace(task.settings, credentials=None))
    if sum(asked.end - asked.start for asked in task.queues) <= _FEW_OFFSETS:
        few = _pulled(task)
        if few is not None:
            return frame_of(spark, few)
    few_rows_settings(spark).leave()
    return spark.read.format(QueueSource.name()).option("task", _JSON.dump_json(task).decode()).load()


def _pulled(task: QueueTask) -> pa.Table | None:
    """The messages of these queues, pulled by this process; None if they turn out to be large."""
    reader, batches, size = QueueReader(task), [], 0
    for part in reader.partitions():
        for batch in reader.read(part):
            batches.append(batch)
            size += batch.nbytes
            if size > _LITTLE:
                return None
    return pa.Table.from_batches(batches, _schema(task.kind))


def _schema(kind: str) -> pa.Schema:
    columns = _EMPTY[kind].schema
    for name in _HOLES:
        columns = columns.append(pa.field(name, pa.int64()))
    return columns


class QueueSource(DataSource):
    """Spark's data source of landings from a broker. Option: `task`, a QueueTask as JSON."""

    @classmethod
    def name(cls) -> str:
        return "halfop_queues"

    def schema(self) -> StructType:
        return from_arrow_schema(_schema(self._task.kind))

    def reader(self, schema: StructType) -> DataSourceReader:
        return QueueReader(self._task)

    @property
    def _task(self) -> QueueTask:
        return _JSON.validate_json(self.options["task"])


@dataclass
class QueuePart(InputPartition):
    """One worker's part, which it pulls through a connection of its own."""

    asked: QueueRange


class QueueReader(DataSourceReader):
    def __init__(self, task: QueueTask) -> None:
        self._task = task

    def partitions(self) -> list[InputPartition]:
        return [QueuePart(part) for asked in self._task.queues for part in _parts(asked)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, QueuePart):  # Spark makes a task of nothing, too
            return
        task, asked = self._task, partition.asked
        broker = Broker(task.address, replace(task.settings, credentials=Credentials.from_environment()))
        try:
            for found in pull(broker, asked):
                if isinstance(found, Hole):
                    yield _hole(task.kind, asked, found)
                elif len(records := checked(task.address, asked, found, task.kind)):
                    yield _with_hole(BATCH[task.kind](records), None, None)
        finally:
            broker.close()


def _parts(asked: QueueRange) -> Iterator[QueueRange]:
    for start in range(asked.start, asked.end, _OFFSETS_A_PART):
        yield asked._replace(start=start, end=min(start + _OFFSETS_A_PART, asked.end))


def _hole(kind: str, asked: QueueRange, hole: Hole) -> pa.RecordBatch:
    empty = _EMPTY[kind]
    known = {"queue_id": asked.queue, "topic": asked.topic}
    row = [pa.array([known.get(field.name)], field.type) for field in empty.schema]
    return _with_hole(pa.RecordBatch.from_arrays(row, schema=empty.schema), hole.first, hole.next)


def _with_hole(batch: pa.RecordBatch, first: int | None, end: int | None) -> pa.RecordBatch:
    for name, value in zip(_HOLES, (first, end), strict=True):
        batch = batch.append_column(name, pa.array([value] * len(batch), pa.int64()))
    return batch
