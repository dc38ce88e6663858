"""Put-back copies in frames: the transactions of half messages that may be copies, and what follows for each row.

`resolve` has the rules; it runs in Python workers, over the few half messages that this concerns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from halfop.columns.keys import HALF_KEY, QUEUE, made_of
from halfop.rules import halves as h
from halfop.rules import kins
from halfop.rules import ops as o
from halfop.rules.questions import PENDING, of_copies
from halfop.rules.reasons import Reason
from halfop.rules.settings_columns import RuleColumns

KIN = "kin"
# Columns of decisions with the place of a copy in another queue.
PLACE = {"broker": "broker_name", "queue": "queue_id"}
_CARRIED = [*h.COLUMNS, "extras", "earlier"]
_AGREEING = ["producer_group", "uniq_key", "born_timestamp"]


def kin() -> Column:
    """The columns in which the copies of one message agree; nulls are equal here."""
    return F.struct(*_AGREEING)


def transactions(rows: DataFrame, discards: DataFrame) -> DataFrame:
    """Half messages, one a key, by transaction: see `resolve`.

    `discards` are the broker's, one row each: KIN, `discarded_at`, and whether an earlier run has `seen` it. The
    transaction has `known`, what all its copies know; `standing`, the row that stands for it; `superseded`, the rows
    of its other open copies; and its kin's discards, `discard_times` and `seen`.
    """
    members = rows.withColumn("copies", h.own_copies())
    key = [*QUEUE, "queue_offset"]
    member = F.struct(*key, *[c for c in members.columns if c not in key])
    both = members.select(kin().alias(KIN), member.alias("member")).unionByName(discards, allowMissingColumns=True)
    grouped = both.groupBy(KIN).agg(
        F.sort_array(F.collect_list("member")).alias("members"),
        F.sort_array(F.collect_list("discarded_at")).alias("discard_times"),
        F.count_if("seen").alias("seen"),
    )
    fields = [F.col("members")[c] for c in kins.MEMBER]
    found = _with_answer(
        grouped, kins.resolved, pa.field("known", pa.list_(kins.TRANSACTION)), *fields, F.col("discard_times")
    )
    return found.withColumn("known", F.explode("known")).select(
        KIN,
        "known",
        F.get("members", F.col("known.standing")).alias("standing"),
        _at(F.col("known.superseded")).alias("superseded"),
        _extras().alias("extras"),
        _earlier().alias("earlier"),
        "discard_times",
        "seen",
    )


def _with_answer(
    rows: DataFrame, function: Callable[..., pa.Array], gives: tuple[str, pa.DataType], *given: Column
) -> DataFrame:
    """Rows with a column more: the function's answer over Arrow columns, in Python workers."""
    names = [f"given_{n}" for n in range(len(given))]
    kept, answer = rows.schema, from_arrow_schema(pa.schema([gives]))

    def answered(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        columns = [*batch.select(kept.names), function(*batch.select(names))]
        yield pa.RecordBatch.from_arrays(columns, names=[*kept.names, *answer.names])

    named = [column.alias(name) for column, name in zip(given, names, strict=True)]
    return made_of(rows.select("*", *named), answered, StructType([*kept, *answer]))


def _at(places: Column) -> Column:
    """The members at these places."""
    return F.transform(places, lambda place: F.get("members", place))


def _extras() -> Column:
    """Rows of other messages that landed under a key of the transaction."""
    extras = F.transform("known.members", lambda place: F.get("members", place)["extras"])
    return F.flatten(F.filter(extras, lambda each: each.isNotNull()))


def _earlier() -> Column:
    """The copies that an earlier run knew."""
    members = _at(F.col("known.members"))
    known = F.filter(members, lambda row: row["state"].isin(h.OPEN, h.DISCARDED, h.ENDED, h.SUPERSEDED))
    return F.flatten(F.transform(known, lambda row: row["copies"]))


def takes_over(newer: Column, older: Column) -> Column:
    """Returns whether the row of a copy knows of an older one, or of one of another broker."""
    elsewhere = ~_same(newer, older, QUEUE)
    return (elsewhere | (newer["queue_offset"] > older["queue_offset"])) & knows(newer["copies"], older)


def knows(copies: Column, key: Column) -> Column:
    """Returns whether one of the copies has that half key."""
    return F.exists(copies, lambda copy: _same(copy, key, HALF_KEY))


def _same(one: Column, other: Column, columns: list[str]) -> Column:
    return reduce(lambda a, b: a & b, [one[c] == other[c] for c in columns])


def standing(found: DataFrame) -> DataFrame:
    """One row a transaction in the form of a half message; `discard_times`: when it, or a twin of it, was discarded."""
    known, row = F.col("known"), F.col("standing")
    made = {c: known[c] for c in ("check_times", "last_checked_at", "resumed_at", "marked", "escaped")}
    made[PENDING] = of_copies(row, F.col("superseded"), known["resumed"])
    made["copies"] = F.when(F.size(known["copies"]) > 1, known["copies"])
    columns = [made.get(c, row[c]).alias(c) for c in h.COLUMNS]
    starter = F.element_at(known["copies"], 1)["queue_offset"].alias("starter")
    return found.select(*columns, "extras", "earlier", KIN, starter, "discard_times", "seen")


def given_up(rows: DataFrame, ending: DataFrame, spent: DataFrame | None) -> DataFrame:
    """Returns rows with `given_up`: whether the broker has discarded a transaction that is not `ending` by this run.

    `spent`: the half keys of what earlier runs have given up, by kin.
    """
    rows = rows.join(ending.withColumn("ends", F.lit(True)), HALF_KEY, "left")
    others = F.lit(0)
    if spent is not None:
        rows = rows.join(spent, KIN, "left")
        others = F.coalesce(F.size(F.filter("spent", lambda key: ~knows(h.own_copies(), key))), F.lit(0))
    reopened = (F.col("state") == h.DISCARDED) & F.col("asked_for").isNotNull()
    revived = F.when(reopened, F.col("asked_for")).otherwise(F.col("resumed_at"))
    open_still = (F.col("state").isin(h.NEW, h.OPEN) | reopened) & F.col("ends").isNull() & h.undeliverable().isNull()
    more = [others.alias("others"), revived.alias("revived"), open_still.alias("open")]
    row = F.struct(*_CARRIED, "starter", *more)
    grouped = rows.groupBy(KIN).agg(
        F.collect_list(row).alias("rows"), *[F.first(c).alias(c) for c in ("discard_times", "seen")]
    )
    candidates = [F.col("rows")[c] for c in ("starter", *QUEUE, "open", "revived", "others")]
    counted = [F.col(c) for c in ("discard_times", "seen")]
    both = _with_answer(grouped, kins.with_given_up, pa.field("given_up", pa.list_(pa.bool_())), *candidates, *counted)
    found = both.select(F.explode(F.arrays_zip("rows", "given_up")).alias("each"))
    return found.select(*[F.col("each.rows")[c].alias(c) for c in _CARRIED], F.col("each.given_up"))


def superseded(found: DataFrame, rules: RuleColumns) -> DataFrame:
    """The decision rows of copies that are not, or no longer, the live one."""
    rows = found.select(
        F.explode("superseded").alias("m"),
        F.col("standing").alias("by"),
        F.col("standing.queue_offset").alias("superseded_by"),
        F.when(~F.col("known.alive"), Reason.ALREADY_ENDED.name).alias("reason"),
        F.lit("SUPERSEDED").alias("decision"),
        F.lit(False).alias("open"),
        F.lit(rules.now).alias("decided_at"),
    )
    own = [c for c in h.COLUMNS if c not in ("decision", "copies", "marked", "escaped", PENDING)]
    rows = rows.select(*[c for c in rows.columns if c != "m"], *[F.col("m")[c].alias(c) for c in own])
    here = reduce(lambda a, b: a & b, [F.col("by")[c] == F.col(c) for c in QUEUE])
    places = {f"superseded_by_{name}": F.when(~here, F.col("by")[c]) for name, c in PLACE.items()}
    return rows.withColumns(places).drop("by")


def copy_map(found: DataFrame) -> DataFrame:
    """Every copy's half key, the key `stands_at` of the row that stands for it, and what `copy` it is."""
    row = F.col("standing")
    own = F.struct(*[row[c].alias(c) for c in HALF_KEY]).alias("stands_at")
    rows = found.select(own, F.explode("known.copies").alias("copy"))
    return rows.select(*[F.col("copy")[c].alias(c) for c in HALF_KEY], "stands_at", "copy")


def at_standing(rows: DataFrame) -> DataFrame:
    """Rows that were joined with `copy_map` under the key of the row that stands."""
    moved = {c: F.coalesce(F.col("stands_at")[c], F.col(c)) for c in HALF_KEY}
    return rows.withColumns(moved).drop("stands_at")


def renamed(named: DataFrame, found: DataFrame) -> DataFrame:
    """Ops under the half key of the row that stands for the copy that each names."""
    rows = named.join(copy_map(found), HALF_KEY, "left")
    op = F.col("op")
    for field, value in o.of_copy(F.col("copy"), F.col("stands_at")).items():
        op = op.withField(field, value)
    return at_standing(rows.withColumn("op", op)).drop("copy")
