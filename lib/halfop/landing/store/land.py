"""`land store`: a broker's commit log, from where the landing before it stopped."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.frame.errors import InputRefused
from halfop.frame.summary import Summary
from halfop.landing import landed_files, lost, progress
from halfop.landing.files.check import Queue
from halfop.landing.outcomes.joined import read_between
from halfop.landing.outcomes.op_rows import Reach, item_rows, land_again
from halfop.landing.store.fetch import local_store
from halfop.landing.store.source import ENDED, SURVEYED, StoreTask, longs_text, read_task
from halfop.landing.store.survey import Survey, joined, refuse_too_many
from halfop.rocketmq.batches import DISCARD, FINAL, HALF, OP
from halfop.rocketmq.buffers import Longs
from halfop.rocketmq.names import HALF_TOPICS, OP_TOPICS
from halfop.rocketmq.store.commitlog import log_files
from halfop.rocketmq.store.consumequeue import Queues, present
from halfop.rocketmq.store.layout import Plan, plan
from halfop.warehouse.lock import hold
from halfop.warehouse.spark_errors import SPARK_ERRORS, as_ours
from halfop.warehouse.tables import Warehouse

# In the order of the commits: what refers to another row lands after it.
TABLES = {HALF: "half_messages", FINAL: "final_messages", DISCARD: "broker_discards", OP: "op_messages"}
SOURCE = "STORE"


@dataclass(frozen=True)
class Request:
    """What the command line asked for; `op_lag` is the setting."""

    path: str
    broker_name: str
    op_lag: timedelta
    known_until: datetime | None = None
    skip_corrupt: bool = False
    wait: timedelta = timedelta(0)


@dataclass(frozen=True)
class Part:
    """A stretch of the log to land, looked through. Each table's commit is marked under `app` with `mark`, so what a
    killed landing had committed does not land again: rows below the mark of a table are in it.
    """

    plan: Plan
    start: int
    survey: Survey
    app: str
    mark: int


@dataclass
class Landing:
    """One landing of a store."""

    warehouse: Warehouse
    request: Request
    root: str
    landed_at: int
    lost: lost.Ranges
    written: dict[str, int] = field(default_factory=dict)

    @property
    def broker(self) -> str:
        return self.request.broker_name


def land_store(warehouse: Warehouse, request: Request, log: logging.Logger) -> Summary:
    """Lands what is new in a store. Raises InputRefused where it is corrupt, with what came before landed."""
    summary = Summary("land")
    with hold(warehouse, "landing", request.wait), local_store(warehouse, request.path) as root:
        landing = Landing(
            warehouse, request, root, landed_files.next_instant(warehouse), lost.known(warehouse, request.broker_name)
        )
        try:
            part = _land_new(landing, summary)
        except SPARK_ERRORS as error:  # a worker's: the store changed while it was read
            ours = as_ours(error, request.path)
            if not isinstance(ours, InputRefused):
                raise
            raise ours from error
        _tell(landing, part, summary, log)
        if part.survey.faults and not request.skip_corrupt:
            fault = part.survey.faults[0]
            raise InputRefused(fault.file, fault.offset, fault.text, _hint(part.survey))
    return summary


def _land_new(landing: Landing, summary: Summary) -> Part:
    with summary.phase("survey"):
        part = _new_part(landing)
    _land_found(landing, part.start, summary)
    _land(landing, part, summary)
    return part


def _hint(survey: Survey) -> str:
    rows = ", ".join(f"{n} {kind}" for kind, n in survey.rows.items())
    return (
        f"what comes before it has landed ({rows} messages). Repair it and call again, or give --skip-corrupt to go on "
        f"behind physical offset {survey.faults[0].lost_until}"
    )


# ---- what is there ----


def _new_part(landing: Landing) -> Part:
    """Everything that is new is read and checked once before any of it is written."""
    warehouse, request = landing.warehouse, landing.request
    offset = progress.log_offset(warehouse, landing.broker)
    if landed_files.reused(warehouse, {Queue(landing.broker, 0)}) or not _is_same_store(landing, offset):
        raise _another_store(landing)
    queues = Queues(landing.root)
    landed_files.refuse_two_half_topics(
        request.path, [topic for topic in HALF_TOPICS if any(queue.last.offset >= 0 for queue in queues.of(topic))]
    )
    found = plan(landing.root, _begin(landing, offset))
    begin = found.stretches[0].start if found.stretches else found.end
    found = lost.without(found, landing.lost.of_log)
    named = max((each.dispatched for each in found.stretches), default=0)
    upto = _landed_upto(landing)
    if offset is not None and named > offset and _lacks_what_landed(upto, queues):
        raise _another_store(landing)
    survey = _survey(landing, found, begin, request.skip_corrupt)
    if offset is not None and not landing.lost.of_log:
        _refuse_missing(request.path, upto, survey)
    return Part(_upto(found, survey), begin, survey, f"halfop.land.store/{landing.broker}", survey.end)


def _another_store(landing: Landing) -> InputRefused:
    return InputRefused(
        landing.request.path,
        None,
        f"KEY_REUSED: not the store that has landed as broker {landing.broker}",
        "if the broker was rebuilt, or this is another one, give it a name of its own: --broker-name NAME",
    )


def _landed_upto(landing: Landing) -> dict[tuple[str, int], int]:
    """Where the half and op queues go on, as far as they have landed."""
    rows = progress.of_broker(landing.warehouse, landing.broker)
    return {
        queue: row.next_offset
        for queue, row in rows.items()
        if queue[0] in (*HALF_TOPICS, *OP_TOPICS) and row.next_offset is not None
    }


def _lacks_what_landed(upto: Mapping[tuple[str, int], int], queues: Queues) -> bool:
    """Whether a half queue ends before what has landed of it: no older copy, where queues name what comes behind."""
    ends = {(topic, queue.queue_id): queue.last.offset + 1 for topic in HALF_TOPICS for queue in queues.of(topic)}
    return any(queue in ends and ends[queue] < upto[queue] for queue in upto)


def _refuse_missing(path: str, upto: Mapping[tuple[str, int], int], survey: Survey) -> None:
    """The queues of a log of which nothing is lost go on where they have landed."""
    for kind, topics in ((HALF, HALF_TOPICS), (OP, OP_TOPICS)):
        for queue, span in survey.spans[kind].items():
            due = max((upto.get((topic, queue.queue_id), 0) for topic in topics), default=0)
            if due and span.lowest > due:
                problem = f"{kind} queue {queue.queue_id} goes on at offset {span.lowest}, it has landed up to {due}"
                hint = "the broker has lost what it had written, or this is another store: give it a name of its own"
                raise InputRefused(path, None, problem, f"{hint}, --broker-name NAME")


def _begin(landing: Landing, offset: int | None) -> int | None:
    """Where the landing before stopped; where the broker has deleted that part, behind the gap if the user says so."""
    if offset is None or not landing.request.skip_corrupt:
        return offset
    first = log_files(landing.root)[0].first
    if first > offset:
        landing.lost.add(lost.Range(offset, first), "deleted", "the broker has deleted it before it landed")
    return max(first, offset)


def _is_same_store(landing: Landing, offset: int | None) -> bool:
    """Where the newest half message that has landed is in the log, by the queue's own word."""
    if offset is None:
        return True
    queues = Queues(landing.root)
    rows = progress.of_broker(landing.warehouse, landing.broker)
    return all(
        _agrees(queues, row.queue_id, *last)
        for row in rows.values()
        if row.topic in HALF_TOPICS and (last := landed_files.last_half(landing.warehouse, row)) is not None
    )


def _agrees(queues: Queues, queue_id: int, queue_offset: int, places: Collection[int]) -> bool:
    """An older copy of the store may not have the unit yet, an aged one no longer."""
    found = [queue for topic in HALF_TOPICS if (queue := queues.get(topic, queue_id))]
    units = [queue.at(np.array([queue_offset], np.int64)) for queue in found if queue.last.offset >= queue_offset]
    return all(int(unit["physical"][0]) in places for unit in units if present(unit)[0])


def _survey(landing: Landing, found: Plan, begin: int, skip_corrupt: bool) -> Survey:
    rows = _load(landing, found, SURVEYED, skip_corrupt).collect()
    refuse_too_many(rows)
    return joined(rows, landing.broker, begin, skip_corrupt)


def _upto(found: Plan, survey: Survey) -> Plan:
    """The part of a plan that lies before the survey's end."""
    faults = [fault.physical for fault in survey.faults]
    before = [replace(s, end=min(s.end, survey.end), fault=None) for s in found.stretches if s.start < survey.end]
    told = [
        replace(s, sound=not any(s.start <= fault < s.end for fault in faults), back=None if faults else s.back)
        for s in before
    ]
    return replace(found, stretches=tuple(told))


def _load(landing: Landing, found: Plan, kind: str, skip_corrupt: bool, far: Longs | None = None) -> DataFrame:
    return read_task(landing.warehouse.spark, StoreTask(kind, found, skip_corrupt, longs_text(far)))


# ---- the commits, in their order ----


def _land(landing: Landing, part: Part, summary: Summary) -> None:
    spans = part.survey.spans
    known = dict.fromkeys(_queues(landing, part.survey), _known_until(landing, part.survey))
    brought = progress.Landed(spans[HALF], spans[OP], known)
    with summary.phase("progress"):
        # the log's row too: a landing that is killed before it moves leaves word of which store it was
        landing.warehouse.make(progress.TABLE, *(table for kind, table in TABLES.items() if part.survey.rows[kind]))
        begun = progress.log_row(landing.broker, part.start, part.start, landing.landed_at)
        progress.add_missing(landing.warehouse, [*progress.rows_before(brought, landing.landed_at), begun])
    for fault in part.survey.faults if landing.request.skip_corrupt else ():
        landing.lost.add(lost.Range(fault.physical, fault.lost_until), fault.code, str(fault))
    lost.record(landing.warehouse, landing.lost, landing.landed_at)
    first = _land_tables(landing, part, summary)
    with summary.phase("outcomes"):
        again = land_again(landing.warehouse, _reach(landing, first), landing.landed_at)
        landing.written["op_messages"] = landing.written.get("op_messages", 0) + again
    with summary.phase("progress"):
        log_row = progress.log_row(landing.broker, part.start, part.survey.end, landing.landed_at)
        progress.move(landing.warehouse, [*progress.rows_after(brought, landing.landed_at), log_row])


def _land_tables(landing: Landing, part: Part, summary: Summary) -> int:
    """Appends the part's rows; the physical offset from which on the log has been read."""
    before = progress.log_first(landing.warehouse, landing.broker)
    first = part.start if before is None else min(before, part.start)
    for kind, table in TABLES.items():
        with summary.phase(kind):
            _append(landing, part, kind, table, first)
    return first


def _reach(landing: Landing, first: int) -> Reach:
    return Reach(landing.broker, SOURCE, read_between(first, landing.lost.of_log), lambda halves: halves)


def _land_found(landing: Landing, before: int, summary: Summary) -> None:
    """Ranges `before` an offset that were lost and can be read now: each lands by itself, once."""
    stretches = {each.start: each for each in lost.repaired(landing.root, landing.lost, before)}
    if not stretches:
        return
    every = Plan(tuple(stretches.values()), 0, before, True)
    for row in _load(landing, every, SURVEYED, False).collect():
        found, survey = stretches[row.start], joined([row], landing.broker, row.start, False)
        if not survey.faults:
            app = f"halfop.land.store/{landing.broker}/{found.start}-{found.end}"
            plan_of = Plan((replace(found, sound=True),), found.start, found.end, True)
            _land_tables(landing, Part(plan_of, found.start, survey, app, found.end), summary)
            landing.lost.found(lost.Range(found.start, found.end), "it can be read now, and has landed")


def _append(landing: Landing, part: Part, kind: str, table: str, first: int) -> None:
    if not part.survey.rows[kind]:
        return
    landing.warehouse.make(table)
    marker = landing.warehouse.marker(table, part.app)
    if marker >= part.mark:
        return
    rows = _rows(landing, part, kind)
    place = "commit_log_offset" if kind == HALF else "physical_offset"
    rows = rows.where(F.col(place) >= marker) if marker > part.start else rows
    rows = rows.withColumn("broker_name", F.lit(landing.broker))
    if kind == OP:
        rows = item_rows(landing.warehouse, rows, _reach(landing, first), part.survey.settled)
    rows = rows.withColumn("landed_at", F.timestamp_micros(F.lit(landing.landed_at)))
    landing.warehouse.append_once(table, rows, part.app, part.mark)
    number = part.survey.items if kind == OP else part.survey.rows[kind]
    landing.written[table] = landing.written.get(table, 0) + number


def _rows(landing: Landing, part: Part, kind: str) -> DataFrame:
    skip_corrupt = landing.request.skip_corrupt
    if kind == OP:
        return _load(landing, part.plan, ENDED, skip_corrupt, part.survey.far)
    return _load(landing, part.plan, kind, skip_corrupt)


def _queues(landing: Landing, survey: Survey) -> set[Queue]:
    """The broker's queues: time passes for those that got nothing new, too."""
    before = {queue for queue in progress.op_queues(landing.warehouse) if queue.broker_name == landing.broker}
    return {*survey.spans[HALF], *survey.spans[OP]} | before


def _known_until(landing: Landing, survey: Survey) -> int | None:
    """Epoch microseconds: what the user says, else the newest record, less what a broker may hold back.

    No checksum covers a record's time: one that is still to come counts as now.
    """
    request = landing.request
    if request.known_until is not None:
        return progress.micros(request.known_until)
    if survey.newest is None:
        return None
    return min(survey.newest * 1000, landing.landed_at) - request.op_lag // timedelta(microseconds=1)


# ---- what it says ----


def _tell(landing: Landing, part: Part, summary: Summary, log: logging.Logger) -> None:
    survey = part.survey
    summary.rows_read = {"records": survey.records}
    summary.rows_written = {table: n for table, n in landing.written.items() if n}
    known = progress.known_until(landing.warehouse, _queues(landing, survey))
    summary.extra = {
        "broker_name": landing.broker,
        "log_from": part.start,
        "log_to": survey.end,
        "known_until": progress.summary_of(known),
        "lost_ranges": len(landing.lost.all),
    }
    for note in _notes(part.plan, survey.faults if landing.request.skip_corrupt else ()):
        log.warning(note)
        summary.notes.append(note)


def _notes(found: Plan, skipped: Sequence[object]) -> list[str]:
    notes = [f"skipped: {fault}" for fault in skipped]
    if not found.cross_checked:
        notes.append("the store has no consumequeue folder, so its commit log was checked by itself alone")
    if found.queue_ahead:
        notes.append(f"{found.queue_ahead} consume queue units are ahead of the log; they land with a later copy")
    if found.torn:
        notes.append(f"the log ends with {found.torn} bytes of a half-written record")
    return notes
