"""`land broker`: messages of running brokers, up to their queues' ends at the time of asking."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Lock

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.frame.errors import HalfopError, InputRefused, is_transient
from halfop.frame.summary import Summary, add_counts
from halfop.landing import lost, progress
from halfop.landing.broker.sampling import Progress, QueueSample, Sampling, choose_finals, unfinished
from halfop.landing.broker.seen import real_queues, with_seen
from halfop.landing.broker.source import QueueTask, pull_task
from halfop.landing.columns.halves import completed
from halfop.landing.identity import newest_half, reused_queues
from halfop.landing.instant import next_instant
from halfop.landing.outcomes.op_rows import Reach, land_again, op_rows
from halfop.landing.progress import ProgressRow
from halfop.landing.queues import Queue
from halfop.landing.tables import TABLES
from halfop.rocketmq.batches import FINAL, HALF, OP
from halfop.rocketmq.names import HALF_TOPICS, OP_TOPICS
from halfop.rocketmq.record import chain
from halfop.rocketmq.wire.client import Broker, BrokerAddress, NameServers
from halfop.rocketmq.wire.pull import Chunk, QueueRange, pull
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.warehouse.in_memory import is_in_memory
from halfop.warehouse.lock import hold
from halfop.warehouse.progress import TABLE as PROGRESS
from halfop.warehouse.spark_errors import OPERATIONAL_ERRORS, as_ours, log_failure
from halfop.warehouse.tables import Warehouse

SOURCE = "BROKER"
_THREADS = 8
RangesByKind = Mapping[str, Sequence[QueueRange]]


@dataclass(frozen=True)
class BrokerRequest:
    """The options of `land broker`: a cluster's name servers, or one broker's address and the name to give it."""

    settings: RemotingSettings
    op_lag: timedelta
    namesrv: str | None = None
    broker: str | None = None
    broker_name: str = "broker-a"
    wait: timedelta = timedelta(0)


def land_broker(warehouse: Warehouse, request: BrokerRequest, log: logging.Logger) -> Summary:
    """Lands what is new in all brokers, at the same time. A broker that fails stops no other; the summary names it."""
    summary = Summary("land")
    with hold(warehouse, "landing", request.wait), warehouse.for_few_rows():
        warehouse.make(PROGRESS, *TABLES.values())
        shared = Shared(warehouse, request, summary, next_instant(warehouse))
        landings = [BrokerLanding(shared, address) for address in _addresses(request)]
        with ThreadPoolExecutor(_THREADS) as pool:
            errors = list(pool.map(BrokerLanding.land, landings))
        summary.extra["known_until"] = progress.summary_of(
            progress.known_until(warehouse, progress.op_queues(warehouse))
        )
        summary.extra["lost_ranges"] = sum(landing.lost_ranges for landing in landings)
    _report_failed(summary, {each.name: e for each, e in zip(landings, errors, strict=True) if e}, log)
    return summary


def _report_failed(summary: Summary, failed: Mapping[str, HalfopError], log: logging.Logger) -> None:
    if failed:
        lines = {name: log_failure(log, f"broker {name}", error, str(error)) for name, error in failed.items()}
        status = max(error.exit_status for error in failed.values())
        summary.add_failed("failed_brokers", lines, all(map(is_transient, failed.values())), status)


def _addresses(request: BrokerRequest) -> list[BrokerAddress]:
    if request.namesrv is None:
        return [BrokerAddress(request.broker_name, "", str(request.broker), True)]
    servers = NameServers(request.namesrv, request.settings)
    try:
        return servers.brokers()
    finally:
        servers.close()


@dataclass(frozen=True)
class Shared:
    """The common part of all brokers' landings; `lock` guards what only one of them may write at a time."""

    warehouse: Warehouse
    request: BrokerRequest
    summary: Summary
    at: int
    lock: Lock = field(default_factory=Lock)


class BrokerLanding:
    """One broker's landing.

    The ranges to pull are recorded first: after a kill, the next landing pulls exactly these again and passes over
    tables that have its commit.
    """

    def __init__(self, shared: Shared, address: BrokerAddress) -> None:
        self._warehouse, self._request, self._summary = shared.warehouse, shared.request, shared.summary
        self._lock, self._at = shared.lock, shared.at
        self._address, self.name = address, address.name
        self._lost = lost.Ranges(self.name)

    @property
    def lost_ranges(self) -> int:
        return len(self._lost.all)

    def land(self) -> HalfopError | None:
        """Lands the broker; returns the error that stopped it, None if none did."""
        try:
            self._lost = lost.known(self._warehouse, self.name)
            broker = Broker(self._address.address, self._request.settings)
            with closing(broker):
                self._land(broker)
        except OPERATIONAL_ERRORS as error:  # also a worker's: the broker failed while it was being pulled
            return as_ours(error, self._address.address)
        return None

    def _land(self, broker: Broker) -> None:
        rows = progress.of_broker(self._warehouse, self.name)
        self._refuse_rebuilt(broker, rows)
        if not self._address.is_master:
            note = f"broker {self.name} has no master now: its slave may lag, so no time passes for its queues"
            self._summary.notes.append(note)
        open_landing = unfinished(rows)
        if open_landing is not None:
            with ExitStack() as kept:
                self._write(*open_landing, kept)
            rows = progress.of_broker(self._warehouse, self.name)
        found = Sampling(broker, rows, self._at, self._address.is_master).sample()
        with ExitStack() as kept:
            halves = self._pulled(HALF, found.ranges[HALF], kept)
            absent = choose_finals(found, rows, real_queues(halves) | self._earlier_queues(rows))
            self._record_holes(found)
            with self._lock:
                lost.record(self._warehouse, self._lost, self._at)
            self._record_ranges(found.ranges, absent)
            self._write(self._at, found.ranges, kept, halves)

    def _record_holes(self, found: QueueSample) -> None:
        """Records the sample's holes as lost; a real topic that was made again counts once it has come far enough."""
        for hole in found.holes:
            if hole.until is None:
                made_again = f"queue {hole.queue} of {hole.topic} was deleted and made again"
                text = f"{made_again}: it no longer shows what was committed"
                self._summary.notes.append(f"broker {self.name}: {text}; `land store` can show it")
                self._lost.add(hole, "made_again", text)
            else:
                self._lost.add(hole, "deleted", f"queue {hole.queue} of {hole.topic}: deleted before it landed")
        pulled = {(q.topic, q.queue) for q in found.ranges[FINAL]}
        for hole in [h for h in self._lost.of_queues if h.until is None and (h.topic, h.queue) in pulled]:
            self._lost.found(hole, "the queue has come as far as it had landed")
            self._lost.add(
                hole._replace(until=self._at),
                "made_again",
                f"queue {hole.queue} of {hole.topic} was deleted and made again",
            )

    def _refuse_rebuilt(self, broker: Broker, rows: Progress) -> None:
        """Raises InputRefused for a broker that was rebuilt under its old name: its newest half message is another."""
        reused = reused_queues(self._warehouse, {Queue(self.name, 0)})
        halves = [row for (topic, _), row in rows.items() if topic in HALF_TOPICS and row.next_offset]
        if reused or not all(self._is_same(broker, row) for row in halves):
            problem = f"KEY_REUSED: not the broker that has landed as {self.name}"
            raise InputRefused(self._address.address, None, problem, "it was rebuilt: give it a new brokerName")

    def _is_same(self, broker: Broker, row: ProgressRow) -> bool:
        found = newest_half(self._warehouse, row)
        if found is None or broker.max_offset(row.topic, row.queue_id) <= found[0]:
            return True  # the sample refuses a queue that ends too early
        newest, known = found
        asked = QueueRange(row.topic, row.queue_id, newest, newest + 1)
        there = [chain(each.data).records for each in pull(broker, asked) if isinstance(each, Chunk)]
        return all(int(records.longs("physical_offset")[0]) in known for records in there)

    # ---- the commits, in their order ----

    def _earlier_queues(self, rows: Progress) -> set[tuple[str, int]]:
        """Real queues of half messages that landed from the store, or by a landing that knew no queues yet."""
        if (progress.COMMIT_LOG, 0) not in rows:
            return set()
        mine = F.col("broker_name") == self.name
        return real_queues(self._warehouse.read(TABLES[HALF]).where(mine))

    def _record_ranges(self, ranges: RangesByKind, absent: Collection[tuple[str, int]]) -> None:
        """Records the ranges to pull. `absent` queues get a row without one: they are pulled once they exist."""
        rows = [
            ProgressRow(self.name, q.topic, q.queue, q.start, None, None, q.start if q.end else None, q.end, self._at)
            for kind in ranges
            for q in ranges[kind]
        ]
        rows += [ProgressRow(self.name, topic, queue, None, None, None, None) for topic, queue in sorted(absent)]
        with self._lock, self._summary.phase("progress"):
            progress.move(self._warehouse, rows)

    def _write(self, at: int, ranges: RangesByKind, kept: ExitStack, halves: DataFrame | None = None) -> None:
        """Pulls and writes the ranges; `at` is the instant of the landing that recorded them."""
        self._pulled_queues = {(q.topic, q.queue) for q in ranges[FINAL]}
        frames = {HALF: halves} if halves is not None else {}
        for kind, table in TABLES.items():
            if kind not in frames:
                frames[kind] = self._pulled(kind, ranges[kind], kept)
            self._note_holes(frames[kind], ranges[kind], at)
            if kind == OP:
                with self._lock:
                    lost.record(self._warehouse, self._lost, at)
            self._append(kind, table, frames[kind], at)
        self._count("op_messages", land_again(self._warehouse, self._reach, at))
        with self._lock, self._summary.phase("progress"):
            progress.move(self._warehouse, self._moved(ranges, at))

    def _moved(self, ranges: RangesByKind, at: int) -> list[ProgressRow]:
        # a slave may lag by any time
        known = at - self._request.op_lag // timedelta(microseconds=1) if self._address.is_master else None
        return [
            ProgressRow(self.name, q.topic, q.queue, q.end, known if q.topic in _ASKED else None, at, None)
            for kind in ranges
            for q in ranges[kind]
        ]

    def _append(self, kind: str, table: str, frame: DataFrame, at: int) -> None:
        app = f"halfop.land.broker/{self.name}"
        marker = self._warehouse.marker(table, app)
        if marker > at:
            raise HalfopError(f"{table} has a landing of {self.name} of a later instant: the clock was set back")
        rows = frame.where(F.col("hole_from").isNull()).drop("hole_from", "hole_to")
        if marker == at or not (number := rows.count()):
            return
        rows = op_rows(self._warehouse, rows, self._reach, marker < 0) if kind == OP else rows
        rows = completed(rows) if kind == HALF else rows
        rows = rows.withColumn("landed_at", F.timestamp_micros(F.lit(at)))
        start = time.perf_counter()
        self._warehouse.append_once(table, rows, app, at)
        self._count(table, number, kind, time.perf_counter() - start)

    def _count(self, table: str, rows: int, phase: str = "", seconds: float = 0.0) -> None:
        """Adds to the summary, which several brokers' landings share."""
        with self._lock:
            add_counts(self._summary.rows_written, {table: rows} if rows else {})
            if phase:
                self._summary.seconds[phase] = round(self._summary.seconds.get(phase, 0.0) + seconds, 3)

    def _pulled(self, kind: str, queues: Sequence[QueueRange], kept: ExitStack) -> DataFrame:
        """Messages of the queues, pulled once and kept on disk until the landing ends."""
        some = tuple(q for q in queues if q.start < q.end)
        task = QueueTask(kind, self._address.address, some, self._request.settings)
        pulled = pull_task(self._warehouse.spark, task).withColumn("broker_name", F.lit(self.name))
        if is_in_memory(pulled):
            return pulled
        frame = pulled.persist(StorageLevel.DISK_ONLY)
        kept.callback(frame.unpersist)
        return frame

    def _note_holes(self, frame: DataFrame, queues: Sequence[QueueRange], at: int) -> None:
        """Records offsets that the broker lost while it was being pulled, or cannot read itself."""
        name = F.col("topic") if "topic" in frame.columns else F.lit(queues[0].topic if queues else None)
        holes = frame.where(F.col("hole_from").isNotNull()).select(
            name.alias("topic"), "queue_id", "hole_from", "hole_to"
        )
        for row in holes.collect():
            hole = lost.Range(row["hole_from"], row["hole_to"], row["topic"], row["queue_id"], at)
            self._lost.add(hole, "hole", f"queue {hole.queue} of {hole.topic}: the broker no longer has it")

    # ---- what outcomes depend on ----

    @property
    def _reach(self) -> Reach:
        return Reach(self.name, SOURCE, F.lit(True), self._with_seen)

    def _with_seen(self, halves: DataFrame) -> DataFrame:
        return with_seen(self._warehouse, halves, self._pulled_queues, self._lost.of_queues, self._at)


_ASKED = (*HALF_TOPICS, *OP_TOPICS)
