"""The commits of a store's landing, in an order in which a killed landing can be started again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.frame.summary import Summary
from halfop.landing import lost, progress
from halfop.landing.op_outcomes import Reach, land_again, looked_up, read_between
from halfop.landing.progress import OffsetSpan, Queue, check_offsets
from halfop.landing.staged import Marks
from halfop.landing.store.new_part import NewPart
from halfop.landing.store.same_store import SOURCE, StoreLanding
from halfop.landing.survey import Survey
from halfop.landing.table_rows import TABLES, UNSETTLED
from halfop.rocketmq.batches import HALF, OP
from halfop.rocketmq.names import HALF_TOPIC
from halfop.warehouse.disk import DataFile
from halfop.warehouse.progress import TABLE as PROGRESS


def commit(landing: StoreLanding, part: NewPart, found: Sequence[NewPart], summary: Summary) -> None:
    """Writes the part, and lost ranges that were found: the queues' rows, messages, how far the queues have landed."""
    surveys = [part.survey, *(each.survey for each in found)]
    known = dict.fromkeys(queues(landing, *surveys), _known_until(landing, part, surveys))
    made = progress.QueueProgress(_spans(surveys, HALF), _spans(surveys, OP), known)
    with summary.phase("progress"):
        # the log's row too: a landing that is killed before it moves has recorded which store it was
        landing.warehouse.make(PROGRESS, *(table for kind, table in TABLES.items() if part.survey.rows[kind]))
        begun = progress.log_row(landing.broker, part.start, part.start, landing.landed_at)
        progress.add_missing(landing.warehouse, [*progress.rows_before(made, landing.landed_at), begun], landing.source)
    for each in found:
        commit_messages(landing, each, summary)
        landing.lost.found(lost.Range(each.start, each.mark), "it can be read now, and has landed")
    _record_lost(landing, part, summary)
    commit_again(landing, part, summary)
    with summary.phase("progress"):
        log_row = progress.log_row(landing.broker, part.start, part.survey.end, landing.landed_at)
        rows = [*progress.rows_after(made, landing.landed_at), log_row, *_check_rows(landing, part.survey)]
        progress.move(landing.warehouse, rows, landing.source)


def commit_range(landing: StoreLanding, part: NewPart, summary: Summary) -> None:
    """Writes the messages of a range of --again.

    A queue that has not landed yet begins with them: without progress it would be known until now.
    """
    begun = progress.QueueProgress(_spans([part.survey], HALF), _spans([part.survey], OP), {})
    progress.add_missing(landing.warehouse, progress.rows_before(begun, landing.landed_at), landing.source)
    commit_again(landing, part, summary)


def commit_again(landing: StoreLanding, part: NewPart, summary: Summary) -> None:
    """Writes the part's messages, and again the items whose outcome is known by now."""
    first = commit_messages(landing, part, summary)
    with summary.phase("outcomes"):
        again = land_again(landing.warehouse, _reach(landing, first), landing.landed_at)
        landing.written["op_messages"] = landing.written.get("op_messages", 0) + again


def _spans(surveys: Sequence[Survey], kind: str) -> dict[Queue, OffsetSpan]:
    spans: dict[Queue, OffsetSpan] = {}
    for queue, span in (each for survey in surveys for each in survey.spans[kind].items()):
        spans[queue] = span.joined(spans.get(queue, span))
    return spans


def _check_rows(landing: StoreLanding, survey: Survey) -> list[progress.ProgressRow]:
    """How far the broker's own check has come; nothing if the log is as it was, because then no time has passed."""
    if survey.newest is None:
        return []
    before, at = progress.of_broker(landing.warehouse, landing.broker), survey.newest * 1000
    return [
        progress.check_row(Queue(name, queue), HALF_TOPIC, offset, at, before.get((HALF_TOPIC, queue)))
        for queue, offset in check_offsets(landing.root).items()
        for name in landing.lives.names
    ]


def _record_lost(landing: StoreLanding, part: NewPart, summary: Summary) -> None:
    for fault in part.survey.faults if landing.request.skip_corrupt else ():
        landing.lost.add(lost.Range(fault.physical, fault.lost_until), fault.code, str(fault))
    lost.record(landing.warehouse, landing.lost, landing.landed_at, summary)


def commit_messages(landing: StoreLanding, part: NewPart, summary: Summary) -> int:
    """Appends the part's rows; returns the physical offset from which on the log has been read."""
    known = [progress.log_first(landing.warehouse, name) for name in landing.lives.names]
    first = min([part.start, *(each for each in known if each is not None)])
    for kind, table in TABLES.items():
        with summary.phase(kind):
            _append(landing, part, kind, table, first)
    return first


def _append(landing: StoreLanding, part: NewPart, kind: str, table: str, first: int) -> None:
    if not part.survey.rows[kind]:
        return
    landing.warehouse.make(table)
    marker = landing.warehouse.marker(table, part.app)
    if marker >= part.mark:
        return
    files, rows = _staged(landing, part, kind, marker, first)
    landing.staging.append_once(table, files, rows, part.app, Marks(marker, part.mark))
    number = part.survey.items if kind == OP else part.survey.rows[kind]
    landing.written[table] = landing.written.get(table, 0) + number


def _staged(
    landing: StoreLanding, part: NewPart, kind: str, marker: int, first: int
) -> tuple[Sequence[DataFile], DataFrame | None]:
    """The part's files of a kind, and rows that are in the table as no file has them; None if there are none."""
    files, within = part.files[kind], _within(part, kind, marker)
    unsettled = part.files[UNSETTLED] if kind == OP else ()
    if within is None and (kind != OP or part.sure):
        return files, _settled_later(landing, landing.staging.rows(TABLES[OP], unsettled), first) if unsettled else None
    rows = landing.staging.rows(TABLES[kind], [*files, *unsettled]).where(F.lit(True) if within is None else within)
    if kind != OP:
        return [], rows
    open_ones = F.col("outcome").isNull()
    if not part.sure:
        open_ones |= (F.col("outcome") == "ROLLBACK") & (F.col("source") == SOURCE)
    later = landing.warehouse.in_form(TABLES[OP], _settled_later(landing, rows.where(open_ones), first))
    return [], rows.where(~open_ones).unionByName(later)


def _within(part: NewPart, kind: str, marker: int) -> Column | None:
    """Which rows of the part's files the table is to get; None: all of them.

    Those before the first fault if faults are refused, and those that a killed landing has not written.
    """
    place = F.col("commit_log_offset" if kind == HALF else "physical_offset")
    begins, ends = max(marker, part.start), part.survey.end
    if begins == part.start and not part.survey.faults:
        return None
    return (place >= begins) & (place < ends)


def _settled_later(landing: StoreLanding, items: DataFrame, first: int) -> DataFrame:
    """Op items that their own stretch does not settle, with the outcomes that all that has landed shows."""
    rows = looked_up(landing.warehouse, items, _reach(landing, first))
    return rows.withColumn("landed_at", F.timestamp_micros(F.lit(landing.landed_at)))


def _reach(landing: StoreLanding, first: int) -> Reach:
    return Reach(landing.lives, SOURCE, read_between(first, landing.lost.unread_log), lambda halves: halves)


def queues(landing: StoreLanding, *surveys: Survey) -> set[Queue]:
    """The broker's queues: time passes for those that got nothing new, too."""
    before = {queue for queue in progress.of_ops(landing.warehouse) if queue.broker_name in landing.lives.names}
    return before.union(*(each.spans[kind] for each in surveys for kind in (HALF, OP)))


def may_lack_ops(landing: StoreLanding, part: NewPart) -> bool:
    """Returns whether the store may have ops that do not land now: no --known-until counts then."""
    return bool(part.layout.queue_ahead or (part.survey.faults and not landing.request.skip_corrupt))


def _known_until(landing: StoreLanding, part: NewPart, surveys: Sequence[Survey]) -> int | None:
    """The user's --known-until, else the newest record's time less `op_lag`, in epoch microseconds.

    No checksum covers a record's time: a time in the future counts as now.
    """
    request = landing.request
    if request.known_until is not None and not may_lack_ops(landing, part):
        return progress.micros(request.known_until)
    newest = max((each.newest for each in surveys if each.newest is not None), default=None)
    if newest is None:
        return None
    return min(newest * 1000, landing.landed_at) - request.op_lag // timedelta(microseconds=1)
