"""Rows of final_messages: which are no final messages."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from halfop.rocketmq import names

# Topics in which a broker puts a final message again: for a consumer's retries, in the end for none, or for later.
_AGAIN = rf"\A({names.SCHEDULE_TOPIC}\z|(?i:{names.SYSTEM_PREFIX})|{names.RETRY_PREFIX}|{names.DLQ_PREFIX})"


def is_put_again() -> Column:
    """Returns whether a row is a copy that a broker made of a final message that it had delivered, or delays.

    A copy has the sysFlag, and so the type commit, and the UNIQ_KEY of the final message, but names place 0, where
    another half message may be: that one's final message is in a real topic.
    """
    again = F.coalesce(F.col("topic").rlike(_AGAIN), F.lit(False))
    return F.col("prepared_transaction_offset").eqNullSafe(0) & again
