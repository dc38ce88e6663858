"""What the topics still say of half messages that somebody has erased: it proves nothing about the broker."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.planning.counts import covers, ranges_of
from halfop.warehouse.erasures import HALVES, TABLE, erasures
from halfop.warehouse.tables import Warehouse


@dataclass(frozen=True)
class ErasedHalves:
    """The half keys, and with them the places in the log and UNIQ_KEYs that decisions keep."""

    keys: DataFrame
    decided: DataFrame

    @staticmethod
    def of(warehouse: Warehouse) -> ErasedHalves | None:
        """None if nothing has been erased."""
        found = erasures(warehouse, None, HALVES)
        if found is None:
            return None
        keys = found.select(HALF_KEY).distinct()
        near = covers(ranges_of(keys, "queue_offset"), "queue_offset")
        rows = warehouse.empty("decisions") if near is None else warehouse.read("decisions", where=near)
        decided = rows.where("decision <> 'EARLY_OP'").join(keys, HALF_KEY, "left_semi")
        return ErasedHalves(keys, decided.select("broker_name", "commit_log_offset", "uniq_key").distinct())

    @property
    def note(self) -> str:
        return f"left out: {self.keys.count()} half messages that were erased (table {TABLE}), and what names them"

    def without(self, name: str, rows: DataFrame) -> DataFrame:
        """Returns rows of a table that do not name one of them."""
        if name == "op_messages":
            named = self.keys.withColumnRenamed("queue_offset", "half_offset")
        elif name == "final_messages":
            place = F.col("commit_log_offset").alias("prepared_transaction_offset")
            named = self.decided.select("broker_name", place).distinct()
        elif name == "broker_discards":
            named = self.decided.select("broker_name", "uniq_key").distinct()
        else:
            return rows
        return rows.join(named, named.columns, "left_anti")
