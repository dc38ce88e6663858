"""The landing of one broker: what is sampled, pulled and written, in which order."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Lock

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.frame.errors import HalfopError, InputRefused, TransientError
from halfop.frame.summary import Summary, add_counts
from halfop.landing import lost, progress, rewind
from halfop.landing.again import by_life
from halfop.landing.broker.messages import SOURCE, Messages, Pulls, RealQueue, Source
from halfop.landing.broker.request import BrokerRequest, begin_of
from halfop.landing.broker.same_broker import (
    BrokerThere,
    check_rows,
    left_out,
    ranges_again,
    record_holes,
    refuse_rebuilt,
    refuse_renamed,
    still_there,
)
from halfop.landing.broker.sampling import Progress, Sampling, Wanted, all_pulled, real_queues, unfinished, with_seen
from halfop.landing.identity import is_reused, refuse_landed_before
from halfop.landing.op_outcomes import Reach, land_again
from halfop.landing.progress import ProgressRow
from halfop.landing.staged import Staging
from halfop.landing.table_rows import TABLES
from halfop.rocketmq.batches import FINAL, HALF, OP
from halfop.rocketmq.names import HALF_TOPICS, OP_TOPICS, ROCKSDB_TOPICS
from halfop.rocketmq.wire.client import Broker, Role
from halfop.rocketmq.wire.name_servers import BrokerAddress
from halfop.rocketmq.wire.pull import QueueRange
from halfop.warehouse.progress import COMMIT_LOG, GATEWAY
from halfop.warehouse.spark_errors import OPERATIONAL_ERRORS, as_ours
from halfop.warehouse.tables import Warehouse

RangesByKind = Mapping[str, Sequence[QueueRange]]


@dataclass(frozen=True)
class Shared:
    """The common part of all brokers' landings; `lock` guards what only one of them may write at a time."""

    warehouse: Warehouse
    request: BrokerRequest
    summary: Summary
    at: int
    staging: Staging
    lock: Lock = field(default_factory=Lock)


class BrokerLanding:
    """One broker's landing.

    The ranges to pull are recorded first: after a kill, the next landing pulls these again, but to no table twice.
    """

    def __init__(self, shared: Shared, address: BrokerAddress) -> None:
        self._shared, self._lock, self._at = shared, shared.lock, shared.at
        self._warehouse, self._request, self._summary = shared.warehouse, shared.request, shared.summary
        self._address, self.broker_name = address, address.name
        self.lives = rewind.lives(self._warehouse, address.name)
        self._lost, self._checks = lost.Ranges(self.name), list[ProgressRow]()

    @property
    def name(self) -> str:
        """The name of the broker's current life."""
        return self.lives.current

    @property
    def lost_ranges(self) -> int:
        return len(self._lost.all)

    def land(self) -> HalfopError | None:
        """Lands the broker; returns the error that stopped it, None if none did."""
        try:
            self._lost = lost.of_lives(self._warehouse, self.lives)
            broker = Broker(self._address.address, self._request.settings)
            with closing(broker):
                self._land(broker)
        except OPERATIONAL_ERRORS as error:  # also a worker's: the broker failed while it was being pulled
            return as_ours(error, self._address.address)
        return None

    def _land(self, broker: Broker) -> None:
        rows = self._begun(broker)
        topics = (f"rocketmq://{self._address.address}/{topic}" for topic in (HALF_TOPICS[0], OP_TOPICS[0]))
        self._warehouse.touched.read.update(dict.fromkeys(topics))
        if self._request.again:
            self._land_again(broker, rows)
            return
        wanted = Wanted(begin_of(self._request, broker, rows), self._request.topics)
        sampling = Sampling(broker, rows, self._clock, self._is_master, wanted)
        found = sampling.sample()
        # a slave may lag by any time
        known = self._clock.shown - self._request.op_lag // timedelta(microseconds=1) if self._is_master else None
        pulls = self._pulls(self._at)
        halves = self._pulled(pulls, HALF, found.ranges[HALF])
        absent = sampling.add_finals(found, {**halves.real_queues(), **self._earlier_queues(rows)})
        if more := sampling.add_halves(found):
            halves = self._pulled(pulls, HALF, more)
            absent |= sampling.add_begins(found, halves.real_queues())
        record_holes(found, self._lost, self._clock, self._summary)
        self._note_left_out(sampling.left_out)
        with self._lock:
            lost.record(self._warehouse, self._lost, self._at, self._summary)
        self._record_ranges(found.ranges, absent)
        if self._is_master and self._asked_by != GATEWAY:  # which has no check service of its own
            self._checks = check_rows(broker, self.name, self._clock.shown, found.ranges[HALF], rows)
        self._write(pulls, found.ranges, known, halves)

    def _begun(self, broker: Broker) -> Progress:
        """Returns how far the broker's queues have landed, after a landing that was killed has been completed.

        Raises InputRefused for a broker that must not land so.
        """
        refuse_landed_before(self._warehouse, self.lives.names)
        rows = progress.of_broker(self._warehouse, self.name)
        self._refuse(role := broker.role())
        self._forgets_after = role.forgets_after
        self._clock = broker.clock()
        if self._request.accept_rewind:
            self._accept(broker, rows)
            rows = progress.of_broker(self._warehouse, self.name)
        refuse_rebuilt(self._warehouse, self.lives, broker, rows)
        if not self._is_master:
            note = f"broker {self.name} has no master now: its slave may lag, so no time passes for its queues"
            self._summary.notes.append(note)
        if (open_landing := unfinished(rows)) is not None:
            at, ranges = open_landing
            if out := left_out(ranges, self._request.topics):  # first of all: what follows sees nothing of them
                progress.move(self._warehouse, self._moved({FINAL: out}, None, at), self._asked_by)
            if self._is_master:  # a slave may lag
                ranges = still_there(broker, ranges, self._lost, self._clock.latest())
            self._write(self._pulls(at), ranges, known_until=None)
            rows = progress.of_broker(self._warehouse, self.name)
        return rows

    def _refuse(self, role: Role) -> None:
        """Raises InputRefused for a name under which it is not to land, and for a slave that was named by --broker.

        A gateway looks for its questions by its own name. Name servers name a slave if there is no master.
        """
        if role.is_gateway and role.name != self.broker_name:
            problem = f"a gateway of the name {role.name}: under the name {self.broker_name} nobody would be asked"
            raise InputRefused(self._address.address, None, problem, "leave out --broker-name")
        if self._request.broker and self._request.broker_name is None and not role.is_gateway:
            refuse_renamed(self._warehouse, self._address.address, self.broker_name)
        self._is_master = self._address.is_master and not role.is_slave
        self._asked_by = GATEWAY if role.is_gateway else SOURCE
        if self._request.broker and not self._is_master:
            problem = f"a slave of {self.name}, no master: it may lag, and then ops would seem not to have come"
            hint = "give its master's address, or --namesrv: a slave then lands, but lets no time pass"
            raise InputRefused(self._address.address, None, problem, hint)

    def _accept(self, broker: Broker, rows: Progress) -> None:
        """Begins a new life if the broker is not the one that has landed."""
        before, warehouse = self.lives, self._warehouse
        if not self._is_master:
            problem, hint = "a slave: it may lag, and then its end looks like a rewind", "accept its master's"
            raise InputRefused(self._address.address, None, problem, hint)
        reused = is_reused(warehouse, before.current)
        with self._lock:
            found = rewind.Rewind(warehouse, before, BrokerThere(broker, rows), self._at, SOURCE)
            self.lives = found.accepted(reused)
            self._lost = lost.of_lives(warehouse, self.lives)
            self._summary.notes.append(rewind.note(warehouse, before, self.lives))

    # ---- the commits, in their order ----

    def _earlier_queues(self, rows: Progress) -> dict[tuple[str, int], int | None]:
        """Real queues of half messages that landed from the store, or by a landing that knew no queues yet."""
        if (COMMIT_LOG, 0) not in rows:
            return {}
        mine = F.col("broker_name").isin(self.lives.names)
        return dict.fromkeys(real_queues(self._warehouse.read(TABLES[HALF]).where(mine)))

    def _note_left_out(self, topics: Sequence[str]) -> None:
        if topics:
            text = f"real topics that --topics leaves out: {', '.join(topics)}; their ops land without an outcome"
            self._summary.notes.append(f"broker {self.name}: {text}, and end nothing before these topics are pulled")

    def _record_ranges(self, ranges: RangesByKind, absent: Collection[tuple[str, int]]) -> None:
        """Records the ranges to pull. `absent` queues get a row without one: they are pulled once they exist."""
        rows = [
            ProgressRow(self.name, q.topic, q.queue, q.start, None, None, q.start if q.end else None, q.end, self._at)
            for kind in ranges
            for q in ranges[kind]
        ]
        rows += progress.beginning(self.name, sorted(absent))
        with self._lock, self._summary.phase("progress"):
            progress.move(self._warehouse, rows, self._asked_by)

    def _write(
        self, pulls: Pulls, ranges: RangesByKind, known_until: int | None, halves: Messages | None = None
    ) -> None:
        """Pulls and writes the ranges; then their queues are known until that instant of the broker's clock."""
        self._pulled_queues = {(q.topic, q.queue) for q in ranges[FINAL]}
        self._write_messages(pulls, ranges, halves)
        with self._lock, self._summary.phase("progress"):
            progress.move(self._warehouse, self._moved(ranges, known_until, pulls.at), self._asked_by)

    def _land_again(self, broker: Broker, rows: Progress) -> None:
        """Lands the ranges of --again. How far queues have landed stays as it is; one that has not landed begins."""
        lives, self._pulled_queues = self.lives, all_pulled(rows)
        for name, wanted in by_life(self._request.again, lives).items():
            self.lives = lives.upto(name)
            ranges = ranges_again(broker, wanted, self._lost, self._at)
            self._summary.notes += [f"broker {name}: {gone}" for gone in self._lost.gone]
            begins = progress.beginning(name, ((q.topic, q.queue) for kind in (HALF, OP) for q in ranges[kind]))
            progress.add_missing(self._warehouse, begins, self._asked_by)
            self._write_messages(self._pulls(self._at), ranges, None)

    def _write_messages(self, pulls: Pulls, ranges: RangesByKind, halves: Messages | None) -> None:
        for kind, table in TABLES.items():
            found = halves if kind == HALF and halves else self._pulled(pulls, kind, ranges[kind])
            self._note_holes(found)
            if kind == OP:
                with self._lock:
                    lost.record(self._warehouse, self._lost, pulls.at, self._summary)
            self._append(kind, table, found, pulls.at)
        self._count("op_messages", land_again(self._warehouse, self._reach, pulls.at))

    def _pulled(self, pulls: Pulls, kind: str, queues: Sequence[QueueRange]) -> Messages:
        start = time.perf_counter()
        found = pulls.pulled(kind, queues)
        self._count(TABLES[kind], 0, "pull", time.perf_counter() - start)
        return found

    def _moved(self, ranges: RangesByKind, known_until: int | None, at: int) -> list[ProgressRow]:
        """The rows of the current life; time passes for half messages of earlier lives, too."""
        queues = [q for kind in ranges for q in ranges[kind]]
        rows = [
            ProgressRow(self.name, q.topic, q.queue, q.end, known_until if q.topic in _ASKED else None, at, None)
            for q in queues
        ]
        rows = [row._replace(forgets_after=self._forgets_after) if row.topic in ROCKSDB_TOPICS else row for row in rows]
        earlier = self.lives.names[:-1]
        asked = [(name, q) for name in earlier for q in queues if q.topic in _ASKED]
        rows += [ProgressRow(name, q.topic, q.queue, None, known_until, at, None) for name, q in asked]
        return rows + self._checks + [row._replace(broker_name=name) for name in earlier for row in self._checks]

    def _append(self, kind: str, table: str, found: Messages, at: int) -> None:
        app = f"halfop.land.broker/{self.name}"
        marker = self._warehouse.marker(table, app)
        if marker > at:
            raise TransientError(f"another landing has written to {table}: start again, it goes on from there")
        if marker == at or not (number := found.number()):
            return
        start = time.perf_counter()
        found.append_once(app, marker, self._reach)
        self._count(table, number, kind, time.perf_counter() - start)

    def _count(self, table: str, rows: int, phase: str = "", seconds: float = 0.0) -> None:
        """Adds to the summary, which several brokers' landings share."""
        with self._lock:
            add_counts(self._summary.rows_written, {table: rows} if rows else {})
            if phase:
                self._summary.seconds[phase] = round(self._summary.seconds.get(phase, 0.0) + seconds, 3)

    def _pulls(self, at: int) -> Pulls:
        """Returns what pulls for the landing of an instant."""
        source = Source(self.lives, self._address.address, self._request.settings, at)
        return Pulls(source, self._shared.staging, self._sees)

    def _note_holes(self, found: Messages) -> None:
        """Records offsets that the broker lost while it was being pulled, or cannot read itself."""
        known = {hole[:4] for hole in self._lost.of_queues}  # a landing that was killed may have found them
        for hole in (hole for hole in found.holes() if hole[:4] not in known):
            self._lost.add_hole(hole._replace(until=self._clock.latest()))

    # ---- what outcomes depend on ----

    @property
    def _reach(self) -> Reach:
        return Reach(self.lives, SOURCE, F.lit(True), self._with_seen)

    def _sees(self, queues: Collection[RealQueue]) -> bool:
        """Returns whether all of these real queues have been pulled, and none ever lost a message."""
        if self._request.again:  # most final messages do not land again, but are in the tables
            return False
        return self._pulled_queues - {(hole.topic, hole.queue) for hole in self._lost.unread_queues} >= set(queues)

    def _with_seen(self, halves: DataFrame) -> DataFrame:
        return with_seen(self._warehouse, halves, self._pulled_queues, self._lost.unread_queues, self._clock.latest())


_ASKED = (*HALF_TOPICS, *OP_TOPICS)
