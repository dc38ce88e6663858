"""`resolve`: a plan to end the open transactions of producer groups as their business data says."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, QUEUE
from halfop.ending.business import (
    ABSENT,
    EVIDENCE,
    JOIN_KEYS,
    KEY,
    NOT_FRESH,
    OUTCOME,
    UNIQ_KEY,
    WHY_NOT,
    Absence,
    business,
    with_join_keys,
)
from halfop.ending.plan import COMMIT, ROLLBACK, ROWS, EndingPlan, new_head
from halfop.ending.selection import born_until, left_out, split
from halfop.frame.errors import UsageError
from halfop.frame.nearest import did_you_mean
from halfop.frame.plan_file import refuse_existing
from halfop.frame.summary import Summary, add_counts
from halfop.frame.units import plural
from halfop.landing.identity import refuse_landed_before
from halfop.runs.record import begun
from halfop.runs.standing import COLUMNS, standing
from halfop.settings.business import Resolution
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.rows import Kept

_LOG = logging.getLogger("halfop.resolve")
_SHOWN = 20
_AHEAD = timedelta(minutes=1)  # a clock may be so wrong; a time zone is more so
BOTH_OUTCOMES, UNDECIDED, NO_JOIN_KEY, NOT_FOUND = "BOTH_OUTCOMES", "UNDECIDED", "NO_JOIN_KEY", "NOT_FOUND"
KIND, COMMIT_EVIDENCE, ROLLBACK_EVIDENCE = "kind", "commit_evidence", "rollback_evidence"
REFUSED = [*QUEUE, "queue_offset", "uniq_key", "producer_group", COMMIT_EVIDENCE, ROLLBACK_EVIDENCE]
_VIEW = [*QUEUE, "queue_offset", "uniq_key", "producer_group", "real_topic", "decision", "reason", "check_times"]


@dataclass(frozen=True)
class ResolveRequest:
    """The groups to resolve (none: all that are configured), and which of their transactions get into a plan."""

    known: Mapping[str, Resolution]
    groups: Collection[str] = ()
    min_age: timedelta = timedelta(minutes=10)
    limit: int = 1000
    discarded: bool = False

    def __str__(self) -> str:
        named = [f"--group {name}" for name in self.groups]
        return " ".join(["resolve", *named, *(["--discarded"] if self.discarded else [])])


@dataclass(frozen=True)
class Resolved:
    """A plan, and the transactions that business data says both of: with the columns `REFUSED`."""

    plan: EndingPlan
    refused: pa.Table


@dataclass
class _Found:
    """The findings by now."""

    rows: list[pa.Table] = field(default_factory=list)
    refused: list[pa.Table] = field(default_factory=list)
    groups: dict[str, dict[str, object]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)


def resolve(warehouse: KernelWarehouse, request: ResolveRequest) -> tuple[Summary, Resolved]:
    """Returns a plan to end open transactions as business data says, and what it says both of. Nothing is written."""
    summary, found = Summary("resolve"), _Found()
    groups = _asked(request)
    with summary.shown_in_failure(), summary.phase("plan"):
        open_ones = standing(warehouse, request.discarded)
        rows = open_ones.rows.withColumn("left_out", left_out(born_until(request.min_age)))
        for name in groups:
            mine = rows.where(F.col("producer_group") == name)
            _resolve(warehouse, name, request.known[name], mine, found)
        refused, ending = _refused(found.refused), pa.concat_tables([ROWS.empty_table(), *found.rows])
        summary.extra |= {"planned": len(ending), "left_out": found.left_out, "groups": found.groups}
        if len(ending) > request.limit:
            problem = f"{len(ending)} transactions are to be ended, end.limit is {request.limit}"
            raise UsageError(f"{problem}: name a group with --group, or give --limit N")
        refuse_landed_before(warehouse, set(ending["broker_name"].to_pylist()))
    head = new_head(open_ones.version, str(request), begun(warehouse))
    return summary, Resolved(EndingPlan(head, ending), refused)


def _asked(request: ResolveRequest) -> list[str]:
    if not request.known:
        raise UsageError("resolve.groups: no producer group is configured; docs/ending.md shows how")
    for name in request.groups:
        if name not in request.known:
            near = did_you_mean(name, request.known)
            raise UsageError(f"--group {name}: resolve.groups has no such producer group{near}")
    return sorted(set(request.groups) or request.known)


def _resolve(warehouse: KernelWarehouse, name: str, how: Resolution, mine: DataFrame, found: _Found) -> None:
    """Adds what is found of a group; `mine` are its transactions."""
    rows = with_join_keys(warehouse, mine, how.by)
    with Kept(warehouse.stage) as kept:
        rows = rows if how.by == UNIQ_KEY else kept.persisted(rows)  # keys of bodies are costly, and read twice
        view = rows.select(*_VIEW, "born_timestamp", F.explode_outer(JOIN_KEYS).alias("key"))
        with business(warehouse.spark, name, how, view) as data:
            watermark = _usable(name, data.watermark())  # first: what the query reads is then at least as fresh
            absence, since = Absence(how.absent_after, watermark), data.complete_since()
            found_rows = with_outcomes(rows, data.outcomes(), absence)
            with data.named("query"):
                table = _worked_out(found_rows)
            since = _later(since, data.complete_since())
    table = absence.covered(table, since)
    planned = split(table.drop_columns([COMMIT_EVIDENCE, ROLLBACK_EVIDENCE, ABSENT]), "RESOLVE")
    found.rows.append(planned.rows)
    found.refused.append(table.filter(pc.equal(table[WHY_NOT], BOTH_OUTCOMES)).select(REFUSED))
    add_counts(found.left_out, planned.left_out)
    kinds = planned.rows[KIND].value_counts().to_pylist()
    counts: dict[str, object] = {"transactions": len(table), **planned.left_out}
    counts |= {each["values"]: each["counts"] for each in kinds}
    if how.watermark is not None:
        absent = _absent(name, how, table)
        counts |= {"watermark": watermark, "complete since": since, "rolled back as absent": absent}
    found.groups[name] = counts


def _later(before: datetime | None, after: datetime | None) -> datetime | None:
    """The instant that holds for a query between: a window of days moves on, and a table is filled up backward."""
    return None if before is None or after is None else max(before, after)


def _absent(group: str, how: Resolution, table: pa.Table) -> int:
    """Returns how many transactions are rolled back because nothing was found of them.

    Raises UsageError if that is all of them, and nobody has said what their key is: it may be another one.
    """
    absent = table.filter(pc.and_(table[ABSENT], pc.is_null(table[WHY_NOT])))
    if len(absent) and pc.all(table[ABSENT]).as_py():
        _refuse_unsaid(group, how, len(table))
        _LOG.warning(
            "resolve.groups.%s: nothing was found of any transaction: is `key` written as in the messages?", group
        )
    return len(absent)


def _refuse_unsaid(group: str, how: Resolution, number: int) -> None:
    if "by" not in how.model_fields_set:
        raise UsageError(
            f"resolve.groups.{group}: nothing was found of any of {plural(number, 'transaction')} by uniq_key, so all "
            "would be rolled back. Set `by` to what the query's `key` is: uniq_key, keys, or a field of the body, as "
            "body.$.order.id"
        )


def _worked_out(found: DataFrame) -> pa.Table:
    columns = [*COLUMNS, KIND, EVIDENCE, COMMIT_EVIDENCE, ROLLBACK_EVIDENCE, ABSENT]
    rows = found.select(*columns, F.coalesce("left_out", WHY_NOT).alias(WHY_NOT))
    return rows.toArrow().sort_by([(name, "ascending") for name in (*QUEUE, "queue_offset")])


def _usable(group: str, watermark: datetime | None) -> datetime | None:
    """The watermark, unless it lies in the future: then it is none, but a wrong time zone or clock."""
    if watermark is None or watermark <= datetime.now(timezone.utc) + _AHEAD:
        return watermark
    _LOG.warning(
        "resolve.groups.%s.watermark: %s lies in the future, so nothing counts as absent: is its time zone UTC?",
        group,
        watermark.isoformat(),
    )
    return None


def _refused(parts: list[pa.Table]) -> pa.Table:
    refused = pa.concat_tables([ROWS.empty_table().select(REFUSED[:5]), *parts], promote_options="default")
    for row in refused.slice(0, _SHOWN).to_pylist():
        key = "/".join(str(row[name]) for name in (*QUEUE, "queue_offset"))
        _LOG.warning("%s of %s: business data says both, COMMIT and ROLLBACK", key, row["producer_group"])
    return refused


# ---- the outcomes that business data gives, with evidence, or why there is none ----


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


# ---- the file beside the plan, for people ----


def refused_beside(plan: str) -> str:
    """Returns the name of the file for what a plan refuses: `orders.refused.jsonl` for `orders.jsonl`."""
    path = Path(plan)
    return str(path.with_name(f"{path.stem}.refused{path.suffix}"))


def write_refused(rows: pa.Table, path: str) -> None:
    """Writes the rows to a new file, in the form of the plan."""
    refuse_existing(path)
    try:
        if path.endswith(".parquet"):
            pq.write_table(rows, path)
        else:
            Path(path).write_text("".join(f"{json.dumps(row)}\n" for row in rows.to_pylist()), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--plan: {path} cannot be written: {error}") from error
