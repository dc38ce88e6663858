"""The third stage of a run: copies resolved, so that a transaction is one row, and its ops have that row's key."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.planning.arrivals import Arrivals
from halfop.planning.copies import Copies
from halfop.planning.history import History
from halfop.rules import halves as h
from halfop.rules import ops as o
from halfop.rules import transactions as t
from halfop.rules.cases import with_resumes
from halfop.rules.settings_columns import own_immunity


@dataclass(frozen=True)
class Transactions:
    """One row a transaction, and all that may end one or resume one under the key of that row."""

    history: History
    halves: DataFrame
    named: DataFrame  # ops, and final messages that prove what no op says
    resumes: DataFrame | None
    superseded: DataFrame | None  # decisions on copies that another one stands for
    plain: bool  # each half message is a transaction of its own, and only ops that were counted end one

    @property
    def arrivals(self) -> Arrivals:
        return self.history.arrivals

    def __str__(self) -> str:
        return "every half message is a transaction of its own" if self.plain else "copies or final messages resolved"


def transactions(history: History) -> Transactions:
    """Resolves copies if there are any; without copies and final messages everything stays as it is."""
    ops, resumes = history.named, history.arrivals.resumes
    if history.copies is not None:
        return _resolved(history, history.copies, ops, resumes)
    named, proofs = (ops, False) if _all_named(history) else _with_proofs(history, history.halves, ops)
    plain = not proofs and history.ops is None
    return Transactions(history, history.halves, named, _numbered(resumes), None, plain)


def _resolved(history: History, copies: Copies, ops: DataFrame, resumes: DataFrame | None) -> Transactions:
    arrivals = history.arrivals
    found = arrivals.kept.computed(t.transactions(copies.members, copies.discards))
    halves = _with_others(t.standing(found), copies)
    named, _ = _with_proofs(history, halves, t.renamed(ops, found))
    resumes = _numbered(resumes, t.copy_map(found).drop("copy"))
    if copies.any_discards:
        halves = _with_others(_given_up(history, copies, found, named, resumes), copies)
    return Transactions(history, halves, named, resumes, t.superseded(found, arrivals.rules), plain=False)


def _with_others(standing: DataFrame, copies: Copies) -> DataFrame:
    """Adds the half messages that are transactions by themselves."""
    return standing.drop(t.KIN, "starter", "discard_times", "seen").unionByName(copies.others, allowMissingColumns=True)


def _given_up(
    history: History, copies: Copies, found: DataFrame, named: DataFrame, resumes: DataFrame | None
) -> DataFrame:
    """Transactions with `given_up`: a discard record of the broker is about them, and this run does not end them."""
    standing = t.standing(found)
    rules = history.arrivals.rules
    open_still = standing.withColumn("immunity", own_immunity(rules.timeout))
    ending = open_still.join(o.by_half(named), HALF_KEY).where(o.winner(rules).isNotNull()).select(HALF_KEY)
    return t.given_up(with_resumes(standing, resumes), history.arrivals.kept.computed(ending), copies.spent)


def _numbered(resumes: DataFrame | None, stands_at: DataFrame | None = None) -> DataFrame | None:
    """Resumes under the key of the row that stands for the copy asked for, numbered by key in their order."""
    if resumes is None:
        return None
    rows = resumes.withColumn("asked", F.struct(*[F.col(c).alias(c) for c in HALF_KEY]))
    if stands_at is not None:
        rows = t.at_standing(rows.join(stands_at, HALF_KEY, "left"))
    nth = F.row_number().over(Window.partitionBy(HALF_KEY).orderBy("resumed_at", "owner", "asked"))
    return rows.withColumn("nth", nth)


# ---- final messages ----


def _all_named(history: History) -> bool:
    """Returns whether an op without a header names every half message, so that no final message can say more.

    What was looked up is not counted.
    """
    return history.ops is None and not history.looked_up and history.arrivals.counts.all_named


def _with_proofs(history: History, halves: DataFrame, ops: DataFrame) -> tuple[DataFrame, bool]:
    """Ops, and as ops the final messages of half messages that no op names; and whether there are such."""
    if history.finals is None:
        return ops, False
    waiting = halves.where(F.col("state").isin(h.NEW, h.OPEN, h.DISCARDED))
    named = ops.where(~F.col("op")["header"]).select(HALF_KEY)
    proofs = history.arrivals.kept.computed(o.proofs(history.finals, waiting.join(named, HALF_KEY, "left_anti")))
    return (ops, False) if proofs.isEmpty() else (ops.unionByName(proofs), True)
