"""The topics as their brokers have them now: without what a broker lost, and all its lives under its own name.

In what stands, offsets and places in the log are unique again. So the rest of the audit knows nothing of lives; only
its findings get the names back that messages have landed under.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, QUEUE
from halfop.columns.lives import Lives, all_lives, owner

NOTHING_LOST = {"half_messages": 0, "committed": 0, "committed_again": 0}
_MESSAGE = ["uniq_key", "producer_group"]


@dataclass(frozen=True)
class Standing:
    """Brokers that have had several lives; all others' rows are left as they are."""

    lives: Sequence[Lives]

    @classmethod
    def of(cls, progress: Sequence[Mapping[str, Any]]) -> Standing:
        return cls(all_lives(progress))

    def own_names(self, progress: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Rows of landing_progress of each broker's current life, which began to land with the first one."""
        earlier = {name: each.broker_name for each in self.lives for name in each.names[:-1]}
        current = {each.current: each.broker_name for each in self.lives}
        begun = {(row["broker_name"], row["topic"], row["queue_id"]): row["first_offset"] for row in progress}
        rows = []
        for row in progress:
            if row["broker_name"] not in earlier:
                own = current.get(row["broker_name"], row["broker_name"])
                first = begun.get((own, row["topic"], row["queue_id"]), row["first_offset"])
                rows.append(dict(row) | {"broker_name": own, "first_offset": first})
        return rows

    def own_name(self, name: str) -> str:
        return next((each.broker_name for each in self.lives if name in each.names), name)

    # ---- rows of tables ----

    def halves(self, rows: DataFrame) -> DataFrame:
        """Returns half messages that stand; `landed_under` is the name of their life."""
        lost = self._lost_halves()
        return self._own(rows.withColumn("landed_under", F.col("broker_name")).where(~lost))

    def ops(self, rows: DataFrame) -> DataFrame:
        def lost(lives: Lives, number: int) -> Column:
            """The condition for ops that a life wrote."""
            after = lives.op_cuts[number - 1 :]
            wrote = F.coalesce("life", F.when(F.col("broker_name") == lives.names[number - 1], number)) == number
            cut = reduce(or_, [owner([cuts], F.col("queue_id"), F.col("queue_offset")) == 1 for cuts in after])
            return F.col("broker_name").isin(lives.names) & wrote & cut

        return self._own(rows.where(~self._any(lost)))

    def by_place(self, rows: DataFrame) -> DataFrame:
        """The same of final messages and discards: what landed before a life, and was not there when it began."""

        def lost(lives: Lives, number: int) -> Column:
            life = lives.later[number - 1]
            before = F.col("landed_at") < F.lit(life.begun_at)
            return F.col("broker_name").isin(lives.names) & before & (F.col("physical_offset") >= life.stands_to)

        return self._own(rows.where(~self._any(lost)))

    def _lost_halves(self) -> Column:
        def lost(lives: Lives, number: int) -> Column:
            after = lives.half_cuts[number - 1 :]
            cut = reduce(or_, [owner([cuts], F.col("queue_id"), F.col("queue_offset")) == 1 for cuts in after])
            return (F.col("broker_name") == lives.names[number - 1]) & cut

        return self._any(lost)

    def _any(self, lost: Any) -> Column:
        """Returns whether a row is lost with any life but the last; null is no."""
        each = [lost(lives, number) for lives in self.lives for number in range(1, lives.number)]
        return F.coalesce(reduce(or_, each, F.lit(False)), F.lit(False))

    def _own(self, rows: DataFrame) -> DataFrame:
        return rows if not self.lives else rows.withColumn("broker_name", self._named(F.col("broker_name")))

    def _named(self, name: Column) -> Column:
        pairs = [F.lit(text) for each in self.lives for life in each.names[1:] for text in (life, each.broker_name)]
        return F.coalesce(F.get(F.array(F.create_map(*pairs)), F.lit(0))[name], name)

    # ---- findings ----

    def landed_under(self, found: DataFrame) -> DataFrame:
        """Findings under the names that their first half messages have landed under."""
        name = F.col("broker_name")
        for each in self.lives:
            life = owner(each.half_cuts, F.col("queue_id"), F.col("queue_offset"))
            landed_under = F.get(F.array(*map(F.lit, each.names)), life)
            is_known = (F.col("broker_name") == each.broker_name) & F.col("queue_offset").isNotNull()
            name = F.when(is_known, landed_under).otherwise(name)
        return found.withColumn("broker_name", name)

    def lost(self, halves: DataFrame, ops: DataFrame) -> dict[str, int]:
        """Counts the half messages that brokers lost; those of them that had been committed, and committed again."""
        if not self.lives:
            return NOTHING_LOST
        commits = ops.where("outcome = 'COMMIT'").select(*QUEUE, F.col("half_offset").alias("queue_offset")).distinct()
        narrow = halves.select(*HALF_KEY, *_MESSAGE).dropDuplicates(HALF_KEY)
        committed = narrow.join(commits.withColumn("committed", F.lit(True)), HALF_KEY, "left")
        lost = committed.where(self._lost_halves())
        stands = committed.where(~self._lost_halves() & F.col("committed") & F.col("uniq_key").isNotNull())
        again = stands.select(*_MESSAGE).distinct().withColumn("again", F.lit(True))
        found = lost.join(again, _MESSAGE, "left").agg(
            F.count("*").alias("half_messages"),
            F.count_if("committed").alias("committed"),
            F.count_if(F.col("committed") & F.col("again")).alias("committed_again"),
        )
        return found.collect()[0].asDict()
