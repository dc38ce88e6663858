"""COMMIT or ROLLBACK from what a real broker wrote: an op message says only that a transaction ended.

It was committed where the log holds the final message of the half message that the op names. That there is none says
something only where all of the log between the two has been read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.rules.blocks import look_up, packed
from halfop.rules.words import QUEUE

_HALF_AT = "half_log_offset"
_MESSAGE = "message"


def with_outcomes(items: DataFrame, halves: DataFrame, finals: DataFrame, known: Column, number: int) -> DataFrame:
    """Items of op messages with `outcome`: null where it cannot be known.

    `halves` may say in `seen` whether all has been read that could hold a half message's final message, `known` of an
    item and its `half_log_offset`; `number`: how many half rows there may be.
    """
    keyed = items.withColumnsRenamed({"queue_offset": "op_offset", "half_offset": "queue_offset"})
    values = {
        _HALF_AT: F.col("commit_log_offset"),
        "seen": F.col("seen") if "seen" in halves.columns else F.lit(True),
        _MESSAGE: F.xxhash64("uniq_key"),
    }
    places = halves.select(*QUEUE, "queue_offset", *[column.alias(name) for name, column in values.items()])
    placed = look_up(keyed, packed(places, number, list(values)), list(values), "left")
    # a copy that a broker made of a final message, for a retry, names no half message: its offset is 0
    place = {"broker_name": F.col("broker_name"), _HALF_AT: F.col("prepared_transaction_offset")}
    ends = finals.select(*[c.alias(name) for name, c in (place | {_MESSAGE: F.xxhash64("uniq_key")}).items()])
    found = placed.join(ends.distinct().withColumn("final", F.lit(True)), list(ends.columns), "left")
    outcome = F.when(F.col("final"), "COMMIT").when(known & F.col("seen"), "ROLLBACK")
    back = {"queue_offset": "half_offset", "op_offset": "queue_offset"}
    return found.withColumn("outcome", outcome).drop(*values, "final").withColumnsRenamed(back)


def read_between(first: int, lost: Sequence[tuple[int, int]]) -> Column:
    """Whether the commit log between a half message and its op has been read: from `first` on, but for lost ranges."""
    half, op = F.col(_HALF_AT), F.col("physical_offset")
    touched = [(half < upto) & (op >= since) for since, upto in lost]
    return reduce(lambda known, lies: known & ~lies, touched, half >= first)
