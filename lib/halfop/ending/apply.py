"""`end --apply` and `resume --broker`: a plan's rows end, and given-up messages go on, at the brokers that own them.

A row of a broker that lands by files ends as an op row.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, KEY_COLUMNS, Key, key_of
from halfop.ending.answers import land_answers
from halfop.ending.endable import Changed, checked, lacks
from halfop.ending.owner import Masters
from halfop.ending.plan import RESUME, EndingPlan, Row, new_head, places_of
from halfop.ending.selection import by_files, decided_until, landed, owners, refuse_forbidden, refuse_unreachable
from halfop.ending.sender import BrokerPart, Sender
from halfop.ending.table import NOT_ENDED, TABLE, Clerk, Ending, EndingsTable, Known, State, known
from halfop.frame.errors import HalfopError, InputRefused, UsageError, is_transient
from halfop.frame.summary import Summary
from halfop.frame.units import plural
from halfop.runs.record import refuse_plan_of_another
from halfop.runs.standing import standing
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import hold
from halfop.warehouse.spark_errors import OPERATIONAL_ERRORS, as_ours, by_condition, log_failure

# Rows in these states get no further request; those that were sent are swept and verified again.
_GO_ON: tuple[State, ...] = ("INTENDED", "UNKNOWN", "SENT", "VERIFIED")
_LOG = logging.getLogger("halfop.end")


@dataclass(frozen=True)
class ApplyRequest:
    """The options of `end --apply`: who may be asked, and where; None: only brokers that land by files."""

    plan: EndingPlan
    brokers: Sequence[str]
    limit: int
    where: Masters | None = None
    no_index: bool = False
    wait: timedelta = timedelta(0)


def apply(warehouse: KernelWarehouse, request: ApplyRequest) -> tuple[Summary, list[Ending]]:
    """Returns the summary, and the newest ending of each row. A broker that fails stops no other.

    Raises UsageError before anything is done if the plan names a broker that may not, or cannot, be asked.
    """
    summary = Summary("end")
    if len(request.plan) > request.limit:
        raise UsageError(f"the plan has {len(request.plan)} transactions, end.limit is {request.limit}: give --limit N")
    if request.plan.head.warehouse is not None:
        refuse_plan_of_another(warehouse, request.plan.head.warehouse)
    names = owners(warehouse, set(request.plan.rows["broker_name"].to_pylist()))
    refuse_forbidden([*names], request.brokers)
    with summary.shown_in_failure(), hold(warehouse, "ending", request.wait):
        ours = by_files(warehouse)
        refuse_unreachable([name for name, lives in names.items() if not ours.issuperset(lives)], request.where)
        warehouse.make(TABLE)
        application = _Application(warehouse, request, summary)
        with summary.phase("check"):
            rows = application.unchanged()
        failed = dict(application.ended(rows, names, ours))
        found = application.recorded()
    _sum_up(summary, request.plan, found, failed)
    return summary, list(found.values())


class _Application:
    """One call of `end --apply`."""

    def __init__(self, warehouse: KernelWarehouse, request: ApplyRequest, summary: Summary) -> None:
        self._warehouse, self._request, self._summary = warehouse, request, summary
        cells = zip(*(request.plan.rows[name].to_pylist() for name in Key._fields), strict=True)
        self.keys = [Key(*each) for each in cells]
        self._table = EndingsTable(warehouse)  # before `known`: what comes in between stops this call
        self._known: Known = known(warehouse, request.plan.head.plan_id, self.keys)
        self._unswept: list[Row] = []
        self._clerk = Clerk(request.plan.head.plan_id, self._known.after)
        self._landed_at = decided_until(warehouse)  # before decisions are read: runs may go on meanwhile

    def unchanged(self) -> list[Row]:
        """Returns the rows that still stand as planned and want something; what has changed is recorded."""
        rows, others = checked(self._warehouse, self._request.plan)
        changed = [each for each in others if self._is_open(each.row, upto="SENT")]
        self._table.record([self._change(each) for each in changed])
        self._unswept = [
            each.row for each in changed if each.row.key in self._known.mine and each.ends_as == each.row.kind
        ]
        return [row for row in rows if self._is_open(row, upto="VERIFIED")]

    def recorded(self) -> dict[Key, Ending]:
        """Returns what counts now of each row; copies that were swept are no rows of the plan."""
        found = known(self._warehouse, self._request.plan.head.plan_id, self.keys).mine
        return {key: found[key] for key in self.keys if key in found}

    def _is_open(self, row: Row, upto: State) -> bool:
        recorded = self._known.mine.get(row.key)
        return recorded is None or recorded.state in _GO_ON[: _GO_ON.index(upto) + 1]

    def _change(self, changed: Changed) -> Ending:
        recorded = self._known.mine.get(changed.row.key)
        sent = recorded.sent if recorded else None
        return self._clerk.ending(changed.row, changed.state(recorded is not None), changed.remark, sent=sent)

    def ended(
        self, rows: Sequence[Row], names: Mapping[str, Collection[str]], ours: set[str]
    ) -> Iterator[tuple[str, HalfopError]]:
        """Ends the rows broker by broker, each with all of its lives; yields the errors that have stopped one."""
        for name, lives in names.items():
            mine, ended = ([row for row in of if row.key.broker_name in lives] for of in (rows, self._unswept))
            ends_here = ours.issuperset(lives)
            try:
                with self._summary.phase(f"end {name}"):
                    if mine and ends_here:
                        self._land(mine)
                    elif (mine or ended) and not ends_here and self._request.where:
                        self._send(self._request.where, name, lives, mine, ended)
            except OPERATIONAL_ERRORS as error:
                yield name, as_ours(error, name)

    def _land(self, rows: Sequence[Row]) -> None:
        todo = [row for row in rows if self._is_open(row, upto="UNKNOWN")]
        land_answers(self._warehouse, todo, self._request.plan.head.instant, self._clerk, self._table)

    def _send(
        self, where: Masters, name: str, lives: Collection[str], rows: Sequence[Row], ended: Sequence[Row]
    ) -> None:
        queues = {row.key.queue_id for row in (*rows, *ended)}
        part = BrokerPart(name, where, landed(self._warehouse, name, queues, self._landed_at), self._request.no_index)
        Sender(part, self._clerk, self._table, self._known.mine, self._known.sent_to(lives)).end(rows, ended)


def _sum_up(summary: Summary, plan: EndingPlan, found: Mapping[Key, Ending], failed: Mapping[str, HalfopError]) -> None:
    states: Counter[str] = Counter(row.state for row in found.values())
    left = len(plan) - sum(states.values())
    summary.extra |= {"plan_id": plan.head.plan_id, "endings": dict(states), "not_tried": left}
    if states["SENT"]:
        sent = plural(states["SENT"], "answer")
        summary.notes.append(f"{sent} not verified yet: start the same command again after the next run")
    summary.status = 5 if left or any(states[state] for state in NOT_ENDED) else 0
    if failed:
        lines = {name: log_failure(_LOG, f"broker {name}", error, str(error)) for name, error in failed.items()}
        status = max(error.exit_status for error in failed.values())
        summary.status = 0
        summary.add_failed("failed_brokers", lines, all(map(is_transient, failed.values())), status)


# ---- `resume --broker`: messages that their broker itself gave up are put back there ----


_DISCARDS = "trans_check_max_time"
_SHOWN = 20
_ELSE = "`resume` without --broker opens again what a run of halfop discarded"


@dataclass(frozen=True)
class Resume:
    """Messages that brokers gave up: by their keys, or by a condition over trans_check_max_time."""

    where_is: Masters
    brokers: Sequence[str]
    keys: Collection[Key] = ()
    where: str | None = None
    limit: int = 1000
    wait: timedelta = timedelta(0)
    dry_run: bool = False


def resume_at_brokers(warehouse: KernelWarehouse, request: Resume) -> tuple[Summary, list[Ending]]:
    """Returns the summary, and what became of each message."""
    summary, version = Summary("resume"), decided_until(warehouse)
    rows, left_out = _rows(warehouse, request)
    summary.extra |= {"left_out": left_out} if left_out else {}
    if not rows and not left_out:
        summary.notes.append(f"no message that fits was given up by its broker; {_ELSE}")
    names = owners(warehouse, {row.key.broker_name for row in rows})
    if len(rows) > request.limit:
        raise UsageError(f"{len(rows)} messages are to be resumed, end.limit is {request.limit}: name fewer")
    refuse_forbidden([*names], request.brokers)
    refuse_unreachable([*names], request.where_is)
    if request.dry_run:
        summary.extra["would_resume"] = len(rows)
        summary.notes.append("dry run: no broker was asked")
        return summary, []
    with hold(warehouse, "ending", request.wait):
        warehouse.make(TABLE)
        found = _resumed(warehouse, request, rows, names, version)
    states: Counter[str] = Counter(each.state for each in found)
    summary.extra |= {"endings": dict(states), "resumed": states["SENT"] + states["VERIFIED"]}
    summary.status = 5 if any(states[state] for state in NOT_ENDED) else 0
    return summary, found


def _resumed(
    warehouse: KernelWarehouse, request: Resume, rows: Sequence[Row], names: Mapping[str, Collection[str]], version: int
) -> list[Ending]:
    head, table = new_head(warehouse.version("decisions"), "resume"), EndingsTable(warehouse)
    keys = [row.key for row in rows]
    earlier = known(warehouse, head.plan_id, keys)
    for name, lives in names.items():
        mine = [row for row in rows if row.key.broker_name in lives]
        part = BrokerPart(name, request.where_is, landed(warehouse, name, {row.key.queue_id for row in mine}, version))
        Sender(part, Clerk(head.plan_id, earlier.after), table, {}, earlier.sent_to(lives)).end(mine)
    return list(known(warehouse, head.plan_id, keys).mine.values())


# ---- which messages ----


def _rows(warehouse: KernelWarehouse, request: Resume) -> tuple[list[Row], dict[str, int]]:
    """The messages that their brokers gave up, and that are so still, and how many of them lack what a request needs.

    Raises InputRefused for a key of another one.
    """
    rows = standing(warehouse).rows.withColumn("lacks", lacks())
    given_up = rows.where("decision = 'DISCARD' AND reason = 'BROKER_DISCARDED'")
    with by_condition(request.where):
        found = given_up.join(_asked(warehouse, request), HALF_KEY, "left_semi").toArrow().to_pylist()
    if unknown := sorted(set(request.keys) - {key_of(cells) for cells in found}):
        problem = f"no message that its broker gave up: {', '.join(map(str, unknown[:_SHOWN]))}"
        raise InputRefused(warehouse.path("decisions"), None, problem, f"nothing was resumed; {_ELSE}")
    left_out = Counter(cells["lacks"] for cells in found if cells["lacks"])
    return [_resumed_row(cells) for cells in found if not cells["lacks"]], dict(left_out)


def _asked(warehouse: KernelWarehouse, request: Resume) -> DataFrame:
    if request.where is None:
        return F.broadcast(warehouse.frame(sorted(set(request.keys)), KEY_COLUMNS))
    return warehouse.read(_DISCARDS).where(request.where).select(HALF_KEY)


def _resumed_row(cells: Mapping[str, Any]) -> Row:
    taken = ("uniq_key", "producer_group", "real_topic", "decision", "born_timestamp")
    return Row(key_of(cells), RESUME, "KEY", None, places=places_of(cells), **{name: cells[name] for name in taken})
