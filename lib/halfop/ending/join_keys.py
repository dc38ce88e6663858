"""The keys that join a transaction with business data: its UNIQ_KEY, its keys, or a field of its body."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from halfop.columns.keys import HALF_KEY
from halfop.columns.values import present
from halfop.planning.ranges import covers, ranges_of
from halfop.rocketmq.message import COMPRESSED, decompressed
from halfop.warehouse.tables import Warehouse

JOIN_KEYS = "join_keys"
UNIQ_KEY, KEYS, _BODY = "uniq_key", "keys", "body."
_SEPARATOR = " "  # RocketMQ's own between several keys


def with_join_keys(warehouse: Warehouse, rows: DataFrame, by: str) -> DataFrame:
    """Returns transactions with an array of the keys that business data may know them by; null if there is none."""
    if by == UNIQ_KEY:
        return rows.withColumn(JOIN_KEYS, _several(F.array(present(F.col("uniq_key")))))
    near = covers(ranges_of(rows, "queue_offset"), "queue_offset")
    if near is None:
        return rows.withColumn(JOIN_KEYS, F.lit(None).cast("array<string>"))
    landed = warehouse.read("half_messages", where=near)
    mine = landed.join(rows.select(*HALF_KEY, F.col("commit_log_offset").alias("place")), HALF_KEY)
    same = mine.where(F.col("commit_log_offset").eqNullSafe(F.col("place")))  # else a broker was rebuilt
    found = same.groupBy(HALF_KEY).agg(F.any_value(_keys(by)).alias(JOIN_KEYS))
    return rows.join(found, HALF_KEY, "left")


def _keys(by: str) -> Column:
    if by == KEYS:
        return _several(F.split("keys", _SEPARATOR))
    found = F.get_json_object(_text(), by.removeprefix(_BODY))
    return _several(F.array(F.when(~_is_structure(found), found)))


def _is_structure(value: Column) -> Column:
    """An object or a list is no key, though it is there: nothing can be found by it, and nothing is absent."""
    return value.rlike(r"^\s*[\[{]") & F.get_json_object(value, "$").isNotNull()


def _several(keys: Column) -> Column:
    """The keys that are there, each once; null if none is."""
    found = F.array_distinct(F.filter(F.transform(keys, _trimmed), lambda key: key != ""))
    return F.when(F.size(found) > 0, found)


def _trimmed(key: Column) -> Column:
    """`F.rtrim` itself would take the key's number in the array for the characters to cut."""
    return F.rtrim(key)


def _text() -> Column:
    """The body as text; null if it cannot be decompressed."""
    is_compressed = F.coalesce(F.col("sys_flag"), F.lit(0)).bitwiseAND(COMPRESSED) != 0
    undo = arrow_udf(_decompressed, "binary")  # type: ignore[call-overload]
    undone = undo(F.when(is_compressed, F.col("body")), F.col("sys_flag"))  # other bodies do not travel
    return F.when(is_compressed, undone).otherwise(F.col("body")).cast("string")


def _decompressed(bodies: pa.Array, flags: pa.Array) -> pa.Array:
    pairs = zip(bodies.to_pylist(), flags.to_pylist(), strict=True)
    return pa.array([None if body is None else decompressed(body, flag) for body, flag in pairs], pa.binary())
