"""Findings that only many messages together show: of a producer group, a half queue, a host that sends, or twins."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.audit import findings as f
from halfop.columns.keys import HALF_KEY, QUEUE, micros, present
from halfop.rocketmq.names import ROCKSDB_QUEUES
from halfop.rules.halves import carries_a_mark
from halfop.rules.settings_columns import RuleColumns, own_immunity

FEWEST = 5  # messages that show something; fewer may be chance
_INTERVALS = 3  # that a check may be late
_SKEW = 1_000_000  # microseconds that two clocks may be apart
_GROUP = ["broker_name", "producer_group"]
_OF_TWIN = ["broker_name", "queue_id", "queue_offset", "producer_group", "real_topic", "born_timestamp"]
_ENDED = ("COMMITTED_AND_DELIVERED", "DELIVERED", "COMMITTED", "ROLLED_BACK", "ENDED")


class Brokers(NamedTuple):
    """The signs of how brokers' own checks go on: the newest record of each log, how far each check is, and how much
    of each queue has been read.
    """

    alive: DataFrame
    checks: DataFrame
    queues: DataFrame


def found_of_groups(
    halves: DataFrame, overview: DataFrame, examined: DataFrame, brokers: Brokers, rules: RuleColumns
) -> DataFrame:
    """Returns findings about groups and half queues."""
    late = _late(halves, overview, examined, brokers.alive, rules)
    standing = _standing(late, brokers.checks, rules)
    unknown = late.where("NOT passed").join(F.broadcast(brokers.checks), QUEUE, "left_anti")
    stuck = _findings(unknown, f.CHECK_STUCK, QUEUE, _late_text("and nothing stored after them was"))
    skipped = _findings(late.where("passed"), f.GROUP_FORGOTTEN, _GROUP, _late_text("though later ones were"))
    answers = _answers(examined)
    by_check = answers.where((F.col("answered") >= FEWEST) & (F.col("prompt") == 0))
    by_check = by_check.join(_ended_at_once(halves, overview, by_check), _GROUP, "left_anti")
    text = f.sentence(F.col("answered"), " transactions ended, each of them only after a check")
    only = _about(by_check, f.COMMIT_ONLY_BY_CHECK, text)
    silent = answers.where((F.col("unanswered") >= FEWEST) & (F.col("answered") == 0))
    silent = silent.join(skipped.select(_GROUP), _GROUP, "left_anti")
    text = f.sentence(F.col("unanswered"), " transactions were put back with a check, none ended")
    return reduce(DataFrame.unionByName, [stuck, standing, skipped, only, _about(silent, f.GROUP_FORGOTTEN, text)])


# ---- what is due and was never put back ----


def _late(
    halves: DataFrame, overview: DataFrame, examined: DataFrame, alive: DataFrame, rules: RuleColumns
) -> DataFrame:
    """Open half messages that should have been put back long ago; `passed`: a later one of their queue was."""
    rows = _open(halves, overview).where(F.col("queue_id") < ROCKSDB_QUEUES)  # of others nothing is put back
    immune = F.greatest(rules.timeout.cast("bigint"), own_immunity(rules.timeout))
    due = micros(F.col("store")) + immune + F.lit(_INTERVALS * rules.check_interval)
    looked_at = examined.where((F.col("copies") > 0) | (F.col("discards") > 0))
    reached = looked_at.groupBy(QUEUE).agg(F.max("queue_offset").alias("reached"))
    rows = rows.join(F.broadcast(alive), "broker_name").where(due <= F.col("alive"))
    rows = rows.join(F.broadcast(reached), QUEUE, "left")
    return rows.withColumn("passed", F.coalesce(F.col("queue_offset") < F.col("reached"), F.lit(False)))


def _open(halves: DataFrame, overview: DataFrame) -> DataFrame:
    waiting = overview.where("fate = 'OPEN' AND half > 0").select(HALF_KEY)
    return halves.join(waiting, HALF_KEY, "left_semi").dropDuplicates(HALF_KEY)


def forgotten(halves: DataFrame, overview: DataFrame, brokers: Brokers, rules: RuleColumns) -> DataFrame:
    """Returns the open transactions that their broker keeps in RocksDB and has forgotten."""
    rows = _open(halves, overview).join(brokers.queues, QUEUE)
    found = rows.where(F.col("known") >= rules.forgotten_at(own_immunity(rules.timeout), "store"))
    about = ("broker_name", "queue_id", "queue_offset", "uniq_key", "producer_group", "real_topic", "born_timestamp")
    text = f.sentence("stored at ", F.col("store"), ", asked about as often as its broker does, and nothing ended it")
    cells = {name: F.col(name) for name in about} | {"half_offsets": F.array("queue_offset"), "detail": text}
    return found.select(*f.row(finding=F.lit(f.FORGOTTEN_BY_BROKER), **cells))


def _standing(late: DataFrame, checks: DataFrame, rules: RuleColumns) -> DataFrame:
    """Half queues in which the broker's own check has stood still, with messages due that it has not reached."""
    rows = late.join(F.broadcast(checks), QUEUE).where(F.col("queue_offset") >= F.col("check_offset"))
    long_since = micros(F.col("check_since")) + F.lit(_INTERVALS * rules.check_interval) <= F.col("alive")
    found = rows.where(long_since).groupBy(*QUEUE, "check_offset", "check_since").agg(*_number_and_first())
    stands = ("the broker's check stands at offset ", F.col("check_offset"), " since ", F.col("check_since"))
    due = (", and ", F.col("n"), " open messages from there on are due")
    return _about(found, f.CHECK_STUCK, f.sentence(*stands, *due))


def alive_until(halves: DataFrame, ops: DataFrame, finals: DataFrame) -> DataFrame:
    """Returns when each broker stored its newest record."""
    newest = F.max(micros(F.col("store"))).alias("alive")
    each = [halves, ops, finals.withColumnRenamed("final_broker", "broker_name")]
    rows = reduce(DataFrame.unionByName, [rows.groupBy("broker_name").agg(newest) for rows in each])
    return rows.groupBy("broker_name").agg(F.max("alive").alias("alive"))


def _late_text(other: str) -> Column:
    late = f" open messages were never put back, {other}; the oldest was stored at "
    return f.sentence(F.col("n"), late, F.col("oldest"))


def _findings(rows: DataFrame, name: str, by: list[str], text: Column) -> DataFrame:
    found = rows.groupBy(by).agg(*_number_and_first(), F.min("store").alias("oldest"))
    return _about(found.where(F.col("n") >= FEWEST), name, text)


def _number_and_first() -> list[Column]:
    return [F.count("*").alias("n"), F.min(F.struct("queue_id", "queue_offset")).alias("first")]


# ---- what became of those that were asked about ----


def _answers(examined: DataFrame) -> DataFrame:
    rows = examined.where("producer_group IS NOT NULL AND queue_offset IS NOT NULL")
    return rows.groupBy(_GROUP).agg(
        F.count_if(F.col("ended") & F.col("answers")).alias("answered"),
        F.count_if(F.col("ended") & ~F.col("answers")).alias("prompt"),
        F.count_if(~F.col("ended") & (F.col("checks") > 0)).alias("unanswered"),
        F.min(F.struct("queue_id", "queue_offset")).alias("first"),
    )


def _ended_at_once(halves: DataFrame, overview: DataFrame, groups: DataFrame) -> DataFrame:
    """Groups that have a transaction which ended without ever being put back."""
    ended = overview.where(F.col("fate").isin(*_ENDED)).select(HALF_KEY)
    mine = halves.join(F.broadcast(groups.select(_GROUP)), _GROUP, "left_semi")
    return mine.join(ended, HALF_KEY, "left_semi").select(_GROUP).distinct()


# ---- hosts ----


def found_of_hosts(rows: DataFrame) -> DataFrame:
    """Returns findings about the hosts that have sent half messages; `rows` are those of half_messages."""
    host = F.regexp_replace("born_host", r":\d+$", "")
    originals = rows.where(~carries_a_mark(rows) & F.col("born_host").isNotNull())
    sent = originals.groupBy(
        "broker_name",
        present(F.col("producer_group")).alias("producer_group"),
        present(F.col("real_topic")).alias("real_topic"),
        host.alias("host"),
    ).agg(
        *_number_and_first(),
        F.min(micros(F.col("store_timestamp")) - micros(F.col("born_timestamp"))).alias("least"),
        F.min("store_timestamp").alias("since"),
        F.max("store_timestamp").alias("until"),
    )
    return _mixed(sent).unionByName(_skewed(sent))


def _mixed(sent: DataFrame) -> DataFrame:
    """Groups with two topics at the same time that no host sends to both."""
    named = sent.where("producer_group IS NOT NULL AND real_topic IS NOT NULL")
    sums = [F.sum("n").alias("n"), F.min("since").alias("since"), F.max("until").alias("until")]
    hosts = F.array_sort(F.collect_set("host")).alias("hosts")
    topics = named.groupBy(*_GROUP, "real_topic").agg(hosts, *sums, F.min("first").alias("first"))
    topic = F.struct("real_topic", "hosts", "n", "since", "until")
    groups = topics.where(F.col("n") >= FEWEST).groupBy(_GROUP)
    rows = groups.agg(F.array_sort(F.collect_list(topic)).alias("topics"), F.min("first").alias("first"))

    def apart(one: Column, other: Column) -> Column:
        together = (one["since"] <= other["until"]) & (other["since"] <= one["until"])
        return together & ~F.arrays_overlap(one["hosts"], other["hosts"])

    is_mixed = F.exists("topics", lambda one: F.exists("topics", lambda other: apart(one, other)))
    each = F.transform("topics", lambda t: f.sentence(t["real_topic"], " by ", F.array_join(t["hosts"], ", ")))
    return _about(rows.where(is_mixed), f.MIXED_GROUP, f.sentence("topics ", F.array_join(each, "; ")))


def _skewed(sent: DataFrame) -> DataFrame:
    """Hosts whose messages are stored before they are born, or all of them long after."""
    sums = [F.sum("n").alias("n"), F.min("least").alias("least"), F.min("first").alias("first")]
    rows = sent.groupBy("broker_name", "host").agg(*sums)
    behind = (F.col("least") >= _SKEW) & (F.col("n") >= FEWEST)
    rows = rows.where(behind | (F.col("least") <= -_SKEW))
    way = F.when(F.col("least") > 0, "behind").otherwise("ahead of")
    clock = ("the clock of ", F.col("host"), " is ", F.abs("least") / F.lit(1e6), " s or more ", way)
    return _about(rows, f.CLOCK_SKEW, f.sentence(*clock, " the broker's, by ", F.col("n"), " messages"))


# ---- twins ----


def twins(halves: DataFrame, overview: DataFrame) -> DataFrame:
    """Returns the half messages that are no copies and share a UNIQ_KEY, on whatever broker."""
    keys = overview.where(F.col("key").isNotNull()).groupBy("key").agg(F.count("*").alias("n")).where("n > 1")
    rows = halves.where(~F.col("marked")).withColumn("key", F.xxhash64("uniq_key"))
    rows = rows.join(keys, "key", "left_semi").where(F.col("uniq_key").isNotNull()).dropDuplicates(HALF_KEY)
    one = F.struct(*_OF_TWIN, "escaped", "landed_under")
    found = rows.groupBy("uniq_key").agg(F.sort_array(F.collect_list(one)).alias("twins"))
    found = found.withColumn("twins", F.filter("twins", lambda m: ~_is_an_escape(m))).where(F.size("twins") > 1)
    twin = F.get("twins", F.lit(0))
    place = F.transform("twins", lambda m: F.concat_ws("/", m["landed_under"], m["queue_id"], m["queue_offset"]))
    return found.select(
        *f.row(
            finding=F.lit(f.TWINS),
            half_offsets=F.transform("twins", lambda m: m["queue_offset"]),
            detail=f.sentence("half messages ", F.array_join(place, ", ")),
            uniq_key=F.col("uniq_key"),
            **{c: twin[c] for c in _OF_TWIN},
        )
    )


def _is_an_escape(half: Column) -> Column:
    """Returns whether another broker has the half message of which this one is a copy."""

    def is_original(other: Column) -> Column:
        same = [other[c].eqNullSafe(half[c]) for c in ("producer_group", "born_timestamp")]
        return (other["broker_name"] != half["broker_name"]) & same[0] & same[1]

    return half["escaped"] & F.exists("twins", is_original)


# ---- rows of the table ----


def _about(rows: DataFrame, name: str, text: Column) -> DataFrame:
    """A row a finding: its place is the first message that it is about."""
    cells = {c: F.col(c) for c in ("broker_name", "producer_group") if c in rows.columns}
    place = {c: F.col("first")[c] for c in ("queue_id", "queue_offset")}
    offsets = F.array(place["queue_offset"])
    return rows.select(*f.row(finding=F.lit(name), **cells, **place, half_offsets=offsets, detail=text))
