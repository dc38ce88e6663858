"""Landed history as it would have been without the questions that were asked at the time.

A broker's put-back copies and its discards come from its own questions: both are left out, and ops of a copy name the
original instead. Answers are kept apart: in a replay they come after its own questions.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, QUEUE
from halfop.planning.run import pinned_inputs
from halfop.rules import halves as h
from halfop.rules import transactions
from halfop.rules.questions import SENT
from halfop.rules.settings_columns import RuleColumns
from halfop.rules.transactions import KIN, kin
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.schema import table

_BULKY = ("body", "properties")
_NOWHERE = -1


@dataclass(frozen=True)
class UnaskedHistory:
    """A warehouse's landing tables as they are now; `rules` show which copies a broker made without asking.

    Rows stored before `since` are left out.
    """

    warehouse: KernelWarehouse
    rules: RuleColumns
    since: datetime | None = None

    @cached_property
    def progress(self) -> list[dict[str, Any]]:
        return progress_rows(self.warehouse, self._pins["landing_progress"])

    @cached_property
    def halves(self) -> DataFrame:
        rows = self._since(self._landed.drop(*_BULKY))
        return rows if self._copies is None else rows.join(self._copies, HALF_KEY, "left_anti")

    @cached_property
    def _pins(self) -> dict[str, int]:
        """Returns the tables' versions as a run would pin them."""
        return pinned_inputs(self.warehouse)

    def _read(self, name: str) -> DataFrame:
        return self.warehouse.read(name, self._pins[name])

    def _since(self, rows: DataFrame) -> DataFrame:
        return rows if self.since is None else rows.where(F.col("store_timestamp") >= F.lit(self.since))

    @cached_property
    def ops(self) -> DataFrame:
        """Ops of producers that ended their messages without a question."""
        return self._since(self._ops.where(~_is_answer()))

    @cached_property
    def answers(self) -> DataFrame:
        """Ops that answer a question: `delay` after it, and not in answer to those up to `silent_until`."""
        rows = self._since(self._ops.where(_is_answer()))
        asked = self._asked.groupBy(HALF_KEY).agg(F.sort_array(F.collect_set("asked_at")).alias("asked"))
        asked = asked.withColumnRenamed("queue_offset", "half_offset")
        before = F.filter("asked", lambda at: at < F.col("store_timestamp"))
        rows = rows.join(asked, [*QUEUE, "half_offset"], "left").withColumn("asked", before)
        times = {"question": F.try_element_at("asked", F.lit(-1)), "silent_until": F.try_element_at("asked", F.lit(-2))}
        rows = rows.withColumns(times)
        delay = F.unix_micros("store_timestamp") - F.unix_micros("question")
        return rows.withColumn("delay", delay).drop("asked", "question")

    @cached_property
    def finals(self) -> DataFrame:
        """Final messages, without those that would show an answer before it is given."""
        rows = self._since(self._read("final_messages"))
        if self._copies is not None:
            place = _renamed(commit_log_offset="prepared_transaction_offset")
            of_copy = self._copies.select("broker_name", *place, "log_offset")
            rows = _moved(rows, of_copy, "prepared_transaction_offset", "log_offset")
        answered = self.answers.select(*QUEUE, F.col("half_offset").alias("queue_offset"))
        early = self.halves.join(answered, HALF_KEY, "left_semi")
        early = early.select("broker_name", *_renamed(commit_log_offset="prepared_transaction_offset"))
        return rows.join(early, early.columns, "left_anti").select(table("final_messages").names)

    @cached_property
    def resumes(self) -> DataFrame:
        rows = self._read("resumes")
        if self._copies is not None:
            rows = _moved(rows, self._copies.select(*HALF_KEY, "offset"), "queue_offset", "offset")
        return rows.select(table("resumes").names)

    @cached_property
    def deliveries(self) -> DataFrame:
        """The times, by broker and group, when a question could be delivered and when it could not."""
        rows = self._read("check_deliveries").where(F.col("outcome").isin(SENT, "NO_PRODUCER", "FAILED"))
        return rows.select("broker_name", "producer_group", "at", (F.col("outcome") == SENT).alias("delivered"))

    # ---- copies ----

    @cached_property
    def _landed(self) -> DataFrame:
        return self._read("half_messages")

    @cached_property
    def _copies(self) -> DataFrame | None:
        """Put-back copies: half key, time of their question, and the original's `offset` and `log_offset`.

        The first copy stands for an original that has not landed.
        """
        halves = h.landed(self._landed, self.rules).withColumn(KIN, kin())
        kins = halves.where("marked").select(KIN).distinct()
        if kins.isEmpty():
            return None
        rows = h.one_per_key(halves.join(kins, KIN, "left_semi").drop(KIN))
        never = F.lit(None).cast("timestamp").alias("discarded_at")
        no_discards = kins.select(KIN, never, F.lit(False).alias("seen")).limit(0)
        found = transactions.transactions(rows, no_discards)
        members = F.explode(F.array_append("superseded", F.col("standing"))).alias("copy")
        found = found.select("known.copies", members)
        # what escaped to another broker is a half message that nobody asked about there
        here = F.filter(
            "copies",
            lambda c: (c["broker_name"] == F.col("copy.broker_name")) & (c["queue_id"] == F.col("copy.queue_id")),
        )
        found = found.select(F.element_at(here, 1).alias("original"), "copy")
        columns = [*_of("copy", *HALF_KEY, "commit_log_offset", asked_at="last_checked_at")]
        columns += _of("original", offset="queue_offset", log_offset="commit_log_offset")
        is_copy = F.col("copy.queue_offset") != F.col("original.queue_offset")
        return found.where(is_copy).select(columns).localCheckpoint()

    @cached_property
    def _ops(self) -> DataFrame:
        """All ops; those of a copy name its original, and are answers: only a question shows a producer the copy."""
        rows = self._read("op_messages")
        if self._copies is None:
            return rows
        named = _renamed(queue_offset="half_offset", commit_log_offset="copy_log_offset")
        copies = self._copies.select(*QUEUE, "offset", "log_offset", *named)
        found = rows.join(copies, [*QUEUE, "half_offset"], "left")
        is_copy = F.col("offset").isNotNull()
        moved = {
            "from_check": F.coalesce("from_check", F.when(is_copy, True)),
            "tran_state_table_offset": _header("tran_state_table_offset", "half_offset", "offset"),
            "commit_log_offset": _header("commit_log_offset", "copy_log_offset", "log_offset"),
            "half_offset": F.coalesce("offset", "half_offset"),
        }
        return found.withColumns(moved).select(rows.columns)

    # ---- questions ----

    @cached_property
    def _asked(self) -> DataFrame:
        """All known questions under the original's key: halfop's own, and those that copies come from."""
        decisions = self._read("decisions").where("decision = 'CHECK'")
        own = decisions.select(*HALF_KEY, F.col("decided_at").alias("asked_at"))
        if self._copies is None:
            return own
        own = _moved(own, self._copies.select(*HALF_KEY, "offset"), "queue_offset", "offset")
        of_brokers = self._copies.where("asked_at IS NOT NULL")
        of_brokers = of_brokers.select(*QUEUE, "asked_at", *_renamed(offset="queue_offset"))
        return own.unionByName(of_brokers)


def _is_answer() -> Column:
    return F.coalesce("from_check", F.lit(False)) & F.col("half_offset").isNotNull()


def _of(struct: str, *names: str, **renamed: str) -> list[Column]:
    fields = {name: name for name in names} | renamed
    return [F.col(struct)[field].alias(name) for name, field in fields.items()]


def _renamed(**names: str) -> list[Column]:
    return [F.col(name).alias(new) for name, new in names.items()]


def _moved(rows: DataFrame, copies: DataFrame, column: str, original: str) -> DataFrame:
    """Rows with the original's value in place of a copy's in the column."""
    keys = [name for name in copies.columns if name != original]
    return rows.join(copies, keys, "left").withColumn(column, F.coalesce(original, column)).drop(original)


def _header(given: str, of_copy: str, of_original: str) -> Column:
    """A header field moved to the original: one that matches the copy matches the original, a wrong one stays wrong."""
    moved = F.when(F.col(given) == F.col(of_copy), F.col(of_original)).otherwise(_NOWHERE)
    return F.when(F.col("offset").isNull() | F.col(given).isNull(), F.col(given)).otherwise(moved)
