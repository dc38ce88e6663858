"""Rows that real brokers bring into a run in memory: put-back copies, their own discards, and final messages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from halfop.columns.keys import HALF_KEY
from halfop.rules import halves as h
from halfop.rules import ops as o
from halfop.rules import transactions as t
from halfop.rules.cases import with_resumes
from halfop.rules.settings_columns import RuleColumns, own_immunity
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


@dataclass(frozen=True)
class Copies:
    """The run's half messages, of a transaction with copies one row, and what names them."""

    rows: DataFrame  # all half messages, one row a key
    ops: DataFrame  # under the half keys that they name
    arrived_discards: DataFrame
    older_discards: DataFrame
    decisions: DataFrame  # of all earlier runs
    finals: DataFrame
    rules: RuleColumns

    @cached_property
    def _kins(self) -> DataFrame:
        put_back = self.rows.where(h.put_back()).select(t.kin().alias(t.KIN))
        return put_back.unionByName(self._discards.select(t.KIN)).distinct()

    @cached_property
    def _discards(self) -> DataFrame:
        arrived = self.arrived_discards.withColumn("seen", F.lit(False))
        rows = arrived.unionByName(self.older_discards.withColumn("seen", F.lit(True)))
        each = rows.groupBy(t.kin().alias(t.KIN), *HALF_KEY)
        return each.agg(F.min("store_timestamp").alias("discarded_at"), F.max("seen").alias("seen"))

    @cached_property
    def _found(self) -> DataFrame:
        members = self._by_kin("left_semi")
        return t.transactions(members, self._discards.select(t.KIN, "discarded_at", "seen")).localCheckpoint()

    def _by_kin(self, how: str) -> DataFrame:
        return self.rows.withColumn(t.KIN, t.kin()).join(self._kins, t.KIN, how).drop(t.KIN)

    @property
    def superseded(self) -> DataFrame:
        """Decisions on copies that another stands for now."""
        return t.superseded(self._found, self.rules)

    def standing_at(self, rows: DataFrame) -> DataFrame:
        """Returns rows under the half key of the row that stands for the copy that each names."""
        found = rows.join(t.copy_map(self._found).drop("copy"), HALF_KEY, "left")
        return t.at_standing(found)

    def halves(self, resumes: DataFrame | None) -> DataFrame:
        """Returns every half message; of a transaction with copies the row that stands for it."""
        standing = with_resumes(t.standing(self._found), resumes)
        return self._with_others(t.given_up(standing, self._ending, self._spent))

    def _with_others(self, standing: DataFrame) -> DataFrame:
        rows = standing.drop(t.KIN, "starter", "discard_times", "seen")
        return rows.unionByName(self._by_kin("left_anti"), allowMissingColumns=True)

    @property
    def _ending(self) -> DataFrame:
        """The half keys of transactions with copies that this run ends."""
        rows = t.standing(self._found).withColumn("immunity", own_immunity(self.rules.timeout))
        return rows.join(o.by_half(self.named), HALF_KEY).where(o.winner(self.rules).isNotNull()).select(HALF_KEY)

    @property
    def _spent(self) -> DataFrame:
        """Messages that earlier runs have given up for discard records of a message, or of its twins."""
        rows = self.decisions.where("decision = 'DISCARD' AND reason = 'BROKER_DISCARDED'")
        return rows.groupBy(t.kin().alias(t.KIN)).agg(F.collect_list(F.struct(*HALF_KEY)).alias("spent"))

    @cached_property
    def named(self) -> DataFrame:
        """Ops, and final messages that show what no op shows, under the key of the row that stands."""
        ops = t.renamed(self.ops, self._found).localCheckpoint()
        without_header = ops.where(~F.col("op")["header"]).select(HALF_KEY)
        waiting = self._with_others(t.standing(self._found)).where(F.col("state").isin(h.NEW, h.OPEN, h.DISCARDED))
        finals = self.finals.select("broker_name", F.col("prepared_transaction_offset").alias("pto"), "uniq_key")
        return ops.unionByName(o.proofs(finals, waiting.join(without_header, HALF_KEY, "left_anti")))
