"""`land store`: a broker's commit log, from where the last landing stopped."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack

from halfop.frame.errors import InputRefused
from halfop.frame.summary import Summary
from halfop.landing import lost, progress, rewind
from halfop.landing.identity import is_reused
from halfop.landing.progress import next_instant
from halfop.landing.staged import staging
from halfop.landing.store.again import parts_again
from halfop.landing.store.commits import commit, commit_range, may_lack_ops, queues
from halfop.landing.store.fetch import LandedLog, LocalStore, local_store
from halfop.landing.store.new_part import NewPart, new_part, parts_found_again
from halfop.landing.store.same_store import SOURCE, StoreLanding, StoreRequest, StoreThere
from halfop.landing.survey import Survey
from halfop.rocketmq.names import HALF_TOPICS
from halfop.rocketmq.store.layout import StoreLayout
from halfop.warehouse.disk import local_folder
from halfop.warehouse.lock import hold
from halfop.warehouse.spark_errors import SPARK_ERRORS
from halfop.warehouse.tables import Warehouse

_WITHOUT = "its commit log was checked without them"
_IN_ROCKSDB = (
    f"the store has its consume queues in RocksDB, which halfop does not read: {_WITHOUT}. While the broker runs, land "
    "broker goes by them"
)
_NO_QUEUES = (
    f"the store has no consume queues: {_WITHOUT}. To check with them, too, copy its folder consumequeue as well"
)


def land_store(warehouse: Warehouse, request: StoreRequest, log: logging.Logger) -> Summary:
    """Lands what is new in a store. If it is corrupt, lands what comes before that and raises InputRefused."""
    summary = Summary("land")
    settings = warehouse.for_few_rows()
    with ExitStack() as held:
        held.enter_context(summary.shown_in_failure())
        held.enter_context(hold(warehouse, "landing", request.wait))
        held.enter_context(settings)
        lives = rewind.lives(warehouse, request.broker_name)
        known_lost = lost.of_lives(warehouse, lives)
        whole = known_lost.of_log or request.skip_corrupt or request.accept_rewind or request.again
        old = None if whole else _landed(warehouse, lives.current)
        store = held.enter_context(local_store(warehouse, request.path, old))
        files = held.enter_context(staging(warehouse))
        warehouse.touched.read[local_folder(request.path) or request.path] = None
        landing = StoreLanding(warehouse, request, store.root, next_instant(warehouse), known_lost, files, lives)
        if request.accept_rewind:
            _accept(landing, summary, log)
        if request.again:
            _land_again(landing, summary, log)
            return summary
        part = _land(landing, store, summary)
        _summarize(landing, part, summary, log)
        if part.survey.faults and not request.skip_corrupt:
            fault = part.survey.faults[0]
            raise InputRefused(fault.file, fault.offset, fault.text, _hint(part.survey))
    return summary


def _landed(warehouse: Warehouse, broker: str) -> LandedLog | None:
    """The landed part of the store; None if nothing has landed."""
    offset = progress.log_offset(warehouse, broker)
    rows = progress.of_broker(warehouse, broker).items()
    units = {queue: row.next_offset - 1 for queue, row in rows if queue[0] in HALF_TOPICS and row.next_offset}
    return None if offset is None else LandedLog(offset, units)


def _accept(landing: StoreLanding, summary: Summary, log: logging.Logger) -> None:
    """Begins a new life if the store is not the one that has landed."""
    before, warehouse = landing.lives, landing.warehouse
    reused = is_reused(warehouse, before.current)
    there = StoreThere(landing.root)
    landing.lives = rewind.Rewind(warehouse, before, there, landing.landed_at, SOURCE).accepted(reused)
    landing.lost = lost.of_lives(warehouse, landing.lives)
    note = rewind.note(warehouse, before, landing.lives)
    log.warning(note)
    summary.notes.append(note)


def _new_part(landing: StoreLanding, store: LocalStore) -> NewPart:
    """The new part, of a whole store if there is anything wrong with a part of it."""
    try:
        part = new_part(landing)
        if store.whole or not part.survey.faults:
            return part
    except (InputRefused, *SPARK_ERRORS):
        if store.whole:
            raise
    store.complete()
    return new_part(landing)


def _land(landing: StoreLanding, store: LocalStore, summary: Summary) -> NewPart:
    with summary.phase("survey"):
        part = _new_part(landing, store)
        found = list(parts_found_again(landing, part.start))
    commit(landing, part, found, summary)
    return part


def _land_again(landing: StoreLanding, summary: Summary, log: logging.Logger) -> None:
    """Lands the ranges of --again; how far the log has landed stays as it is."""
    with summary.phase("survey"):
        parts = list(parts_again(landing))
    for gone in landing.lost.gone:
        log.warning(gone)
        summary.notes.append(gone)
    for of_life, part in parts:
        commit_range(of_life, part, summary)
    lost.record(landing.warehouse, landing.lost, landing.landed_at, summary)
    summary.rows_written = {table: n for table, n in landing.written.items() if n}
    summary.extra |= {"broker_name": landing.broker, "lost_ranges": len(landing.lost.all)}


def _hint(survey: Survey) -> str:
    rows = ", ".join(f"{n} {kind}" for kind, n in survey.rows.items())
    return (
        f"what comes before it has landed ({rows} messages). Repair it and call again, or give --skip-corrupt to go on "
        f"after physical offset {survey.faults[0].lost_until}"
    )


# ---- the summary ----


def _summarize(landing: StoreLanding, part: NewPart, summary: Summary, log: logging.Logger) -> None:
    survey = part.survey
    summary.rows_read = {"records": survey.records}
    summary.rows_written = {table: n for table, n in landing.written.items() if n}
    known = progress.known_until(landing.warehouse, queues(landing, survey))
    summary.extra |= {
        "broker_name": landing.broker,
        "log_from": part.start,
        "log_to": survey.end,
        "known_until": progress.summary_of(known),
        "lost_ranges": len(landing.lost.all),
    }
    notes = _notes(part.layout, survey.faults if landing.request.skip_corrupt else ())
    if landing.request.known_until is not None and may_lack_ops(landing, part):
        notes.append("--known-until does not count: ops of before that time may be in what has not landed")
    for note in notes:
        log.warning(note)
        summary.notes.append(note)


def _notes(found: StoreLayout, skipped: Sequence[object]) -> list[str]:
    notes = [f"skipped: {fault}" for fault in skipped]
    if not found.cross_checked:
        notes.append(_IN_ROCKSDB if found.in_rocksdb else _NO_QUEUES)
    if found.queue_ahead:
        notes.append(f"{found.queue_ahead} consume queue units are ahead of the log; they land with a later copy")
    if found.torn:
        notes.append(f"the log ends with {found.torn} bytes of a half-written record")
    return notes
