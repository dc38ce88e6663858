"""Put-back copies in frames: the transactions of half messages that may be copies, and what follows for each row.

`resolve` has the rules; it runs in Python workers, over the few half messages that this concerns.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from halfop.columns.keys import HALF_KEY, QUEUE
from halfop.rules import halves as h
from halfop.rules import kins
from halfop.rules.questions import PENDING, of_copies
from halfop.rules.settings_columns import RuleColumns

KIN = "kin"
_AGREEING = ["broker_name", "producer_group", "uniq_key", "born_timestamp"]


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
    member = F.struct(
        "queue_id", "queue_offset", *[c for c in members.columns if c not in ("queue_id", "queue_offset")]
    )
    both = members.select(kin().alias(KIN), member.alias("member")).unionByName(discards, allowMissingColumns=True)
    grouped = both.groupBy(KIN).agg(
        F.sort_array(F.collect_list("member")).alias("members"),
        F.sort_array(F.collect_list("discarded_at")).alias("discard_times"),
        F.count_if("seen").alias("seen"),
    )
    fields = [F.col("members")[c] for c in ("queue_id", *kins.MEMBER)]
    found = grouped.withColumn(
        "known", F.explode(_in_worker(kins.resolved, kins.TRANSACTIONS, *fields, "discard_times"))
    )
    return found.select(
        KIN,
        "known",
        F.get("members", F.col("known.standing")).alias("standing"),
        _at(F.col("known.superseded")).alias("superseded"),
        _extras().alias("extras"),
        "discard_times",
        "seen",
    )


def _in_worker(function: Callable[..., pa.Array], gives: str, *columns: Column | str) -> Column:
    """The function's answer over Arrow columns, in Python workers."""
    udf = arrow_udf(function, gives)  # type: ignore[call-overload]
    column: Column = udf(*columns)
    return column


def _at(places: Column) -> Column:
    """The members at these places."""
    return F.transform(places, lambda place: F.get("members", place))


def _extras() -> Column:
    """Rows of other messages that landed under a key of the transaction."""
    extras = F.transform("known.members", lambda place: F.get("members", place)["extras"])
    return F.flatten(F.filter(extras, lambda each: each.isNotNull()))


def takes_over(newer: Column, copies: Column, offset: Column) -> Column:
    """Returns whether the row of a copy at `newer` knows of an older one at `offset`."""
    return (newer > offset) & F.exists(copies, lambda c: c["queue_offset"] == offset)


def standing(found: DataFrame) -> DataFrame:
    """One row a transaction in the form of a half message; `discard_times`: when it, or a twin of it, was discarded."""
    known, row = F.col("known"), F.col("standing")
    made = {c: known[c] for c in ("check_times", "last_checked_at", "resumed_at", "marked")}
    made[PENDING] = of_copies(row, F.col("superseded"))
    made["copies"] = F.when(F.size(known["copies"]) > 1, known["copies"])
    columns = [made.get(c, row[c]).alias(c) for c in h.COLUMNS]
    starter = F.element_at(known["copies"], 1)["queue_offset"].alias("starter")
    return found.select(*columns, "extras", KIN, starter, "discard_times", "seen")


def given_up(rows: DataFrame, ending: DataFrame, spent: DataFrame | None) -> DataFrame:
    """Returns rows with `given_up`: whether the broker has discarded a transaction that is not `ending` by this run.

    `spent`: the half keys of what earlier runs have given up, by kin.
    """
    rows = rows.join(ending.withColumn("ends", F.lit(True)), HALF_KEY, "left")
    others = F.lit(0)
    if spent is not None:
        rows = rows.join(spent, KIN, "left")
        others = F.coalesce(F.size(F.filter("spent", lambda key: ~_is_mine(key))), F.lit(0))
    reopened = (F.col("state") == h.DISCARDED) & F.col("asked_for").isNotNull()
    revived = F.when(reopened, F.col("asked_for")).otherwise(F.col("resumed_at"))
    open_still = (F.col("state").isin(h.NEW, h.OPEN) | reopened) & F.col("ends").isNull() & h.undeliverable().isNull()
    row = F.struct(
        *h.COLUMNS, "extras", "starter", others.alias("others"), revived.alias("revived"), open_still.alias("open")
    )
    grouped = rows.groupBy(KIN).agg(
        F.collect_list(row).alias("rows"), *[F.first(c).alias(c) for c in ("discard_times", "seen")]
    )
    candidates = [F.col("rows")[c] for c in ("starter", "queue_id", "open", "revived", "others")]
    both = F.arrays_zip(
        "rows", _in_worker(kins.with_given_up, "ARRAY<BOOLEAN>", *candidates, "discard_times", "seen").alias("given_up")
    )
    found = grouped.select(F.explode(both).alias("each"))
    return found.select(*[F.col("each.rows")[c].alias(c) for c in (*h.COLUMNS, "extras")], F.col("each.given_up"))


def _is_mine(key: Column) -> Column:
    copy = F.exists(h.own_copies(), lambda c: c["queue_offset"] == key["queue_offset"])
    return (key["queue_id"] == F.col("queue_id")) & copy


def superseded(found: DataFrame, rules: RuleColumns) -> DataFrame:
    """The decision rows of copies that are not, or no longer, the live one."""
    rows = found.select(
        F.explode("superseded").alias("m"),
        F.col("standing.queue_offset").alias("superseded_by"),
        F.when(~F.col("known.alive"), "ALREADY_ENDED").alias("reason"),
        F.lit("SUPERSEDED").alias("decision"),
        F.lit(False).alias("open"),
        F.lit(rules.now).alias("decided_at"),
    )
    own = [c for c in h.COLUMNS if c not in ("decision", "reason", "copies", "marked", PENDING)]
    return rows.select(*[c for c in rows.columns if c != "m"], *[F.col("m")[c].alias(c) for c in own])


def copy_map(found: DataFrame) -> DataFrame:
    """Every copy's half key, the offset `stands_at` of the row that stands for it, and what `copy` it is."""
    row = F.col("standing")
    own = [row[c].alias(c) for c in QUEUE] + [row["queue_offset"].alias("stands_at")]
    rows = found.select(*own, F.explode("known.copies").alias("copy"))
    return rows.select(*QUEUE, F.col("copy")["queue_offset"].alias("queue_offset"), "stands_at", "copy")


def renamed(named: DataFrame, found: DataFrame) -> DataFrame:
    """Ops under the half key of the row that stands for the copy that each names."""
    rows = named.join(copy_map(found), HALF_KEY, "left")
    elsewhere = F.col("stands_at") != F.col("queue_offset")
    op = F.col("op")
    for field, of in (
        ("copy_offset", "queue_offset"),
        ("copy_log_offset", "commit_log_offset"),
        ("copy_landed_at", "landed_at"),
    ):
        op = op.withField(field, F.when(elsewhere, F.col("copy")[of]))
    moved = {"op": op, "queue_offset": F.coalesce("stands_at", "queue_offset")}
    return rows.withColumns(moved).drop("stands_at", "copy")
