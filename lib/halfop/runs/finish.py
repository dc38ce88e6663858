"""Takes an opened run through the steps that it still lacks, until it is closed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from itertools import groupby

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from halfop.columns.keys import QUEUE
from halfop.frame.errors import UsageError, is_transient
from halfop.frame.log import logged_with
from halfop.frame.nearest import nearest
from halfop.frame.summary import Summary, add_counts
from halfop.frame.units import plural
from halfop.planning.arrivals import Arrivals
from halfop.planning.digest import Digest, Latency
from halfop.planning.plan import PLAN_APP, Plan, arrived, plan_of
from halfop.planning.run import INPUTS, Clock, Debt, Run, clocks, late_clocks
from halfop.runs.record import last_run, recorded, wall_clock, write_closed
from halfop.settings.model import Settings
from halfop.sinks.targets import SINK_NAMES, WHOLE_TABLES
from halfop.sinks.write import Applied, Sinks
from halfop.sql.views import named_in_sql
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.schema import REJECTED
from halfop.warehouse.spark_errors import log_failure
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import equal
from halfop.wording import Reject, warn_of

log = logging.getLogger("halfop.reconcile")

_OPEN = ("CHECK", "WAIT")


def finish(warehouse: Warehouse, run: Run, summary: Summary, parked: Collection[str] = ()) -> None:
    """Plans, applies and closes an opened run, and adds what it did to the summary. It will owe what `parked` names."""
    summary.run_id, before = run.run_id, dict(summary.seconds)
    with ExitStack() as stages:
        with summary.phase("plan"):
            due = warehouse.marker("decisions", PLAN_APP) < run.run_id
            plan = None
            hidden_rejects = True  # those that no decision shows: only the plan knows
            arrivals = stages.enter_context(arrived(warehouse, run, to_commit=due))
            if due:
                plan = planned(arrivals, summary)
                hidden_rejects = plan.commit()
            digest = Digest.of(warehouse, run.run_id, wall_clock() if due else run.now)
        _report_decided(summary, arrivals, digest)
        with summary.phase("apply"):
            rejecting = (lambda: plan or planned(arrivals, summary)) if hidden_rejects else None
            applied = Sinks(warehouse, run, digest, rejecting).write(lambda sink: sink not in parked)
        _report_written(warehouse, run, applied, summary)
    if applied.failed:
        report_failed(summary, applied.failed)
        return
    if (hidden_rejects or "REJECT" in digest.counts) and REJECTED not in applied.left_out:
        report_rejects(warehouse, run.run_id, summary)
    with summary.phase("close"):
        run = replace(run, owed=(*run.owed, *[Debt(run.run_id, sink) for sink in applied.left_out]))
        seconds = {phase: total - before.get(phase, 0.0) for phase, total in summary.seconds.items()}
        write_closed(warehouse, run, digest.recorded, seconds)
    if run.owed:
        summary.extra["owed"] = [f"{debt.sink} of run {debt.run_id}" for debt in run.owed]
    _report_latency(summary, digest.latency)
    what = ", ".join(f"{n} {decision}" for decision, n in sorted(digest.totals.items()))
    log.info("run %d closed: %s", run.run_id, what or "nothing to decide")


def planned(arrivals: Arrivals, summary: Summary) -> Plan:
    """Returns the run's plan; the log and the summary say which way it took and why, and where it looked back."""
    run_id = arrivals.run.run_id
    plan = plan_of(arrivals)
    log.info("run %d decides %s", run_id, plan.joined)
    for line in str(plan).splitlines():
        log.debug("run %d: %s", run_id, line)
    summary.extra.setdefault("ways", {})[str(run_id)] = str(plan.joined)
    add_counts(summary.extra.setdefault("files_looked_back_into", {}), plan.files)
    return plan


def report_failed(summary: Summary, failed: Mapping[str, Exception]) -> None:
    lines = {sink: log_failure(log, f"sink {sink}", error) for sink, error in failed.items()}
    summary.add_failed("failed_sinks", lines, all(map(is_transient, failed.values())))


def _report_written(warehouse: Warehouse, run: Run, applied: Applied, summary: Summary) -> None:
    """Counts rows, and messages that do not fit their topics' settings: those are delivered all the same.

    Of topics that were delivered without values it says why, and how their tables get them.
    """
    add_counts(summary.rows_written, applied.rows)
    if applied.value_errors:
        add_counts(summary.extra.setdefault("value_errors", {}), applied.value_errors)
        summary.extra.setdefault("value_errors_in", {}).update(named_in_sql(warehouse, applied.value_errors))
    for topic in applied.without_values:
        why, first = f"topics.{topic}.value is not set, by which its table had values", "set it, then "
        if topic in run.settings.topics.values:
            why, first = "its schema is `infer`", ""
        note = f"{topic} was delivered without values, because {why}: {first}maintain --values {topic}"
        summary.notes += [] if note in summary.notes else [note]


def _report_latency(summary: Summary, latency: Latency) -> None:
    """Adds how long the run's committed messages took, to those of other runs of this call."""
    if latency.messages:
        summary.extra["commit_latency"] = vars(latency.plus(Latency(**summary.extra.get("commit_latency", {}))))


def _report_decided(summary: Summary, arrivals: Arrivals, digest: Digest) -> None:
    totals = digest.totals
    for decision, reasons in digest.counts.items():
        add_counts(summary.decisions.setdefault(decision, {}), reasons)
    add_counts(summary.rows_written, {"decisions": sum(totals.values())})
    report_read(summary, arrivals)
    summary.extra.setdefault("runs", []).append(arrivals.run.run_id)
    summary.extra["now"] = arrivals.run.now
    summary.extra.setdefault("files_looked_back_into", {})
    summary.extra["open_messages"] = sum(totals.get(decision, 0) for decision in _OPEN)
    summary.extra["oldest_open_seconds"] = _age(arrivals.run.now, digest.oldest(_OPEN))
    summary.extra.pop("queues_behind", None)  # of a run that this call has finished before
    if late := late_queues(arrivals.clocks, arrivals.run):
        summary.extra["queues_behind"] = late
        log.info("%s", _late_queues(len(late)))


def report_read(summary: Summary, arrivals: Arrivals) -> None:
    read = {"half_messages": arrivals.half_rows, "op_messages": arrivals.op_rows}
    add_counts(summary.rows_read, read | {"open": arrivals.open_messages + arrivals.waiting_ops})


def _late_queues(number: int) -> str:
    """Returns a calm line: time stands still there until more lands, and no message is lost by it."""
    known = "is" if number == 1 else "are"
    return (
        f"{plural(number, 'queue')} {known} not known up to now (queues_behind): nobody is asked there about what is "
        "due since, until later ops land, or a later --known-until says that there are none"
    )


def _age(now: datetime, born: int | None) -> float | None:
    return None if born is None else max(0.0, round(now.timestamp() - born / 1000, 3))


def late_queues(known: Iterable[Clock], run: Run) -> Mapping[str, str]:
    """The queues whose ops have not landed up to the run's now, and until when they have."""
    late = late_clocks(known, run.now, run.settings.rules.transaction_check_interval)
    return {
        f"{clock.broker_name}/{clock.queue_id}": "never" if clock.known_until is None else clock.known_until.isoformat()
        for clock in late
    }


_KEY = [*QUEUE, "queue_offset"]


def counts_of_rejects(rows: DataFrame) -> dict[str, int]:
    """Rejects by kind and reason."""
    return {f"{row['kind']}.{row['reason']}": row["count"] for row in rows.groupBy("kind", "reason").count().collect()}


def report_rejects(warehouse: Warehouse, run_id: int, summary: Summary) -> None:
    """Adds a run's rejects to the summary, and warns of each reason."""
    rows = warehouse.read(REJECTED, where=equal("run_id", run_id))
    first = F.min(F.struct(*_KEY, "item", F.substring("detail", 1, 400).alias("detail"))).alias("first")
    counted = rows.groupBy("kind", "reason").agg(F.count("*").alias("n"), first).collect()
    found = [Reject(kind, reason, n, _place(first), first["detail"] or "") for kind, reason, n, first in counted]
    add_counts(summary.rows_written, {"rejected": sum(each.rows for each in found)})
    warn_of(log, f"run {run_id}", summary, found)


def _place(row: Row) -> str:
    parts = [str(row[name]) for name in _KEY if row[name] is not None]
    return "/".join(parts) + ("" if row["item"] is None else f" item {row['item']}")


def pay(warehouse: Warehouse, owed: Sequence[Debt], parked: Collection[str], summary: Summary) -> tuple[Debt, ...]:
    """Writes what earlier runs owe, except to sinks that are still parked; returns what is owed then.

    A sink holds runs in their order, so it must have this before a later run may write to it. If that fails, the
    summary shows it and has status 1.
    """
    due = [debt for debt in owed if debt.sink not in parked]
    for run_id, debts in groupby(due, key=lambda debt: debt.run_id):
        sinks = [debt.sink for debt in debts]
        with logged_with(run_id=run_id):
            run, applied = _write(warehouse, run_id, sinks)
            _report_written(warehouse, run, applied, summary)
            if applied.failed:
                report_failed(summary, applied.failed)
                return tuple(owed)
            if REJECTED in sinks:
                report_rejects(warehouse, run_id, summary)
        summary.notes.append(f"wrote what run {run_id} owed: {', '.join(sinks)}")
    return tuple(debt for debt in owed if debt.sink in parked)


def _write(warehouse: Warehouse, run_id: int, sinks: Collection[str]) -> tuple[Run, Applied]:
    run, digest = recorded(warehouse, run_id), Digest.of(warehouse, run_id)
    if REJECTED not in sinks:
        return run, Sinks(warehouse, run, digest, None).write(lambda sink: sink in sinks)
    with arrived(warehouse, run) as arrivals:
        return run, Sinks(warehouse, run, digest, lambda: plan_of(arrivals)).write(lambda sink: sink in sinks)


_TOPIC = "topics/"


def known_form(name: str) -> str:
    """Returns the name of a table that a run writes; topics are only known when the warehouse is."""
    if name.startswith(_TOPIC) or name in SINK_NAMES:
        return name
    raise ValueError(f"{name!r} is none of {', '.join(SINK_NAMES)}{_near(name, SINK_NAMES)}")


def refuse_unknown_topics(warehouse: Warehouse, parked: Collection[str]) -> None:
    """Raises UsageError for a name of no table, and if a parked topic has none and no message for it has landed."""
    try:
        for name in parked:
            known_form(name)
    except ValueError as error:
        raise UsageError(f"--park-sink: {error}") from error
    given = {name for name in parked if name.startswith(_TOPIC)}
    known = {f"{_TOPIC}{row['topic']}" for row in warehouse.rows("topics_index")} if given else set()
    if given <= known:
        return
    known |= _landed(warehouse)
    for name in sorted(given - known):
        near = _near(name, [*known, *WHOLE_TABLES])
        raise UsageError(f"--park-sink {name}: no message for this topic has landed{near}")


def _near(name: str, known: Collection[str]) -> str:
    close = nearest(name, known)
    return "" if close is None else f"; the nearest known sink is {close}"


def _landed(warehouse: Warehouse) -> set[str]:
    rows = warehouse.read("half_messages").where("real_topic IS NOT NULL").select("real_topic").distinct()
    return {f"{_TOPIC}{row['real_topic']}" for row in rows.collect()}


# ---- no run ----

# Time passes by landing_progress, and questions are delivered, but only for open messages.
_DECIDED_BY = [name for name in INPUTS if name not in ("landing_progress", "check_deliveries", "decisions")]


def idle(warehouse: Warehouse, settings: Settings, given: datetime | None) -> Summary | None:
    """Returns the summary of no run if nothing has landed since the last and nothing is open; None if one is due.

    Who reconciles every few seconds need not record runs that decide nothing; a `given` instant is recorded.
    """
    found = None if given else last_run(warehouse)
    if found is None or not _nothing_left(warehouse, *found):
        return None
    run = replace(found[0], now=wall_clock(), settings=settings)
    summary = Summary("reconcile", notes=[f"nothing has landed since run {run.run_id}, and it left nothing open"])
    late = late_queues(clocks(progress_rows(warehouse)), run)
    summary.extra = {"now": run.now, "runs": [], "open_messages": 0, "oldest_open_seconds": None}
    summary.extra |= {"queues_behind": late} if late else {}
    return summary


def _nothing_left(warehouse: Warehouse, last: Run, closed: bool) -> bool:
    if not closed or last.owed or last.left_open or last.slice.number < last.slice.of:
        return False
    return all(warehouse.version(name) == last.inputs[name] for name in _DECIDED_BY)
