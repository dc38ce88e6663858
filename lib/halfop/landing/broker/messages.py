"""Messages of one kind that have been pulled from a broker, in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import in_one
from halfop.columns.lives import Lives
from halfop.landing.broker.refused import leaving_out
from halfop.landing.fields import items
from halfop.landing.lost import Range
from halfop.landing.op_outcomes import Reach, StretchOutcomes, looked_up
from halfop.landing.staged import Marks, Staging, searched_columns
from halfop.landing.table_rows import TABLES, UNSETTLED, RowForm, form_of, in_form, write_items
from halfop.rocketmq.batches import BATCH, FINAL, HALF, HEADS, OP
from halfop.rocketmq.buffers import Longs
from halfop.rocketmq.names import ROCKSDB_QUEUES
from halfop.rocketmq.record import Records, chain
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.pull import Chunk, Hole, QueueRange, checked, pull
from halfop.rocketmq.wire.remoting import Credentials, RemotingSettings
from halfop.warehouse.disk import DataFile, Disk
from halfop.warehouse.splits import ParquetPart, PartWriter, Split

SOURCE = "BROKER"
# Offsets: so many are pulled by this process, and at most so many by a task.
_FEW, _OF_A_TASK = 20_000, 200_000
_TASKS_A_CORE = 2


@dataclass(frozen=True)
class Source:
    """A broker, pulled from for the landing of the instant `at`."""

    lives: Lives
    address: str
    settings: RemotingSettings
    at: int


@dataclass(frozen=True)
class Pulls:
    """Pulls from one broker for one landing: here if that is little, else by workers.

    `sees`: whether no final message that these queues ever had can be missing.
    """

    source: Source
    staging: Staging
    sees: Callable[[set[RealQueue]], bool]
    _done: dict[str, Messages] = field(default_factory=dict)

    @property
    def at(self) -> int:
        return self.source.at

    def pulled(self, kind: str, queues: Sequence[QueueRange]) -> Messages:
        """Pulls these ranges, and returns them with those of the kind that were pulled before.

        Ops come after the half and final messages that decide their outcomes.
        """
        source, folder, bounds = self.source, self.staging.path, searched_columns()[kind]
        form = form_of(TABLES[kind], source.lives, SOURCE, source.at)
        settings = replace(source.settings, credentials=None)
        whole = PullShare(kind, source.address, (), settings, form, folder, bounds, self._ends(kind))
        offsets = sum(asked.end - asked.start for asked in queues)
        shares = [whole._replace(queues=part) for part in _parts(queues, self._enough(offsets))]
        done = self.staging.work(shares, pull_share, offsets <= _FEW)
        before = self._done[kind].parts if kind in self._done else ()
        self._done[kind] = Messages(self.staging, source, kind, [*before, *done])
        return self._done[kind]

    def _enough(self, offsets: int) -> int:
        return min(_OF_A_TASK, max(_FEW, -(-offsets // (_TASKS_A_CORE * self.staging.cores))))

    def _ends(self, kind: str) -> Ends | None:
        """The offsets that ops end; nothing else needs them."""
        if kind != OP:
            return None
        heads = {place: self._done[of].files(place) for of, place in HEADS_OF.items()}
        return Ends(heads, self.sees({queue for part in self._done[HALF].parts for queue in part.real_queues}))


@dataclass(frozen=True)
class Messages:
    """Messages of one kind, in files."""

    staging: Staging
    source: Source
    kind: str
    parts: Sequence[PulledFiles]

    def number(self) -> int:
        """Returns how many there are."""
        return sum(part.messages for part in self.parts)

    def holes(self) -> Sequence[Range]:
        """Offsets that the broker lost while it was being pulled, or cannot read itself; they have no time yet."""
        found = [hole for part in self.parts for hole in part.holes]
        return [Range(hole.first, hole.next, asked.topic, asked.queue) for asked, hole in found]

    def real_queues(self) -> dict[tuple[str, int], int]:
        """The queues that their final messages may be in, each with the first half message's store time in ms."""
        first: dict[tuple[str, int], int] = {}
        for (topic, number), at in (found for part in self.parts for found in part.real_queues.items()):
            if topic is not None and number is not None:
                first[topic, number] = min(at, first.get((topic, number), at))
        return first

    def append_once(self, app: str, before: int, reach: Reach) -> None:
        """Appends them to their table, once for the app and the instant."""
        name, unsettled = TABLES[self.kind], self.files(UNSETTLED)
        rows = None
        if unsettled:
            rows = looked_up(self.staging.warehouse, self.staging.rows(name, unsettled), reach)
            rows = _stamped(rows, self.source.at)
        self.staging.append_once(name, self.files(self.kind), rows, app, Marks(before, self.source.at))

    def files(self, kind: str) -> list[DataFile]:
        return [file for part in self.parts for file in part.files.get(kind, ())]


def _parts(queues: Sequence[QueueRange], enough: int) -> Iterator[list[QueueRange]]:
    """The ranges, cut and put together to parts of about so many offsets."""
    part: list[QueueRange] = []
    room = enough
    for asked in queues:
        at = asked.start
        while at < asked.end:
            end = min(asked.end, at + room)
            part.append(asked._replace(start=at, end=end))
            room, at = room - (end - at), end
            if not room:
                yield part
                part, room = [], enough
    if part:
        yield part


def _stamped(rows: DataFrame, at: int) -> DataFrame:
    return rows.withColumn("landed_at", F.timestamp_micros(F.lit(at)))


HEADS_OF = {HALF: "half-heads", FINAL: "final-heads"}  # what ops are compared with
_HEAD = HEADS[HALF](chain(b"").records).schema
RealQueue = tuple[str | None, int | None]


class Ends(NamedTuple):
    """The evidence for the outcomes of ops: heads of this landing's half and final messages.

    `all_seen`: no final message of theirs can be missing.
    """

    heads: Mapping[str, Sequence[DataFile]]
    all_seen: bool


class PullShare(NamedTuple):
    """The ranges that one task pulls. Credentials are never in it: each worker takes them from its environment."""

    kind: str
    address: str
    queues: Sequence[QueueRange]
    settings: RemotingSettings
    form: RowForm
    folder: str
    searched: Sequence[str]
    ends: Ends | None


@dataclass
class PulledFiles:
    """The result of a task: files by kind, the number of messages, holes, and what real queues half messages name."""

    files: Mapping[str, Sequence[DataFile]] = field(default_factory=dict)
    messages: int = 0
    holes: list[tuple[QueueRange, Hole]] = field(default_factory=list)
    real_queues: dict[RealQueue, int] = field(default_factory=dict)


def pull_share(share: PullShare, disk: Disk) -> PulledFiles:
    settings = replace(share.settings, credentials=Credentials.from_environment())
    pulling = _Pulling(share, disk)
    with closing(Broker(share.address, settings)) as broker, closing(pulling.out):
        for asked in share.queues:
            with leaving_out(share.kind):
                for found in pull(broker, asked):
                    pulling.take(asked, found)
    return pulling.done()


class _Pulling:
    def __init__(self, share: PullShare, disk: Disk) -> None:
        self._share, self._disk, self._pulled = share, disk, PulledFiles()
        kinds = {share.kind: share.searched, HEADS_OF.get(share.kind, UNSETTLED): ()}
        self.out = PartWriter(disk, {kind: f"{share.folder}/{kind}" for kind in kinds}, kinds)

    def take(self, asked: QueueRange, found: Chunk | Hole) -> None:
        if isinstance(found, Hole):
            self._pulled.holes.append((asked, found))
            return
        records = checked(self._share.address, asked, found, self._share.kind)
        self._pulled.messages += len(records)
        if len(records):
            self._write(records)

    def _write(self, records: Records) -> None:
        kind, form = self._share.kind, self._share.form
        batch = BATCH[kind](records)
        if kind == OP:
            self._write_items(batch)
            return
        self.out.write(kind, in_form(batch, form))
        if kind in HEADS_OF:
            self.out.write(HEADS_OF[kind], HEADS[kind](records))
        if kind == HALF:
            for queue, at in _real_queues(batch):
                self._pulled.real_queues[queue] = min(at, self._pulled.real_queues.get(queue, at))

    def _write_items(self, ops: pa.RecordBatch) -> None:
        for rows in self._with_outcomes(ops):
            write_items(self.out, rows, self._share.form)

    def _with_outcomes(self, ops: pa.RecordBatch) -> list[pa.RecordBatch]:
        ends = self._share.ends or Ends({}, False)
        named = items(ops)["half_offset"].drop_null().unique().to_numpy()
        by_place = ops["queue_id"][0].as_py() >= ROCKSDB_QUEUES
        halves = self._heads(ends, HALF, "physical_offset" if by_place else "queue_offset", np.sort(named))
        places = np.unique(halves["physical_offset"].to_numpy())
        finals = self._heads(ends, FINAL, "prepared_transaction_offset", places)
        found = StretchOutcomes(0, np.zeros(0, np.int64))
        found.see({HALF: halves.sort_by("physical_offset"), FINAL: finals, OP: ops}, gap=not ends.all_seen)
        return list(found.items())

    def _heads(self, ends: Ends, kind: str, column: str, wanted: Longs) -> pa.RecordBatch:
        """The heads of a kind that have one of these numbers, which ascend."""
        files = ends.heads.get(HEADS_OF[kind], ()) if len(wanted) else ()
        parts = [ParquetPart(self._disk, Split(file.path, 0, file.size), _HEAD) for file in files]
        near = (part.between(column, int(wanted[0]), int(wanted[-1])) for part in parts)
        found = [_among(batch, column, wanted) for part in near for batch in part.batches()]
        return in_one(pa.Table.from_batches(found, _HEAD))

    def done(self) -> PulledFiles:
        self._pulled.files = self.out.close()
        return self._pulled


def _among(rows: pa.RecordBatch, column: str, wanted: Longs) -> pa.RecordBatch:
    numbers = rows[column].to_numpy()
    at = np.minimum(np.searchsorted(wanted, numbers), len(wanted) - 1)
    return rows.filter(pa.array(wanted[at] == numbers))


def _real_queues(halves: pa.RecordBatch) -> Iterator[tuple[RealQueue, int]]:
    """The queues that these half messages' final messages may be in, each with the first one's store time in ms."""
    rows = pa.Table.from_batches([halves.select(["real_topic", "real_queue_id", "store_timestamp"])])
    rows = rows.set_column(2, "store_timestamp", rows["store_timestamp"].cast(pa.int64()))
    grouped = rows.group_by(["real_topic", "real_queue_id"], use_threads=False)
    for row in grouped.aggregate([("store_timestamp", "min")]).to_pylist():
        yield (row["real_topic"], row["real_queue_id"]), row["store_timestamp_min"] // 1000
