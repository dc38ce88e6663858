"""`land files --accept-rewind`: files are compared with what has landed under the keys of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.lives import Lives, all_lives, lives_of
from halfop.columns.values import present
from halfop.landing import progress
from halfop.landing.cuts import Cut, Landed
from halfop.landing.files.rows import SOURCE
from halfop.landing.files.taking import Way
from halfop.landing.rewind import KEY_REUSED, TOPICS, Begun, begin
from halfop.landing.tables import TABLES
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import equal

_IDENTITY = {"half": ["commit_log_offset", "store_timestamp", "uniq_key"], "op": ["store_timestamp"]}
_WRITTEN = ["writer", "queue_id", "queue_offset"]
Firsts = Mapping[tuple[str, int, str], int]  # the first offset that differs, by broker, queue and kind


def accept(warehouse: Warehouse, taken: Way, at: int) -> dict[str, bool]:
    """Begins a new life of each broker whose rows differ, or of which a run has found a reused key.

    Returns the new names, and whether anything differs: if not, the new life begins where the landed rows end.
    """
    known = all_lives(progress_rows(warehouse))
    differing = {
        key: first for kind in TOPICS for key, first in _first_that_differ(warehouse, taken, kind, known).items()
    }
    rejected = warehouse.read("rejected", where=equal("reason", KEY_REUSED)).select("broker_name").distinct()
    reused = {row["broker_name"] for row in rejected.collect()} - {name for each in known for name in each.names[:-1]}
    found = {}
    for before in _brokers({name for name, _, _ in differing} | reused, known):
        cuts = _cuts(warehouse, before, differing)
        begin(warehouse, before, cuts, Begun(at, SOURCE, {}))
        found[lives_of(progress_rows(warehouse), before.broker_name).current] = any(cut.is_below for cut in cuts)
    return found


def _brokers(names: Iterable[str], known: Sequence[Lives]) -> list[Lives]:
    """The brokers that have lives of these names."""
    lives_by_name = {name: each for each in known for name in each.names}
    found = [lives_by_name.get(name, Lives(name)) for name in names]
    return sorted({each.broker_name: each for each in found}.values(), key=lambda each: each.broker_name)


def _first_that_differ(warehouse: Warehouse, taken: Way, kind: str, known: Sequence[Lives]) -> Firsts:
    """By the name of the life that wrote a row."""
    rows = taken.rows(kind)
    if rows is None:
        return {}
    rows, landed = (_with_writer(each, kind, known) for each in (rows, warehouse.read(TABLES[kind])))
    key = _key(kind)
    standing = _standing(landed.join(rows.select(key).distinct(), key, "left_semi"), kind)
    given = rows.select(*key, _identity(rows, kind).alias("given"))
    differ = given.join(standing, key).where(~F.col("given").eqNullSafe(F.col("identity")))
    first = differ.groupBy("writer", "queue_id").agg(F.min("queue_offset").alias("first"))
    return {(row["writer"], row["queue_id"], kind): row["first"] for row in first.collect()}


def _with_writer(rows: DataFrame, kind: str, known: Sequence[Lives]) -> DataFrame:
    """Rows with the name of the life that wrote them: ops have that of their half message's."""
    writer = F.col("broker_name")
    for each in known if kind == "op" else ():
        other = F.col("broker_name").isin(each.names) & F.col("life").isNotNull()
        writer = F.when(other, F.get(F.array(*map(F.lit, each.names)), F.col("life") - 1)).otherwise(writer)
    return rows.withColumn("writer", writer)


def _key(kind: str) -> list[str]:
    return [*_WRITTEN, *(["item"] if kind == "op" else [])]


def _standing(landed: DataFrame, kind: str) -> DataFrame:
    """The `identity` that counts of each key: that of the row which landed first."""
    return landed.groupBy(_key(kind)).agg(F.min_by(_identity(landed, kind), "landed_at").alias("identity"))


def _identity(rows: DataFrame, kind: str) -> Column:
    return F.struct(*[(present(F.col(c)) if c == "uniq_key" else F.col(c)).alias(c) for c in _IDENTITY[kind]])


def _cuts(warehouse: Warehouse, before: Lives, differing: Firsts) -> list[Cut]:
    cuts = []
    for (topic, queue_id), row in progress.of_broker(warehouse, before.current).items():
        for kind, topics in TOPICS.items():
            if topic in topics:
                end = max(row.next_offset or 0, row.highest_offset or 0)
                firsts = [differing[key] for name in before.names if (key := (name, queue_id, kind)) in differing]
                cut = min([*firsts, end])
                agreed = Landed(warehouse, before, kind, queue_id).last_below(cut)
                cuts.append(Cut(topic, queue_id, cut, end, agreed))
    return cuts


# ---- files that have landed before ----


def lands_again(warehouse: Warehouse, taken: Way, lives: Iterable[Lives]) -> bool:
    """Returns whether a file that has landed holds rows of a later life that do not stand: they had reused keys.

    Rows that stand in an earlier life are what the broker lost. Nobody has to know who accepted the life, so a landing
    that was killed after it can be repeated.
    """
    return any(not _new_rows(warehouse, taken, kind, each).isEmpty() for each in lives for kind in TOPICS)


def _new_rows(warehouse: Warehouse, taken: Way, kind: str, lives: Lives) -> DataFrame:
    rows, landed = taken.rows(kind), warehouse.read(TABLES[kind])
    rows = landed.limit(0) if rows is None else rows
    rows, landed = (_with_writer(each, kind, [lives]) for each in (rows, landed))
    standing = _standing(landed.where(F.col("writer").isin(lives.names)), kind).drop("writer")
    given = rows.where(F.col("writer").isin(lives.names[1:])).withColumn("identity", _identity(rows, kind))
    same = [F.col(f"given.{c}").eqNullSafe(F.col(f"standing.{c}")) for c in [*_key(kind)[1:], "identity"]]
    return given.alias("given").join(standing.alias("standing"), same, "left_anti")
