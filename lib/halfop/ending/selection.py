"""The transactions that somebody names to end, by half keys or a condition; and plans made of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, KEY_COLUMNS, Key, key_of
from halfop.columns.lives import lives_of
from halfop.ending.endable import lacks
from halfop.ending.owner import LandedEnds, Masters, landed_of
from halfop.ending.plan import ROWS, EndingPlan, Kind, Origin, new_head
from halfop.frame.errors import InputRefused, UsageError
from halfop.frame.summary import Summary
from halfop.landing.identity import refuse_landed_before
from halfop.planning.run import sources
from halfop.runs.record import begun, last_run, still_to_do, unknown_hint
from halfop.runs.standing import COLUMNS, Standing, standing
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import GATEWAY, progress_rows
from halfop.warehouse.progress import TABLE as PROGRESS
from halfop.warehouse.spark_errors import by_condition
from halfop.warehouse.tables import NO_TABLE

_SHOWN = 20


@dataclass(frozen=True)
class Selection:
    """Half keys, or a condition, with the outcome of all of them; younger ones, and more than `limit`, are left out."""

    kind: Kind
    keys: Collection[Key] = ()
    where: str | None = None
    min_age: timedelta = timedelta(minutes=10)
    limit: int = 1000

    @property
    def origin(self) -> Origin:
        return "KEY" if self.where is None else "WHERE"

    def __str__(self) -> str:
        named = [f"--where {self.where}"] if self.where is not None else [f"--key {key}" for key in sorted(self.keys)]
        return " ".join([*named[:_SHOWN], f"--{self.kind.lower()}"])


def plan(warehouse: KernelWarehouse, selection: Selection) -> tuple[Summary, EndingPlan]:
    """Returns a plan to end the selected transactions, open ones and discarded ones.

    Raises InputRefused if a key names none, UsageError for a wrong condition or one that holds for too many.
    """
    summary = Summary("end")
    with summary.phase("plan"):
        found = standing(warehouse)
        rows, left_out = _planned(warehouse, found, selection)
    if len(rows) > selection.limit:
        raise UsageError(
            f"{len(rows)} transactions are to be ended, end.limit is {selection.limit}: name fewer, or give --limit N"
        )
    refuse_landed_before(warehouse, set(rows["broker_name"].to_pylist()))
    summary.extra |= {"planned": len(rows), "left_out": left_out}
    summary.notes += [] if rows or left_out else still_to_do(warehouse)
    return summary, EndingPlan(new_head(found.version, str(selection), begun(warehouse)), rows)


def _planned(warehouse: KernelWarehouse, found: Standing, selection: Selection) -> Planned:
    until = born_until(selection.min_age)
    with by_condition(selection.where):
        return planned(found, _wanted(warehouse, found, selection), selection.origin, until)


def _wanted(warehouse: KernelWarehouse, found: Standing, selection: Selection) -> DataFrame:
    keys = found.rows.where(selection.where) if selection.where is not None else _asked(warehouse, found, selection)
    return keys.select(*HALF_KEY, F.lit(selection.kind).alias("kind"), F.lit(None).cast("string").alias("evidence"))


def _asked(warehouse: KernelWarehouse, found: Standing, selection: Selection) -> DataFrame:
    """The live copies of the transactions that the keys name, each once."""
    asked = warehouse.frame(sorted(set(selection.keys)), KEY_COLUMNS)
    rows = found.keys().join(F.broadcast(asked), HALF_KEY)
    known = {key_of(row) for row in rows.collect()}
    if unknown := sorted(set(selection.keys) - known):
        raise InputRefused(
            warehouse.path("decisions"),
            None,
            f"no open or discarded message {', '.join(map(str, unknown[:_SHOWN]))}",
            unknown_hint(warehouse, "nothing was planned"),
        )
    return rows.select("stands_at.*").distinct()


TOO_YOUNG = "TOO_YOUNG"
_EVER = datetime(9999, 12, 31, tzinfo=timezone.utc)  # a plan has no later times


def born_until(min_age: timedelta) -> datetime:
    """Returns the instant until which a message must have been born; without a least age a clock may be ahead."""
    return datetime.now(timezone.utc) - min_age if min_age else _EVER


class Planned(NamedTuple):
    """The rows of a plan, and how many transactions are left out of it, by reason."""

    rows: pa.Table
    left_out: dict[str, int]


def planned(standing: Standing, wanted: DataFrame, origin: Origin, born_until: datetime) -> Planned:
    """Returns the rows of a plan for the transactions that `wanted` names.

    `wanted` has the half key of any copy, `kind` (COMMIT or ROLLBACK) and `evidence` (text or null), one row a
    transaction. Younger ones than `born_until`, and those that lack what an answer needs, are left out and counted.
    Half keys that are not among the standing transactions are in neither.
    """
    live = standing.keys().join(wanted.select(*HALF_KEY, "kind", "evidence"), HALF_KEY)
    asked = live.select("stands_at.*", "kind", "evidence")
    rows = standing.rows.join(asked, HALF_KEY).select(*COLUMNS, "kind", "evidence", left_out(born_until))
    found = rows.orderBy("broker_name", "queue_id", "queue_offset").toArrow()
    return split(found, origin)


def left_out(born_until: datetime) -> Column:
    """Returns `why_not`: why a transaction gets into no plan, whatever its outcome; null if it may."""
    young = F.when(~F.coalesce(F.col("born_timestamp") <= F.lit(born_until), F.lit(True)), TOO_YOUNG)
    return F.coalesce(lacks(), young).alias("why_not")


def split(found: pa.Table, origin: Origin) -> Planned:
    """Returns the plan's rows of transactions with `kind`, `evidence` and `why_not`, and counts the others."""
    counts = found["why_not"].drop_null().value_counts().to_pylist()
    taken = found.filter(found["why_not"].is_null()).drop_columns("why_not")
    columns = {name: taken[name] for name in taken.column_names}
    columns["origin"] = pa.array([origin] * len(taken), pa.string())
    columns["copies"] = pa.array([_places(copies) for copies in taken["copies"].to_pylist()], ROWS.field("copies").type)
    arrays = [columns[field.name].cast(field.type) for field in ROWS]
    return Planned(pa.Table.from_arrays(arrays, schema=ROWS), {each["values"]: each["counts"] for each in counts})


def _places(copies: list[dict[str, object]] | None) -> list[dict[str, object]] | None:
    kept = ("queue_offset", "commit_log_offset")
    return None if copies is None else [{name: copy[name] for name in kept} for copy in copies]


_ASKED = ("STORE", "BROKER", GATEWAY)


def refuse_forbidden(names: Sequence[str], allowed: Sequence[str]) -> None:
    """Raises UsageError for brokers that the settings do not name."""
    if forbidden := [name for name in names if name not in allowed]:
        raise UsageError(
            f"end.brokers: {', '.join(forbidden)} may not be asked to end transactions; "
            f"it names {', '.join(allowed) or 'none'}. If it may: --set end.brokers={','.join([*allowed, *forbidden])}"
        )


def refuse_unreachable(names: Sequence[str], where: Masters | None) -> None:
    """Raises UsageError if these brokers must be asked, and no option says where."""
    if names and where is None:
        raise UsageError(f"{', '.join(names)}: only the broker itself can end its messages: give --namesrv or --broker")
    if len(names) > 1 and where is not None and where.broker:
        raise UsageError(f"--broker is one broker, but the messages are of {', '.join(names)}: give --namesrv")


def by_files(warehouse: KernelWarehouse) -> set[str]:
    """Returns the brokers that nobody can ask, because their messages land by files."""
    return {name for name, source in sources(progress_rows(warehouse)).items() if source not in _ASKED}


def owners(warehouse: KernelWarehouse, names: Collection[str]) -> dict[str, list[str]]:
    """Returns the brokers' own names with those of the given names that are lives of them."""
    of = {row["broker_name"]: row["life_of"] for row in progress_rows(warehouse)}
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        found.setdefault(of.get(name) or name, []).append(name)
    return found


def decided_until(warehouse: KernelWarehouse) -> int:
    """Returns the version of landing_progress that the last run knew which has decided about all of that.

    Call it before you read decisions: a run in between would have seen more, and what it saw must be read again.
    """
    found = last_run(warehouse)
    if found is None:
        return NO_TABLE
    run, closed = found
    decided = closed and run.slice.number == run.slice.of
    return (run.inputs if decided else run.inputs_before)[PROGRESS]


def landed(warehouse: KernelWarehouse, name: str, queues: Collection[int], version: int) -> dict[int, LandedEnds]:
    """Returns how far a broker's queues had landed at a version of landing_progress, as `decided_until` gives it.

    What landed later, no run has seen, so it is read from the broker again.
    """
    rows, before = progress_rows(warehouse), progress_rows(warehouse, version)
    lives = lives_of(rows, name)
    if lives.names != lives_of(before, name).names:
        problem = f"broker {name} has begun another life, {lives.current}, since the last run"
        raise InputRefused(warehouse.path(PROGRESS), None, problem, "start reconcile, and plan again")
    mine = [row for row in before if row["broker_name"] == lives.current]
    offsets = {(row["topic"], row["queue_id"]): row["next_offset"] for row in mine}
    return {queue: landed_of(offsets, queue) for queue in queues}
