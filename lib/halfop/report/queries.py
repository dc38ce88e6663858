"""The queries of a report, worked out by Spark: whatever the tables hold, a bounded number of rows comes back.

`decisions` has the history of all runs. The queries read a window of the newest runs, by literal run ids:
Delta skips the files of other runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, millis
from halfop.frame.units import EPOCH
from halfop.rules.reasons import Reason
from halfop.runs.standing import RESUMED, standing_discards, written_discards
from halfop.warehouse.schema import REJECTED, VALUE_ERROR
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import all_of, between, equal

TOP = 12
MOST_DISCARDS = 20
MOST_REJECTS = 10  # a reason
MOST_OPEN = 10
MOST_HANGING = 10_000
LONGEST = 300  # characters of a value; producers may write more
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
AGES = (
    (0, "born in the future"),
    (_MINUTE, "under 1 minute"),
    (10 * _MINUTE, "1 to 10 minutes"),
    (_HOUR, "10 minutes to 1 hour"),
    (6 * _HOUR, "1 to 6 hours"),
    (_DAY, "6 hours to 1 day"),
    (3 * _DAY, "1 to 3 days"),
)
_MESSAGE = [*HALF_KEY, "decision", "reason", "check_times"]
Rows = list[Row]
Results = dict[str, Rows]


def at(number: int) -> datetime:
    """Returns the instant of a number of `millis`."""
    return EPOCH + timedelta(milliseconds=number)


def _short(column: str) -> Column:
    return F.substring(column, 1, LONGEST).alias(column)


def _texts() -> list[Column]:
    return [_short("producer_group"), _short("real_topic")]


def _top(rows: DataFrame, name: str, by: Column) -> DataFrame:
    return rows.orderBy(by.desc(), name).limit(TOP).withColumn(name, _short(name))


def _age() -> Column:
    return F.unix_millis("decided_at") - F.unix_millis("born_timestamp")


def _asked() -> Column:
    return F.coalesce(F.col("check_times") > 0, F.lit(False))


def _age_place() -> Column:
    """A row's place in AGES; one beyond for the oldest, -1 if the born time is not known."""
    place = F.when(_age().isNull(), -1)
    for n, (below, _) in enumerate(AGES):
        place = place.when(_age() < below, n)
    return place.otherwise(len(AGES))


@dataclass(frozen=True)
class Queries:
    """The queries of a report, each with a bounded result; one query gives all results that come from the same rows.

    They look at the runs from `first` to `planned`, the last that has decided; `per_column` share a column of a plot.
    `since`: when the first of them opened, None for all of time.
    """

    warehouse: Warehouse
    first: int
    planned: int
    per_column: int
    since: datetime | None

    @property
    def all(self) -> list[Callable[[], Results]]:
        return [self.states, self.oldest, self.groups, self.latency, self.topics, self.discards, self.rejects]

    @cached_property
    def _decisions(self) -> DataFrame:
        """Decisions of the runs that are looked at."""
        return self.warehouse.read("decisions", where=between("run_id", self.first, self.planned))

    @cached_property
    def _open(self) -> DataFrame:
        """The open set that the last run with a plan carries to the next."""
        last = all_of(equal("open", True), equal("run_id", self.planned))
        return self.warehouse.read("decisions", where=last)

    @property
    def _open_messages(self) -> DataFrame:
        return self._open.where(F.col("decision") != "EARLY_OP")

    def _ended(self, *decisions: str) -> DataFrame:
        return self._decisions.where(~F.col("open") & F.col("decision").isin(*decisions))

    # ---- open ----

    def states(self) -> Results:
        """Returns open rows by age and reason, and the ends of messages whose producer was asked."""
        was_asked = _asked() | F.col("reason").eqNullSafe(F.lit(Reason.CHECK.name))
        ended = self._ended("COMMIT", "ROLLBACK").unionByName(self._discarded.drop("resumed", "written"))
        rows = self._open.unionByName(ended.where(was_asked))
        age = F.when(F.col("open"), _age_place()).alias("age")
        sums = [F.count("*").alias("n"), F.sum(_asked().cast("int")).alias("asked"), F.max(_age()).alias("oldest")]
        found = rows.groupBy("open", age, "decision", "reason").agg(*sums).collect()
        return {
            "open_by_age": [row for row in found if row["open"]],
            "asked": [row for row in found if not row["open"]],
        }

    def oldest(self) -> Results:
        rows = self._open_messages.orderBy(F.asc_nulls_last("born_timestamp"), *HALF_KEY).limit(MOST_OPEN)
        found = rows.select(*_MESSAGE, millis("born_timestamp"), _age().alias("age"), *_texts())
        return {"oldest_open": found.collect()}

    @property
    def _groups(self) -> DataFrame:
        """Producer groups with their open messages, and those discarded in the window."""
        columns: list[Column | str] = ["producer_group", "open", "check_times"]
        columns += [_asked().alias("asked"), _age().alias("age")]
        rows = self._open_messages.select(columns).unionByName(self._discarded.select(columns))
        silent = F.col("open") & F.col("asked")
        return rows.groupBy("producer_group").agg(
            F.count_if("open").alias("open"),
            F.count_if(silent).alias("silent"),
            F.count_if(~F.col("open")).alias("discarded"),
            F.max(F.when(F.col("open"), F.col("age"))).alias("oldest"),
            F.max("check_times").alias("most_asked"),
        )

    def groups(self) -> Results:
        groups, silence = self._groups, F.col("silent") + F.col("discarded")
        by_open = _top(groups.where(F.col("open") > 0), "producer_group", F.col("open"))
        by_silence = _top(groups.where(silence > 0), "producer_group", silence)
        return _together(open_groups=by_open, silent_groups=by_silence)

    # ---- ended ----

    def latency(self) -> Results:
        """Returns percentiles of each column of the plot, and of all (`place` is null)."""
        place = F.floor((F.col("run_id") - self.first) / self.per_column).cast("int")
        percentiles = F.percentile_approx(_age(), [0.5, 0.9, 0.99], 1000).alias("percentiles")
        found = [F.count("*").alias("n"), percentiles, F.max(_age()).alias("most")]
        return {"latency": self._ended("COMMIT").rollup(place.alias("place")).agg(*found).collect()}

    def topics(self) -> Results:
        topics = self._ended("COMMIT").groupBy("real_topic").agg(F.count("*").alias("n"))
        found = _top(topics, "real_topic", F.col("n")).collect()
        return {"topics": found, "misfits": self._misfits([row["real_topic"] for row in found])}

    def _misfits(self, topics: Sequence[str]) -> Rows:
        """Returns how many messages of these topics have no value, of those whose tables have values."""
        known = {row["topic"]: f"topics/{row['directory']}" for row in self.warehouse.rows("topics_index")}
        paths = {topic: known[topic] for topic in topics if topic in known}
        window = between("run_id", self.first, self.planned)
        parts = [
            self.warehouse.read(path, where=window).select(F.lit(topic).alias("topic"), VALUE_ERROR)
            for topic, path in paths.items()
            if VALUE_ERROR in self.warehouse.spec(path).names
        ]
        if not parts:
            return []
        rows = reduce(DataFrame.unionByName, parts).where(F.col(VALUE_ERROR).isNotNull())
        return rows.groupBy("topic").agg(F.count("*").alias("n")).orderBy("topic").collect()

    # ---- discarded ----

    @cached_property
    def _discarded(self) -> DataFrame:
        """Discards of the window that stand: no op, resume or broker's copy has undone them since."""
        rows = self._ended("DISCARD")
        stand = standing_discards(self.warehouse, rows.select(HALF_KEY))
        rows = rows.withColumn("written", F.col("run_id") <= written_discards(self.warehouse))
        if stand is None:
            return rows.withColumn("resumed", F.lit(True)).limit(0)
        resumed = (F.col("decision") == RESUMED).alias("resumed")
        return rows.join(stand.select(*HALF_KEY, "run_id", resumed), [*HALF_KEY, "run_id"])

    def discards(self) -> Results:
        times = [millis("born_timestamp"), millis("decided_at")]
        rows = self._discarded.select(*_MESSAGE, "run_id", *times, *_texts(), "resumed", "written")
        newest = rows.orderBy(F.desc("run_id"), F.asc_nulls_last("born_timestamp"), *HALF_KEY).limit(MOST_DISCARDS)
        counts = rows.groupBy("reason").agg(F.count("*").alias("n"))
        found = _together(discards=newest, discard_reasons=counts, hanging=self._hanging(rows))
        found["hanging"].sort(key=lambda row: (row["born_timestamp"] is None, row["born_timestamp"] or 0))
        return found

    def _hanging(self, discards: DataFrame) -> DataFrame:
        """The oldest messages that nothing has ended: open ones, and discards that stand and are in their table."""
        columns: list[Column | str] = [*_MESSAGE, "born_timestamp", *_texts()]
        opened = self._open_messages.withColumn("born_timestamp", millis("born_timestamp")).select(columns)
        rows = opened.unionByName(discards.where(~F.col("resumed") & F.col("written")).select(columns))
        return rows.orderBy(F.asc_nulls_last("born_timestamp"), *HALF_KEY).limit(MOST_HANGING)

    # ---- rejected ----

    @property
    def _rejected(self) -> DataFrame:
        """Rejects of the window's runs, and of landings since the first of them opened."""
        rows = self.warehouse.read(REJECTED)
        if self.since is None:
            return rows
        at_landing = F.col("run_id").isNull() & (F.col("rejected_at") >= F.lit(self.since))
        return rows.where((F.col("run_id") >= self.first) | at_landing)

    def rejects(self) -> Results:
        """Returns the newest rows of each reason, and how many there are."""
        rows = self._rejected
        newest_first = Window.partitionBy("kind", "reason").orderBy(F.desc("rejected_at"), *HALF_KEY, "detail")
        half = F.when(F.col("kind") != "INPUT", F.col("half_offset"))  # nothing has landed of a row of an input file
        newest = rows.withColumn("nth", F.row_number().over(newest_first)).where(F.col("nth") <= MOST_REJECTS)
        place = ["kind", "reason", *HALF_KEY, "nth", "run_id"]
        found = newest.select(*place, millis("rejected_at"), _short("detail"), half.alias("half_offset"))
        counts = rows.groupBy("kind", "reason").agg(F.count("*").alias("n"))
        both = _together(rejects=found, reject_reasons=counts)
        both["rejects"].sort(key=lambda row: (row["kind"], row["reason"], row["nth"]))
        return both


def _together(**parts: DataFrame) -> Results:
    """Several results of one Spark job, which works out only once what they share."""
    named = [rows.withColumn("part", F.lit(name)) for name, rows in parts.items()]
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), named).collect()
    return {name: [row for row in rows if row["part"] == name] for name in parts}
