"""Answers for brokers that nobody reaches, because their messages land by files: op rows, which the next run reads.

`outcomes` are those that business data gives, with evidence, or why there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, KEY_COLUMNS, Key
from halfop.ending.business import ABSENT, EVIDENCE, JOIN_KEYS, KEY, NOT_FRESH, OUTCOME, WHY_NOT, Absence
from halfop.ending.plan import COMMIT, ROLLBACK, Row
from halfop.ending.table import Clerk, Ending, Endings, State
from halfop.landing.progress import instant, next_instant
from halfop.landing.table_rows import RESOLVE
from halfop.planning.counts import covers, ranges_of
from halfop.rocketmq.names import END_TAG
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import hold
from halfop.warehouse.where import all_of, equal

_OPS = "op_messages"
_WAIT = timedelta(minutes=10)  # for a landing
# Above every offset of a broker: what a producer has answered counts first, if a run sees both.
FIRST_OFFSET = 2**62


def land_answers(
    warehouse: KernelWarehouse, rows: Sequence[Row], made: datetime, clerk: Clerk, endings: Endings
) -> None:
    """Lands an op row for each transaction that has none of ours yet; a reconcile then decides.

    A second call after a kill writes the same rows, of the plan's instant `made`, so they count once.
    """
    with hold(warehouse, "landing", _WAIT):
        warehouse.make(_OPS)
        answered = _answered(warehouse, rows)
        todo = [row for row in rows if row.key not in answered]
        endings.record([clerk.ending(row, "INTENDED", sent=row.places[-1]) for row in todo])
        at = next_instant(warehouse)
        warehouse.commit(_OPS, [_op(row, made) | {"landed_at": instant(at)} for row in todo])
    sent = [clerk.ending(row, "SENT", "an op row has landed: a reconcile decides", sent=row.places[-1]) for row in todo]
    others = [row for row in rows if row.key in answered]
    endings.record(sent + [_before(clerk, row, answered[row.key]) for row in others])


def _before(clerk: Clerk, row: Row, outcome: str) -> Ending:
    """The record of a half message whose op row has landed before: that stands, also if another plan made it."""
    state: State = "SENT" if outcome == row.kind else "ENDED_MEANWHILE"
    return clerk.ending(row, state, f"an op row with {outcome} had landed", sent=row.places[-1])


def _answered(warehouse: KernelWarehouse, rows: Sequence[Row]) -> dict[Key, str]:
    """The outcomes of half messages for which an op row of ours has landed."""
    keys = warehouse.frame([row.key for row in rows], KEY_COLUMNS)
    near = covers(ranges_of(keys, "queue_offset"), "half_offset")
    if near is None:
        return {}
    ops = warehouse.read(_OPS, where=all_of(near, equal("source", RESOLVE)))
    named = ops.select("broker_name", "queue_id", F.col("half_offset").alias("queue_offset"), "outcome")
    found = named.join(keys, HALF_KEY, "left_semi").collect()
    return {Key(*(row[name] for name in Key._fields)): row["outcome"] for row in found}


def _op(row: Row, made: datetime) -> dict[str, object]:
    live = row.places[-1]
    header = {"producer_group": row.producer_group, "uniq_key": row.uniq_key, "commit_log_offset": live[1]}
    return {
        "broker_name": row.key.broker_name,
        "queue_id": row.key.queue_id,
        "queue_offset": FIRST_OFFSET + live.queue_offset,
        "item": 0,
        "tag": END_TAG,
        "body": str(live.queue_offset),
        "half_offset": live.queue_offset,
        "outcome": row.kind,
        "from_check": True,
        "born_timestamp": made,
        "store_timestamp": made,
        "tran_state_table_offset": live.queue_offset,
        "source": RESOLVE,
        **header,
    }


BOTH_OUTCOMES = "BOTH_OUTCOMES"
UNDECIDED = "UNDECIDED"
NO_JOIN_KEY = "NO_JOIN_KEY"
NOT_FOUND = "NOT_FOUND"
KIND = "kind"
COMMIT_EVIDENCE, ROLLBACK_EVIDENCE = "commit_evidence", "rollback_evidence"


def with_outcomes(rows: DataFrame, found: DataFrame, absence: Absence) -> DataFrame:
    """Returns transactions with `kind` and `evidence`, or else with `why_not`.

    `rows` have their join keys; `found` is what a query gives: any number of rows a key. COMMIT and ROLLBACK for one
    transaction are neither (BOTH_OUTCOMES), with the evidence of both. `absent`: nothing was found.
    """
    keys = rows.select(*HALF_KEY, F.explode(JOIN_KEYS).alias(KEY))
    named = found.withColumnRenamed(EVIDENCE, "said").join(keys, KEY)
    said = named.groupBy(HALF_KEY).agg(
        *_of(COMMIT, "commits", COMMIT_EVIDENCE), *_of(ROLLBACK, "rollbacks", ROLLBACK_EVIDENCE)
    )
    joined = rows.join(said, HALF_KEY, "left")
    with_kind = joined.withColumns({KIND: _kind(absence), ABSENT: _nothing_found()})
    return with_kind.withColumns({EVIDENCE: _evidence(), WHY_NOT: _why_not(absence)})


def _of(outcome: str, number: str, evidence: str) -> list[Column]:
    is_this = F.col(OUTCOME) == outcome
    return [F.count_if(is_this).alias(number), F.max(F.when(is_this, F.col("said"))).alias(evidence)]


def _nothing_found() -> Column:
    return F.col("commits").isNull()


def _kind(absence: Absence) -> Column:
    commits, rollbacks = F.col("commits") > 0, F.col("rollbacks") > 0
    return (
        F.when(commits & rollbacks, None)
        .when(commits, COMMIT)
        .when(rollbacks, ROLLBACK)
        .when(_nothing_found() & F.col(JOIN_KEYS).isNotNull() & absence.is_fresh, ROLLBACK)
    )


def _evidence() -> Column:
    """The evidence of what was found."""
    commit = F.when(F.col(KIND) == COMMIT, F.col(COMMIT_EVIDENCE))
    return commit.when(F.col(KIND) == ROLLBACK, F.col(ROLLBACK_EVIDENCE))


def _why_not(absence: Absence) -> Column:
    return (
        F.when(F.col(KIND).isNotNull(), None)
        .when((F.col("commits") > 0) & (F.col("rollbacks") > 0), BOTH_OUTCOMES)
        .when(~_nothing_found(), UNDECIDED)
        .when(F.col(JOIN_KEYS).isNull(), NO_JOIN_KEY)
        .otherwise(NOT_FRESH if absence.counts else NOT_FOUND)
    )
