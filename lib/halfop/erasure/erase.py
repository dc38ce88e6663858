"""`erase`: parts of messages removed from all tables, by a plan. Called again after a kill, it goes on.

First `erasures` gets the half keys, table by table; then each table loses its rows by a commit of its own. A message
that a run may still decide about stays, because it can be delivered yet: it has to end first.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, Key, key_of
from halfop.erasure.places import places
from halfop.erasure.plan import ErasurePlan, new_plan
from halfop.erasure.rows import record, removals, rows_left, set_guards
from halfop.erasure.selection import ToErase, WholeTransaction, frame_of_keys, named, transactions
from halfop.frame.summary import Summary
from halfop.frame.units import plural
from halfop.planning.run import sources
from halfop.runs.record import begun, last_run, refuse_held, refuse_plan_of_another, wall_clock
from halfop.settings.home import launcher
from halfop.settings.model import RetentionSettings, Settings
from halfop.warehouse.erasures import HALVES, erasures
from halfop.warehouse.files import shown_path
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import ASIDE, hold
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.rows import Kept
from halfop.warehouse.session import session_settings
from halfop.warehouse.upkeep import UPKEEP, TableUpkeep
from halfop.warehouse.where import equal

log = logging.getLogger("halfop.erase")
_GROUPS = ("ending", "landing", "run")  # in the order in which `end` holds two
_SHOWN = 20
_MARGIN = timedelta(hours=1)  # VACUUM counts whole hours


class ErasedTable(NamedTuple):
    """A table, and the number of its rows that were removed, or emptied if they say how a transaction ended."""

    table: str
    rows: int


def plan(warehouse: KernelWarehouse, wanted: ToErase) -> tuple[Summary, ErasurePlan]:
    """Returns a plan with the half keys of all selected messages of which a table holds a part, with their copies.

    Messages that are open are left out; the summary shows how many, and how to end them.
    """
    summary = Summary("erase")
    with summary.phase("plan"):
        refuse_held(last_run(warehouse), "nothing was planned")
        keys, unknown = named(warehouse, wanted)
        found = transactions(warehouse, keys)
        is_open = _open(warehouse, found)
        strange = {key for each in found if each.is_open and each not in is_open for key in each.keys}
        closed = [each for each in found if not each.is_open]
        counts, held = _left(warehouse, {key for each in closed for key in each.keys})
    made = new_plan(held, wanted.how, len(is_open), counts, begun(warehouse))
    summary.extra |= {"to_erase": counts, "left_open": len(is_open)}
    again = "plan again: a plan names no open message"
    summary.notes += [*_of_unknown(sorted(unknown) + sorted(map(str, strange))), *_of_open(is_open, again)]
    summary.notes += _of_discarded([each for each in closed if each.is_discarded and not held.isdisjoint(each.keys)])
    return summary, made


def _open(warehouse: KernelWarehouse, found: Sequence[WholeTransaction]) -> list[WholeTransaction]:
    """The open transactions that there are: a run has decided about them, or a table has a row of theirs."""
    _, there = _left(warehouse, {key for each in found if not each.is_known for key in each.keys})
    return [each for each in found if each.is_open and (each.is_known or not there.isdisjoint(each.keys))]


def _left(warehouse: KernelWarehouse, keys: Collection[Key]) -> tuple[dict[str, int], set[Key]]:
    """The number of rows in each table, and the keys that these are of."""
    rows = rows_left(warehouse, frame_of_keys(warehouse, keys)) if keys else None
    if rows is None:
        return {}, set()
    with Kept(warehouse.stage) as kept:
        rows = kept.persisted(rows)
        counted = rows.groupBy("table_name").agg(F.sum("rows")).collect()
        return {row[0]: row[1] for row in sorted(counted)}, {key_of(row) for row in rows.select(*HALF_KEY).collect()}


def _of_unknown(names: Sequence[str]) -> list[str]:
    shown = ", ".join(names[:_SHOWN])
    return [f"{plural(len(names), 'key')} without a message of which anything is left here: {shown}"] if names else []


def _of_open(found: Sequence[WholeTransaction], again: str) -> list[str]:
    if not found:
        return []
    keys = " ".join(f"--key {each.keys[-1]}" for each in found[:_SHOWN])
    return [
        f"not erased, because a run may still decide: {plural(len(found), 'open message')}; "
        f"first end it by `{launcher()} end {keys} --rollback` (docs/ending.md), or wait for its discard; "
        f"reconcile, and {again}"
    ]


def _of_discarded(found: Sequence[WholeTransaction]) -> list[str]:
    return [f"{len(found)} of them are discarded: a commit that lands later cannot deliver them"] if found else []


def erase(warehouse: KernelWarehouse, made: ErasurePlan, settings: Settings) -> tuple[Summary, list[ErasedTable]]:
    """Removes what the plan names and nothing that has become open since; WarehouseBusy while a run is open or owed."""
    summary, done = Summary("erase"), list[ErasedTable]()
    summary.extra |= {"plan_id": made.head.plan_id}
    with summary.shown_in_failure(), session_settings(warehouse.spark, UPKEEP), ExitStack() as locks:
        for group in _GROUPS:
            locks.enter_context(hold(warehouse, group, settings.lock.wait))
        refuse_held(last_run(warehouse), "nothing was erased")
        refuse_plan_of_another(warehouse, made.head.warehouse)
        set_guards(warehouse)
        with summary.phase("look"):
            keys = _whole(warehouse, made.keys, made.head.left_open, summary)
        if keys:
            done = _removed(warehouse, made.head.plan_id, keys, summary)
        with summary.phase("remove"):
            _purge(warehouse)
        summary.extra["erased"] = {each.table: each.rows for each in done}
        _say_what_stays(warehouse, made, settings.retention, summary)
    if not done:
        summary.notes.append("nothing is left to erase by this plan")
    return summary, done


def _whole(warehouse: KernelWarehouse, planned: set[Key], left_out: int, summary: Summary) -> set[Key]:
    """The keys of transactions that are not open, and of which no copy was deleted from the plan."""
    found = transactions(warehouse, planned)
    others = {key for each in found for key in each.keys} - planned
    _, apart = _left(warehouse, others)
    is_open = _open(warehouse, found)
    in_part = [each for each in found if not each.is_open and not apart.isdisjoint(each.keys)]
    summary.extra["left_open"] = left_out + len(is_open)
    summary.notes += _of_open(is_open, "apply this plan again")
    if left_out:
        summary.notes.append(
            f"the data of {plural(left_out, 'message')} stays, even if they have ended since: they were open when the "
            "plan was made, so it does not name them; plan again"
        )
    if in_part:
        summary.notes.append(f"{plural(len(in_part), 'message')} not erased: the plan lacks copies of them; plan again")
    return {key for each in found if not each.is_open and each not in in_part for key in each.keys}


def _removed(warehouse: KernelWarehouse, plan_id: str, keys: set[Key], summary: Summary) -> list[ErasedTable]:
    with Kept(warehouse.stage) as kept:
        asked = kept.persisted(frame_of_keys(warehouse, keys))
        rows = rows_left(warehouse, asked)
        if rows is None:
            return []
        rows = kept.persisted(rows)
        with summary.phase("record"):
            record(warehouse, plan_id, rows)
        done = list[ErasedTable]()
        for each in removals(warehouse, asked, rows):
            with summary.phase("remove"):
                each.commit()
            log.info("%s: %d rows erased", each.table, each.rows)
            done.append(ErasedTable(each.table, each.rows))
        return done


def _purge(warehouse: KernelWarehouse) -> None:
    """Removes from live files the rows that a DELETE of the user's, with deletion vectors, has only hidden there."""
    for name, _ in places(warehouse):
        found = warehouse.log.snapshot(warehouse.path(name))
        if found is not None and "deletionVectors" in found.features:
            TableUpkeep(warehouse, name).purge()


# ---- what stays elsewhere, and until when ----


def _say_what_stays(
    warehouse: KernelWarehouse, made: ErasurePlan, retention: RetentionSettings, summary: Summary
) -> None:
    """Old files until a VACUUM, what was put aside, input files, and brokers' stores: no part of the tables."""
    if erasures(warehouse, equal("plan_id", made.head.plan_id)) is None:
        return
    until = wall_clock() + max(retention.verify, retention.files) + _MARGIN
    summary.extra["old_files_until"] = until
    summary.notes.append(
        f"files of old versions hold the data until the first `maintain` after {until:%Y-%m-%d %H:%M} UTC "
        "(retention.verify, retention.files)"
    )
    elsewhere = [*_put_aside(warehouse), *_input_files(warehouse, made.head.plan_id), *_stores(warehouse, made.keys)]
    summary.extra["elsewhere"] = elsewhere
    if elsewhere:
        shown = "; ".join(elsewhere[:_SHOWN])
        summary.notes.append(f"halfop deletes none of these, which may hold the data, too: {shown}")


def _put_aside(warehouse: KernelWarehouse) -> list[str]:
    """The folder of what repairs have taken out of tables, if it has a file."""
    folder = warehouse.files.local(warehouse.path(ASIDE))
    files = Path(folder).rglob("*") if folder else ()
    return [f"folder {folder}"] if any(path.is_file() for path in files) else []


def _input_files(warehouse: KernelWarehouse, plan_id: str) -> list[str]:
    """The files of the landings that brought the half messages."""
    rows = erasures(warehouse, equal("plan_id", plan_id), HALVES)
    if rows is None:
        return []
    files = warehouse.read("landed_files").where("kind = 'half' AND rows > 0")
    found = files.join(rows.select("landed_at").distinct(), "landed_at", "left_semi").select("path").distinct()
    return sorted(f"file {shown_path(row['path'])}" for row in found.collect())


def _stores(warehouse: KernelWarehouse, keys: Collection[Key]) -> list[str]:
    known = sources(progress_rows(warehouse))
    brokers = sorted({key.broker_name for key in keys})
    return [f"the store of {name} ({known[name]})" for name in brokers if known.get(name) not in (None, "FILES")]
