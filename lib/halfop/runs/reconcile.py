"""One call of reconcile: finish what is open, then open, plan, apply and close, slice by slice."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pyspark.sql import Row
from pyspark.sql import functions as F

from halfop.columns.keys import QUEUE
from halfop.frame.errors import HalfopError, LostRows, UsageError
from halfop.frame.log import logged_with
from halfop.frame.summary import Summary
from halfop.planning.arrivals import ops_repeat
from halfop.planning.copies import copies_arrived
from halfop.planning.digest import by_reason
from halfop.planning.plan import PLAN_APP, arrived
from halfop.planning.run import INPUTS, Run, Slice, asks, counts_delivered, pinned_inputs, pinned_now
from halfop.rules import VERSION
from halfop.runs.finish import counts_of_rejects, finish, pay, planned, refuse_unknown_topics, report_read
from halfop.runs.record import last_run, wall_clock, write_opened
from halfop.settings.model import RuleSettings, Settings
from halfop.sinks.targets import make_sinks, refuse_unfit
from halfop.warehouse.progress import GATEWAY, progress_rows
from halfop.warehouse.tables import NO_TABLE, Warehouse

log = logging.getLogger("halfop.reconcile")
_BACK = "the clock is before run %d's instant, %s: this run takes that one, and no time passes until the clock is there"
_LATE = (
    "a broker's ops are known until %s, and this machine's clock says %s: messages wait as long as it is late; "
    "set the clock of this machine or of the broker's"
)

_CLOCKS = ("STORE", "BROKER", GATEWAY)
_LANDED = ("half_messages", "op_messages", "resumes")
_SHOWN = 20
_NEEDED = ("runs", "decisions", "topics_index")


@dataclass(frozen=True)
class Request:
    """The options of `reconcile`; `now` None means the wall clock."""

    settings: Settings
    now: datetime | None = None
    max_rows: int | None = None
    allow_future: bool = False
    parked: frozenset[str] = frozenset()


def reconcile(warehouse: Warehouse, request: Request) -> Summary:
    """Finishes an interrupted run, then runs the rules over what has landed. The caller holds the run lock."""
    summary = Summary("reconcile")
    with summary.shown_in_failure():
        _check_future(request)
        if _has_landed(warehouse, summary):
            refuse_unknown_topics(warehouse, request.parked)
            warehouse.make(*_NEEDED)
            make_sinks(warehouse)
            last = _finish_open(warehouse, request, summary)
            if summary.status == 0:
                _new_runs(warehouse, request, last, summary)
    return summary


def _has_landed(warehouse: Warehouse, summary: Summary) -> bool:
    if any(warehouse.version(name) != NO_TABLE for name in _LANDED):
        return True
    summary.notes.append(f"nothing has landed in {warehouse.root} yet")
    return False


def _new_runs(warehouse: Warehouse, request: Request, last: Run | None, summary: Summary) -> None:
    _check_order(request, last)
    _refuse_lost(warehouse, last)
    for run in _runs(warehouse, request, last, summary):
        with logged_with(run_id=run.run_id):
            write_opened(warehouse, run)
            _finish_opened(warehouse, request, summary)
        if summary.status:
            break


def preview(warehouse: Warehouse, request: Request) -> tuple[Summary, list[Row]]:
    """Counts what a run would decide now, and shows some of its rows; nothing is written, an open run stays open."""
    summary, sample = Summary("reconcile"), list[Row]()
    with summary.shown_in_failure():
        _check_future(request)
        if _has_landed(warehouse, summary):
            found = last_run(warehouse)
            last = found[0] if found else None
            _check_order(request, last)
            sample = _previewed(warehouse, _to_preview(warehouse, request, last, summary), summary)
            summary.notes.append("dry run: nothing was written")
    return summary, sample


def _previewed(warehouse: Warehouse, run: Run, summary: Summary) -> list[Row]:
    with summary.phase("plan"), arrived(warehouse, run) as arrivals:
        plan = planned(arrivals, summary)
        report_read(summary, arrivals)
        counted = plan.decisions.groupBy("decision", "reason").count().collect()
        summary.decisions = by_reason((row[0], row[1], row[2]) for row in counted)
        with plan.rejects() as others:
            found = counts_of_rejects(others)
        found |= {f"HALF.{reason}": n for reason, n in summary.decisions.get("REJECT", {}).items()}
        summary.extra["rejected"] = found
        rows = plan.decisions.where(F.col("decision") != "WAIT")
        shown = rows.orderBy("decision", *QUEUE, "queue_offset").limit(_SHOWN)
        return list(shown.select(*QUEUE, "queue_offset", "uniq_key", "real_topic", "decision", "reason").collect())


def _to_preview(warehouse: Warehouse, request: Request, last: Run | None, summary: Summary) -> Run:
    """An open run that has no plan yet, the rest of a sliced backlog as one slice, or what has landed since."""
    if last and warehouse.marker("decisions", PLAN_APP) < last.run_id:
        _go_by_opened(request, last, summary)
        return last
    if last and last.slice.number < last.slice.of:
        _go_by_opened(request, last, summary)
        rest = replace(last.slice, bounds=last.slice.bounds[: last.slice.number])
        return _next_slice(warehouse, replace(last, slice=rest))
    return _open(warehouse, replace(request, max_rows=None), last)


def _go_by_opened(request: Request, run: Run, summary: Summary) -> None:
    """Refuses what an opened run does not take, because it has an instant; its settings count, not those given."""
    if request.now and request.now != run.now:
        raise UsageError(
            f"--now {request.now.isoformat()}: run {run.run_id}, which is open, comes first, with its own instant "
            f"{run.now.isoformat()}: leave out --now to preview it, or finish it with reconcile"
        )
    given, opened = (settings.rules.model_dump() for settings in (request.settings, run.settings))
    if other := sorted(name for name in given if given[name] != opened[name]):
        summary.notes.append(
            f"run {run.run_id} is open and comes first: its settings count, not those given now "
            f"({', '.join(f'rules.{name}' for name in other)})"
        )


def _check_future(request: Request) -> None:
    if request.now and request.now > wall_clock() and not request.allow_future:
        raise UsageError(f"--now {request.now.isoformat()} lies in the future; give --allow-future if that is meant")


def _check_order(request: Request, last: Run | None) -> None:
    if last and request.now and request.now < last.now:
        raise UsageError(
            f"--now {request.now.isoformat()} is before run {last.run_id}'s {last.now.isoformat()}; "
            "time never goes back: give that instant or a later one"
        )


def _refuse_lost(warehouse: Warehouse, last: Run | None) -> None:
    """The next run goes on with what the last one left open."""
    planned = warehouse.marker("decisions", PLAN_APP)
    if planned > (last.run_id if last else 0):  # another driver's that has opened since, or one that `runs` has lost
        found = last_run(warehouse)
        if found is None or found[0].run_id < planned:
            raise LostRows(warehouse.path("runs"), planned)
    if last is None or not last.decided:
        return
    if planned < last.run_id:
        raise LostRows(warehouse.path("decisions"), last.run_id)
    warehouse.refuse_lost("decisions", last.run_id)


def _finish_opened(warehouse: Warehouse, request: Request, summary: Summary) -> None:
    """Finishes the run that has opened, which may be another driver's; what it owes of earlier runs comes first."""
    run = _newest(warehouse)
    run = replace(run, owed=pay(warehouse, run.owed, request.parked, summary))
    if not summary.status:
        finish(warehouse, run, summary, request.parked)


def _finish_open(warehouse: Warehouse, request: Request, summary: Summary) -> Run | None:
    """Pays what earlier runs owe and finishes runs that are open; returns the last run, closed unless one failed.

    Where nothing locks it out, another driver may open the next run while this one finishes the last.
    """
    last: Run | None = None
    while summary.status == 0 and (found := last_run(warehouse)):
        last, closed = found
        last = replace(last, owed=pay(warehouse, last.owed, request.parked, summary))
        if closed:
            break
        if summary.status == 0:
            _finish_left(warehouse, last, request, summary)
    return last


def _finish_left(warehouse: Warehouse, run: Run, request: Request, summary: Summary) -> None:
    with logged_with(run_id=run.run_id):
        log.info("finishing run %d, which an earlier start left open", run.run_id)
        summary.notes.append(f"finished run {run.run_id}, which an earlier start had left open")
        if run.rules_version != VERSION:
            summary.notes.append(
                f"run {run.run_id} was opened by rules version {run.rules_version}, finished by {VERSION}"
            )
        finish(warehouse, run, summary, request.parked)


def _newest(warehouse: Warehouse) -> Run:
    found = last_run(warehouse)
    if found is None:
        raise HalfopError(f"{warehouse.path('runs')} has lost its rows while a run was going on")
    return found[0]


def _runs(warehouse: Warehouse, request: Request, last: Run | None, summary: Summary) -> Iterator[Run]:
    """The runs to open: the rest of a sliced backlog first, then what has landed since. The last one has closed."""
    if last and last.slice.number < last.slice.of:
        yield from _other_slices(warehouse, request, last, summary)
        last = _finish_open(warehouse, request, summary)
    if summary.status:
        return
    with summary.phase("open"):
        refuse_unfit(warehouse, request.settings)
        run = _open(warehouse, request, last)
    yield run
    if last := _finish_open(warehouse, request, summary):
        yield from _other_slices(warehouse, request, last, summary)


def _other_slices(warehouse: Warehouse, request: Request, run: Run | None, summary: Summary) -> Iterator[Run]:
    while run and not summary.status and run.slice.number < run.slice.of:
        yield _next_slice(warehouse, run)
        run = _finish_open(warehouse, request, summary)


def _open(warehouse: Warehouse, request: Request, last: Run | None) -> Run:
    inputs = pinned_inputs(warehouse, last)
    rules, progress = request.settings.rules, progress_rows(warehouse, inputs["landing_progress"])
    now = request.now or wall_clock()
    if last and now < last.now:
        log.warning(_BACK, last.run_id, last.now)
    if not request.now:
        _warn_of_a_late_clock(now, rules, progress)
    run = Run(
        run_id=last.run_id + 1 if last else 1,
        now=max(now, last.now) if last else now,
        inputs=inputs,
        inputs_before=last.inputs if last else dict.fromkeys(INPUTS, NO_TABLE),
        settings=request.settings,
        owed=last.owed if last else (),
        asks=asks(rules.ask, progress),
        delivered=counts_delivered(rules.count, progress),
    )
    bounds = _bounds(warehouse, run, request.max_rows)
    if not bounds:
        return run
    if copies_arrived(warehouse, run):
        log.info("run %d takes its backlog in one piece, not in %d slices: copies arrived", run.run_id, len(bounds) + 1)
        return run
    return replace(run, slice=Slice(1, bounds, ops_repeat(warehouse, run)))


def _warn_of_a_late_clock(now: datetime, rules: RuleSettings, progress: Sequence[Mapping[str, Any]]) -> None:
    """Warns if a broker has landed up to a time that is still to come; files may be known until any time."""
    of_brokers = (row["known_until"] for row in progress if row["source"] in _CLOCKS and row["known_until"])
    known = max(of_brokers, default=now)
    if known - now > rules.transaction_check_interval:
        log.warning(_LATE, known, now)


def _bounds(warehouse: Warehouse, run: Run, max_rows: int | None) -> tuple[int, ...]:
    """The half offsets that cut what has landed into slices of about `max_rows` half rows."""
    if max_rows is None:
        return ()
    halves = warehouse.landed_between("half_messages", run.inputs_before["half_messages"], run.inputs["half_messages"])
    slices = math.ceil(halves.count() / max_rows)
    if slices <= 1:
        return ()
    shares = [n / slices for n in range(1, slices)]
    cuts = halves.agg(F.percentile_approx("queue_offset", shares, 100_000).alias("cuts")).collect()[0]["cuts"]
    return tuple(sorted(set(cuts)))


def _next_slice(warehouse: Warehouse, run: Run) -> Run:
    """The run of the next range of offsets: the same pins, the same now, on top of what the slice before decided."""
    inputs = dict(run.inputs) | pinned_now(warehouse, run, "decisions")
    part = replace(run.slice, number=run.slice.number + 1)
    return replace(run, run_id=run.run_id + 1, inputs=inputs, slice=part, rules_version=VERSION)
