"""Put-back copies: which half messages are one transaction, which of them is the live one, what a broker gave up.

A transaction's rows in, one row a transaction out: the live copy with what all copies know. `members` are half messages
in the order of their offsets; a member whose state is SUPERSEDED only points to the transaction that it belongs to.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, QUEUE
from halfop.rules import halves as h
from halfop.rules.words import RuleColumns

KIN = "kin"
_AGREEING = ["broker_name", "producer_group", "uniq_key", "born_timestamp"]


def kin() -> Column:
    """What the copies of one message agree in; nulls are equal here."""
    return F.struct(*_AGREEING)


def transactions(rows: DataFrame, discards: DataFrame) -> DataFrame:
    """Half messages, one a key, by transaction.

    `discards` are the broker's, one row each: `gone_at`, and whether an earlier run has `seen` it. A message that is no
    copy starts a transaction, and so does the first of copies whose original has not landed. A copy belongs to the
    nearest start below it.
    """
    rows = rows.withColumn("all_copies", h.own_copies())
    columns = [c for c in rows.columns if c != "queue_offset"]
    first = F.array_min(F.transform("all_copies", lambda c: c["queue_offset"]))
    pointer = (F.col("state") == h.SUPERSEDED) | ((F.col("state") == h.DISCARDED) & _taken_over())
    below = Window.partitionBy(KIN, "queue_id").orderBy("first", "pointer", "queue_offset")
    starts = (~F.col("marked") & ~F.col("pointer")).cast("int")
    numbered = rows.withColumn(KIN, kin()).withColumns({"first": first, "pointer": pointer})
    numbered = numbered.withColumn("nth", F.sum(starts).over(below))
    member = F.struct("queue_offset", *columns)
    grouped = numbered.groupBy(KIN, "queue_id", "nth").agg(F.sort_array(F.collect_list(member)).alias("members"))
    instants = F.sort_array(F.collect_list("gone_at")).alias("gone")
    gone = discards.groupBy(KIN).agg(instants, F.count_if("seen").alias("seen"))
    return _resolved(grouped.join(gone, KIN, "left"))


def _taken_over() -> Column:
    """What was given up, where the broker has resumed its transaction: a later copy's row knows of it."""
    kinsfolk = F.collect_list(F.struct("queue_offset", "all_copies")).over(Window.partitionBy(KIN, "queue_id"))
    return F.exists(kinsfolk, lambda m: takes_over(m["queue_offset"], m["all_copies"], F.col("queue_offset")))


def takes_over(newer: Column, copies: Column, offset: Column) -> Column:
    """Whether the row of a copy at `newer` knows of an older one at `offset`."""
    return (newer > offset) & F.exists(copies, lambda c: c["queue_offset"] == offset)


def _resolved(grouped: DataFrame) -> DataFrame:
    """With `ended`, `discarded`, `resume` and `live`, each a member or null, and `open`, `alive`, arrays of them."""
    found = grouped.withColumns({"open": _in(h.NEW, h.OPEN), "ended": _last(_in(h.ENDED))})
    was_open = F.exists("open", lambda m: m["state"] == h.OPEN)
    found = found.withColumn("discarded", F.when(~was_open, _last(_in(h.DISCARDED))))
    found = found.withColumn("resume", _resume())
    after_resume = F.filter("open", lambda m: m["queue_offset"] >= F.col("resume")["queue_offset"])
    closed = F.col("ended").isNotNull() | F.col("discarded").isNotNull()
    alive = F.when(F.col("ended").isNull() & F.col("resume").isNotNull(), after_resume).when(~closed, F.col("open"))
    found = found.withColumn("alive", alive).withColumn("live", _last(F.col("alive")))
    standing = F.coalesce("live", "ended", "discarded", _last(_in(h.SUPERSEDED)), _last(_in(h.REJECTED)))
    return found.withColumn("standing", standing)


def _in(*states: str) -> Column:
    return F.filter("members", lambda m: m["state"].isin(*states))


def _last(members: Column) -> Column:
    return F.try_element_at(members, F.lit(-1))


def _resume() -> Column:
    """The broker's own resume: a copy above all that was known, with check times 0, of what had been given up.

    None that was written before the transaction was resumed otherwise, however late it lands.
    """
    known = F.transform(F.filter("members", lambda m: m["state"] != h.NEW), _highest)
    highest, revived = F.coalesce(F.array_max(known), F.lit(-1)), _most(_in(h.OPEN, h.DISCARDED), "resumed_at")

    def resumes(m: Column) -> Column:
        gone = F.exists("gone", lambda at: at <= m["store_timestamp"])
        given_up = F.col("discarded").isNotNull() | F.coalesce(gone, F.lit(False))
        latest = revived.isNull() | (m["store_timestamp"] > revived)
        return (m["state"] == h.NEW) & m["resume_mark"] & (m["queue_offset"] > highest) & given_up & latest

    return _last(F.filter("members", resumes))


def _highest(member: Column) -> Column:
    return F.array_max(F.transform(member["all_copies"], lambda c: c["queue_offset"]))


def standing(found: DataFrame) -> DataFrame:
    """One row a transaction in the form of a half message; `gone`: when the broker discarded it, or a twin of it."""
    row, live = F.col("standing"), F.col("live").isNotNull()
    resumed = F.coalesce(F.col("resume")["store_timestamp"], _most("alive", "resumed_at"))
    made = {
        "check_times": F.when(live, _most("counting", "check_times")).otherwise(row["check_times"]),
        "last_checked_at": F.when(live, _most("counting", "last_checked_at")).otherwise(row["last_checked_at"]),
        "resumed_at": F.when(live, resumed).otherwise(row["resumed_at"]),
        "copies": F.when(F.size(_copies()) > 1, _copies()),
        "marked": ~F.exists("members", _is_start),
        "extras": F.flatten(F.filter(F.transform("members", lambda m: m["extras"]), lambda e: e.isNotNull())),
    }
    rows = found.withColumn("counting", _counting())
    kept = [row[c].alias(c) for c in h.COLUMNS if c not in made]
    starter = F.array_min(F.transform(_copies(), lambda c: c["queue_offset"])).alias("starter")
    return rows.select(*kept, *[column.alias(name) for name, column in made.items()], KIN, starter, "gone", "seen")


def given_up(rows: DataFrame, ending: DataFrame, spent: DataFrame | None) -> DataFrame:
    """With `given_up` where the broker has discarded a transaction that is not among those `ending` by this run.

    A record names no offset: of twins each takes one, the lowest first, of those that earlier runs have not `spent` on
    another of them. What came before a resume no longer counts.
    """
    rows = rows.join(ending.withColumn("ends", F.lit(True)), HALF_KEY, "left")
    others = F.lit(0)
    if spent is not None:
        rows = rows.join(spent, KIN, "left")
        others = F.coalesce(F.size(F.filter("spent", lambda key: ~_is_mine(key))), F.lit(0))
    reopened = (F.col("state") == h.DISCARDED) & F.col("asked_for").isNotNull()
    revived = F.when(reopened, F.col("asked_for")).otherwise(F.col("resumed_at"))
    open_still = (F.col("state").isin(h.NEW, h.OPEN) | reopened) & F.col("ends").isNull() & h.undeliverable().isNull()
    unspent = F.slice("gone", (F.least(others, "seen") + 1).cast("int"), F.size("gone"))
    about_it = F.size(F.filter(unspent, lambda at: revived.isNull() | (at > revived)))
    rows = rows.withColumn("about_it", F.when(open_still, F.coalesce(about_it, F.lit(0))).otherwise(0))
    place = F.row_number().over(Window.partitionBy(KIN).orderBy(F.col("about_it") == 0, "starter", "queue_id"))
    rows = rows.withColumn("given_up", place <= F.col("about_it"))
    return rows.select(*h.COLUMNS, "extras", "given_up")


def _is_mine(key: Column) -> Column:
    copy = F.exists(h.own_copies(), lambda c: c["queue_offset"] == key["queue_offset"])
    return (key["queue_id"] == F.col("queue_id")) & copy


def _most(members: Column | str, field: str) -> Column:
    return F.array_max(F.transform(members, lambda m: m[field]))


def _counting() -> Column:
    """A copy that lands behind a resume and was stored before it tells of questions that count no more."""
    revived = _most("alive", "resumed_at")

    def counts(m: Column) -> Column:
        known = (m["state"] == h.OPEN) | F.col("resume").isNotNull() | revived.isNull()
        return known | (m["store_timestamp"] > revived)

    return F.filter("alive", counts)


def _is_start(m: Column) -> Column:
    return ~m["marked"] & (m["state"] != h.SUPERSEDED)


def _copies() -> Column:
    return F.array_sort(F.array_distinct(F.flatten(F.transform("members", lambda m: m["all_copies"]))))


def superseded(found: DataFrame, rules: RuleColumns) -> DataFrame:
    """The decision rows of copies that are not, or no longer, the live one."""
    standing_offset = F.col("standing")["queue_offset"]
    others = F.filter("open", lambda m: F.col("live").isNull() | (m["queue_offset"] < F.col("live")["queue_offset"]))
    late = F.when(F.col("live").isNull(), "ALREADY_ENDED")
    rows = found.select(
        F.explode(others).alias("m"),
        standing_offset.alias("superseded_by"),
        late.alias("reason"),
        F.lit("SUPERSEDED").alias("decision"),
        F.lit(False).alias("open"),
        F.lit(rules.now).alias("decided_at"),
    )
    own = [c for c in h.COLUMNS if c not in ("decision", "reason", "copies", "marked")]
    return rows.select(*[c for c in rows.columns if c != "m"], *[F.col("m")[c].alias(c) for c in own])


def copy_map(found: DataFrame) -> DataFrame:
    """Every copy's half key, the offset `stands_at` of the row that stands for it, and what `copy` it is."""
    offset = F.col("standing")["queue_offset"]
    rows = found.select(
        F.col(KIN)["broker_name"].alias("broker_name"), "queue_id", offset.alias("stands_at"), "members"
    )
    rows = rows.withColumn("copy", F.explode(_copies())).drop("members")
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
