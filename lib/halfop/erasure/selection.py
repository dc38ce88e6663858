"""The messages that somebody names to erase, as whole transactions, and how far each has come."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from halfop.columns.copies import grouped, linked
from halfop.columns.keys import HALF_KEY, KEY_COLUMNS, Key, key_of
from halfop.erasure.places import MESSAGES, places
from halfop.planning.counts import covers, ranges_of
from halfop.planning.run import INPUTS
from halfop.rules.halves import read_copies
from halfop.runs.record import last_run, waiting
from halfop.warehouse.erasures import HALVES
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.rows import Kept
from halfop.warehouse.spark_errors import by_condition
from halfop.warehouse.tables import NO_TABLE, Warehouse

_STATE = ("decision", "open", "superseded_by", "superseded_by_broker", "superseded_by_queue")


@dataclass(frozen=True)
class ToErase:
    """Half keys and UNIQ_KEYs, or a condition over the columns of half_messages."""

    keys: Collection[Key] = ()
    uniq_keys: Collection[str] = ()
    where: str | None = None

    @property
    def how(self) -> str:
        """The kind of selection: its words may be personal data themselves."""
        return "KEYS" if self.where is None else "WHERE"


@dataclass(frozen=True)
class WholeTransaction:
    """All half keys of a transaction, and the last decision about it; open: a run may still decide about it."""

    keys: tuple[Key, ...]
    is_open: bool
    is_discarded: bool
    is_known: bool  # a run has decided about it


def named(warehouse: KernelWarehouse, wanted: ToErase) -> tuple[set[Key], set[str]]:
    """Returns the half keys, found wherever a message lies, and the UNIQ_KEYs that no message has.

    A condition holds for half messages; where those are no longer there, for what another table has of them. Raises
    UsageError if it is wrong, or needs a column that such a table lacks.
    """
    found, met = set(wanted.keys), set[str]()
    if wanted.where is None and not wanted.uniq_keys:
        return found, met
    asked = F.broadcast(warehouse.frame([(each,) for each in wanted.uniq_keys], "uniq_key STRING"))
    for name, place in places(warehouse, MESSAGES):
        rows = place.as_halves(warehouse.read(name))
        if wanted.where is not None and name != HALVES:
            rows = rows.join(warehouse.read(HALVES), HALF_KEY, "left_anti")
            if rows.isEmpty():
                continue
        with by_condition(wanted.where and f"{wanted.where} in {name}"):
            by_key = rows.join(asked, "uniq_key", "left_semi") if wanted.where is None else rows.where(wanted.where)
            for row in by_key.select(*HALF_KEY, "uniq_key").distinct().collect():
                found.add(key_of(row))
                met.add(row["uniq_key"])
    return found, set(wanted.uniq_keys) - met


def _keys(rows: DataFrame) -> set[Key]:
    known = rows.where(" AND ".join(f"{name} IS NOT NULL" for name in HALF_KEY))
    return {key_of(row) for row in known.select(*HALF_KEY).distinct().collect()}


def transactions(warehouse: Warehouse, keys: Collection[Key]) -> list[WholeTransaction]:
    """Returns the transactions of these half messages, with all their copies."""
    last = dict[Key, Row]()
    new = set(keys)
    every = set(keys)
    while new:
        found = _last_decisions(warehouse, new)
        last |= found
        new = {copy for row in found.values() for copy in linked(row)} - every
        every |= new
    news = _news(warehouse)
    return [_transaction(group, last, news) for group in grouped(every, list(last.values()))]


def closed_keys(warehouse: Warehouse, rows: DataFrame) -> DataFrame:
    """Returns the half keys of rows whose transactions are not open."""
    keys = _keys(rows)
    found = transactions(warehouse, keys) if keys else []
    return frame_of_keys(warehouse, keys.difference(*[each.keys for each in found if each.is_open]))


def _news(warehouse: Warehouse) -> set[Key]:
    """Half messages about which something has landed that no run has looked at: a row, an op, a resume."""
    found = last_run(warehouse)
    pins = found[0].inputs if found else dict.fromkeys(INPUTS, NO_TABLE)

    def landed(name: str) -> DataFrame:
        return warehouse.landed_between(name, pins[name], warehouse.version(name))

    named = landed("op_messages").drop("queue_offset").withColumnRenamed("half_offset", "queue_offset")
    return _keys(landed(HALVES)) | _keys(named) | _keys(waiting(warehouse))


def _last_decisions(warehouse: Warehouse, keys: Collection[Key]) -> dict[Key, Row]:
    """The last decision about each half message of which a run has heard."""
    with Kept(warehouse.stage) as kept:
        asked = kept.persisted(frame_of_keys(warehouse, keys))
        near = covers(ranges_of(asked, "queue_offset"), "queue_offset")
        rows = warehouse.empty("decisions") if near is None else warehouse.read("decisions", where=near)
        rows = rows.where("decision <> 'EARLY_OP'").join(asked, HALF_KEY, "left_semi")
        state = F.struct(*_STATE, read_copies().alias("copies"))
        found = rows.groupBy(HALF_KEY).agg(F.max_by(state, "run_id").alias("last")).select(*HALF_KEY, "last.*")
        return {key_of(row): row for row in found.collect()}


def frame_of_keys(warehouse: Warehouse, keys: Iterable[Key]) -> DataFrame:
    """Returns the half keys as rows."""
    return warehouse.frame(sorted(keys), KEY_COLUMNS)


def _transaction(keys: Collection[Key], last: dict[Key, Row], news: set[Key]) -> WholeTransaction:
    decided = [last[key] for key in keys if key in last]
    is_open = not decided or any(row["open"] for row in decided) or not news.isdisjoint(keys)
    is_discarded = any(row["decision"] == "DISCARD" for row in decided)
    return WholeTransaction(tuple(keys), is_open, is_discarded, bool(decided))
