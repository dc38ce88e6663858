"""The second stage of a run: what has to be looked up in earlier runs, and in how many files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from halfop.columns.finals import is_put_again
from halfop.columns.keys import HALF_KEY, present
from halfop.planning.arrivals import Arrivals
from halfop.planning.copies import Copies, LookedBack, arrived_late, copies, older, ops_before
from halfop.planning.counts import between_values, covers, in_slice, ranges_of
from halfop.rules import halves as h
from halfop.rules import ops as o
from halfop.rules import transactions as t
from halfop.rules.cases import with_resumes
from halfop.rules.settings_columns import own_immunity
from halfop.warehouse.tables import NO_TABLE


@dataclass(frozen=True)
class History:
    """Every half message that bears on the run, one row a key, with what earlier runs decided about late arrivals."""

    arrivals: Arrivals
    halves: DataFrame
    finals: DataFrame | None  # a real broker's final messages that may prove a commit; None if there is none
    copies: Copies | None  # transactions of several half messages; None if there is none
    ops: DataFrame | None  # of earlier landings, which name half messages that arrived late; None if there is none
    files: dict[str, int]
    looked_up: bool  # half messages that earlier runs have ended or discarded are among them

    @property
    def named(self) -> DataFrame:
        """All ops that may end a half message, under its key."""
        arrived = self.arrivals.named.drop("arrived")
        return arrived if self.ops is None else arrived.unionByName(self.ops)

    def __str__(self) -> str:
        looked = ", ".join(f"{n} of {name}" for name, n in self.files.items()) or "none"
        return f"files looked back into: {looked}; " + ("no copies" if self.copies is None else "copies among them")


def history(arrivals: Arrivals) -> History:
    """Looks up what arrivals need from further back, and nothing if they need nothing."""
    late, looked_back = arrived_late(arrivals), LookedBack(op_messages=arrivals.files)
    finals = _finals(arrivals, late, looked_back)
    strays = _strays(arrivals, finals, looked_back)
    closed = _closed(arrivals, strays, looked_back)
    halves = _one_per_key(arrivals, closed)
    found = copies(arrivals, halves, late, closed is not None, looked_back)
    ops = ops_before(arrivals, looked_back) if late else None
    files = {name: n for name, n in looked_back.items() if n}
    return History(arrivals, halves, finals, found, ops, files, closed is not None)


def _one_per_key(arrivals: Arrivals, closed: DataFrame | None) -> DataFrame:
    """Arrived, open and closed half messages, one row a key."""
    parts = [arrivals.halves, arrivals.open_halves, closed]
    rows = reduce(DataFrame.unionByName, [part for part in parts if part is not None])
    if closed is None and not arrivals.counts.halves.repeated:
        return h.nothing_else(rows)
    return h.one_per_key(rows)


# ---- decisions on messages that are not open ----


def _closed(arrivals: Arrivals, strays: DataFrame | None, looked_back: LookedBack) -> DataFrame | None:
    """Decisions on arrivals that match no open row: late ops, halves that landed again, and resumes.

    None if no file can hold such a decision.
    """
    if arrivals.run.first:
        return None
    stray_ranges = [] if strays is None else ranges_of(strays, "queue_offset")
    near = covers([*arrivals.counts.halves.ranges, *stray_ranges], "queue_offset")
    rows = None if near is None else looked_back.read("decisions", arrivals.closed_decisions(near))
    if rows is None:
        return None
    keys = arrivals.halves.select(HALF_KEY)
    keys = keys if strays is None else keys.unionByName(strays)
    return h.closed(rows.join(keys.distinct(), HALF_KEY, "left_semi"))


def _strays(arrivals: Arrivals, finals: DataFrame | None, looked_back: LookedBack) -> DataFrame | None:
    """Half keys that an op, a final message or a resume names and that are neither open nor arrived."""
    if arrivals.open_halves is None:
        return None
    found = [] if arrivals.counts.arrivals_met else [_named_by_ops(arrivals, arrivals.open_halves)]
    by_finals = None if finals is None else _named_by_finals(arrivals, arrivals.open_halves, finals, looked_back)
    found += [] if by_finals is None else [by_finals.where(in_slice(arrivals.run.slice))]
    found += [] if arrivals.resumes is None else [arrivals.resumes.select(HALF_KEY)]
    return reduce(DataFrame.unionByName, found) if found else None


def _named_by_ops(arrivals: Arrivals, open_halves: DataFrame) -> DataFrame:
    copies = open_halves.select(F.explode(h.own_copies()).alias("copy"))
    opened = copies.select(*[F.col("copy")[c].alias(c) for c in HALF_KEY])
    known = arrivals.halves.select(HALF_KEY).unionByName(opened)
    return o.as_named(arrivals.ops).select(HALF_KEY).join(known, HALF_KEY, "left_anti")


def _named_by_finals(
    arrivals: Arrivals, open_halves: DataFrame, finals: DataFrame, looked_back: LookedBack
) -> DataFrame | None:
    """Half keys of discarded messages that a final message names; None if there is none."""
    rows = arrivals.halves.unionByName(open_halves).select(F.explode(h.own_copies()).alias("c"))
    known = rows.select("c.broker_name", F.col("c")["commit_log_offset"].alias("pto"))
    strays = finals.select("broker_name", "pto").join(known, ["broker_name", "pto"], "left_anti")
    near = between_values(strays.select(F.col("pto").alias("commit_log_offset")), "commit_log_offset")
    if near is None:
        return None
    closed = looked_back.read("decisions", arrivals.closed_decisions(near))
    if closed is None:
        return None
    discarded = closed.where(F.col("decision").isin("DISCARD", "SUPERSEDED"))
    named = strays.withColumnRenamed("pto", "commit_log_offset")
    return discarded.join(named, ["broker_name", "commit_log_offset"], "left_semi").select(HALF_KEY)


# ---- final messages ----


def _finals(arrivals: Arrivals, late: bool, looked_back: LookedBack) -> DataFrame | None:
    """Final messages that arrived, and older ones that half messages may name which arrived late."""
    name, run = "final_messages", arrivals.run
    if run.inputs[name] == NO_TABLE:  # only real brokers fill this table
        return None
    rows = arrivals.warehouse.landed_between(name, run.inputs_before[name], run.inputs[name])
    places = arrivals.halves.select(F.col("commit_log_offset").alias("prepared_transaction_offset"))
    earlier = older(arrivals, name, places, looked_back) if late else None
    rows = rows if earlier is None else rows.unionByName(earlier)
    if rows.isEmpty():
        return None
    key = present(F.col("uniq_key")).alias("uniq_key")
    return rows.where(~is_put_again()).select("broker_name", F.col("prepared_transaction_offset").alias("pto"), key)


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
