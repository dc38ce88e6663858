"""Messages of one kind that have been pulled from a broker, in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.lives import Lives
from halfop.landing.broker.tasks import HEADS_OF, Ends, PulledFiles, PullShare, RealQueue, pull_share
from halfop.landing.lost import Range
from halfop.landing.op_outcomes import Reach, looked_up
from halfop.landing.staged import Staging, searched_columns
from halfop.landing.table_rows import TABLES, UNSETTLED, form_of
from halfop.rocketmq.batches import HALF, OP
from halfop.rocketmq.wire.pull import QueueRange
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.warehouse.disk import DataFile
from halfop.warehouse.workers import in_workers

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
        if offsets <= _FEW:
            done = [pull_share(share, self.staging.disk) for share in shares]
        else:
            done = in_workers(self.staging.warehouse, shares, pull_share)
        before = self._done[kind].parts if kind in self._done else ()
        self._done[kind] = Messages(self.staging, source, kind, [*before, *done])
        return self._done[kind]

    def _enough(self, offsets: int) -> int:
        cores = int(self.staging.warehouse.spark.sparkContext.defaultParallelism)
        return min(_OF_A_TASK, max(_FEW, -(-offsets // (_TASKS_A_CORE * cores))))

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

    def append_once(self, app: str, reach: Reach) -> None:
        """Appends them to their table, once for the app and the instant."""
        name, unsettled = TABLES[self.kind], self.files(UNSETTLED)
        rows = None
        if unsettled:
            rows = looked_up(self.staging.warehouse, self.staging.frame(name, unsettled), reach)
            rows = _stamped(rows, self.source.at)
        self.staging.append_once(name, self.files(self.kind), rows, app, self.source.at)

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
