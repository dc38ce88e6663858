"""The outcome of each open transaction by business data, with evidence, or why there is none."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.ending.absence import ABSENT, NOT_FRESH, WHY_NOT, Absence
from halfop.ending.business import EVIDENCE, KEY, OUTCOME
from halfop.ending.join_keys import JOIN_KEYS
from halfop.ending.plan import COMMIT, ROLLBACK

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
