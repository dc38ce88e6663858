"""The second stage of a run: what has to be looked up in earlier runs, and in how many files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, present
from halfop.planning.arrivals import Arrivals
from halfop.planning.copies import Copies, copies
from halfop.planning.counts import between_values, covers, in_slice, ranges_of
from halfop.planning.out_of_order import LookedBack, arrived_late, older, ops_before
from halfop.rules import halves as h
from halfop.rules import ops as o
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
    return rows.select("broker_name", F.col("prepared_transaction_offset").alias("pto"), key)
