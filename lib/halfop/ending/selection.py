"""The transactions that somebody names to end: by half keys, or by a condition over `decisions`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, KEY_COLUMNS, Key
from halfop.ending.plan import Kind, Origin, Plan, new_head
from halfop.ending.planned import Planned, planned
from halfop.ending.standing import Standing, standing
from halfop.frame.errors import InputRefused, UsageError
from halfop.frame.summary import Summary
from halfop.landing.rocksdb import refuse_landed
from halfop.warehouse.tables import Warehouse

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


def plan(warehouse: Warehouse, selection: Selection) -> tuple[Summary, Plan]:
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
    refuse_landed(warehouse, set(rows["broker_name"].to_pylist()))
    summary.extra |= {"planned": len(rows), "left_out": left_out}
    return summary, Plan(new_head(found.version, str(selection)), rows)


def _planned(warehouse: Warehouse, found: Standing, selection: Selection) -> Planned:
    until = datetime.now(timezone.utc) - selection.min_age
    try:
        wanted = _wanted(warehouse, found, selection)
        return planned(found, wanted, selection.origin, until)
    except PySparkException as error:
        if selection.where is None:
            raise
        raise UsageError(f"--where {selection.where}: {str(error).splitlines()[0]}") from error


def _wanted(warehouse: Warehouse, found: Standing, selection: Selection) -> DataFrame:
    keys = found.rows.where(selection.where) if selection.where is not None else _asked(warehouse, found, selection)
    return keys.select(*HALF_KEY, F.lit(selection.kind).alias("kind"), F.lit(None).cast("string").alias("evidence"))


def _asked(warehouse: Warehouse, found: Standing, selection: Selection) -> DataFrame:
    """The live copies of the transactions that the keys name, each once."""
    asked = warehouse.frame(sorted(set(selection.keys)), KEY_COLUMNS)
    rows = found.keys().join(F.broadcast(asked), HALF_KEY)
    known = {Key(*(row[name] for name in Key._fields)) for row in rows.collect()}
    if unknown := sorted(set(selection.keys) - known):
        raise InputRefused(
            warehouse.path("decisions"),
            None,
            f"no open or discarded message {', '.join(map(str, unknown[:_SHOWN]))}",
            "nothing was planned; `explain KEY` shows what became of a message",
        )
    return rows.select("stands_at.*").distinct()
