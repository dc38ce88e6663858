"""One row a half message with all that bears on it; from it come the decisions and the rejects."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, QUEUE, micros
from halfop.rules import halves as h
from halfop.rules import ops as o
from halfop.rules.questions import PENDING
from halfop.rules.reasons import Reason
from halfop.rules.settings_columns import NO_TIME, RuleColumns, own_immunity
from halfop.rules.table import decide
from halfop.rules.transactions import knows

_CARRIED = ("CHECK", "WAIT", "EARLY_OP")
_OF_COPY = {"copy_offset": "bigint", "copy_broker": "string", "copy_queue": "int"}
_REJECT = ["kind", "reason", *QUEUE, "queue_offset", "item", "half_offset", "detail"]


def cases(halves: DataFrame, resumes: DataFrame | None, queues: DataFrame, rules: RuleColumns) -> DataFrame:
    """Joins resumes and queue clocks to halves (one a key) with the ops that name them.

    The ops are an array `ops`. A row without `state` holds ops whose half message has not landed.
    """
    rows = halves.withColumnRenamed("decision", "before")
    # below a join, because Spark would repeat these wherever they are used
    rows = rows.withColumns({"immunity": own_immunity(rules.timeout), "undeliverable": h.undeliverable()})
    rows = with_resumes(rows, resumes)
    rows = rows.join(F.broadcast(queues), QUEUE, "left").withColumn("clock", _clock(rules))
    rows = rows.withColumn("winner", F.when(F.col("state").isNotNull(), o.winner(rules)))
    return _reopened(rows).withColumn("verdict", _verdict(rules, "given_up" in rows.columns))


def with_resumes(rows: DataFrame, resumes: DataFrame | None) -> DataFrame:
    """Returns rows with `asked_for`, the first resume that arrived for the row."""
    if resumes is None:
        return rows.withColumn("asked_for", F.lit(None).cast("timestamp"))
    asked_for = resumes.groupBy(HALF_KEY).agg(F.min("resumed_at").alias("asked_for"))
    return rows.join(F.broadcast(asked_for), HALF_KEY, "left")


def _clock(rules: RuleColumns) -> Column:
    """The queue clock. ≠ broker: time stands still for a queue whose op log has not landed."""
    known = F.least(micros(F.lit(rules.now)), micros(F.col("known_until")))
    unknown = F.when(F.col("has_clock").isNull(), micros(F.lit(rules.now))).otherwise(F.lit(NO_TIME))
    return F.when(F.col("known_until").isNotNull(), known).otherwise(unknown)


def _reopened(rows: DataFrame) -> DataFrame:
    """A resume makes a discarded message open again, never checked, unless an op ends it first."""
    reopened = (F.col("state") == h.DISCARDED) & F.col("asked_for").isNotNull() & F.col("winner").isNull()
    return rows.withColumns(
        {
            "state": F.when(reopened, h.OPEN).otherwise(F.col("state")),
            "check_times": F.when(reopened, 0).otherwise(F.col("check_times")),
            "last_checked_at": F.when(~F.coalesce(reopened, F.lit(False)), F.col("last_checked_at")),
            "resumed_at": F.when(reopened, F.col("asked_for")).otherwise(F.col("resumed_at")),
            PENDING: F.when(~F.coalesce(reopened, F.lit(False)), F.col(PENDING)),
            "was_open": F.col("state") == h.OPEN,
        }
    )


def _verdict(rules: RuleColumns, given_up: bool) -> Column:
    after = F.struct(F.col("winner")["outcome"].alias("decision"), F.lit(Reason.AFTER_DISCARD.name).alias("reason"))
    return F.when(_looked_at(), decide(rules, given_up)).when(_ended_after_discard(), after)


def _looked_at() -> Column:
    return F.col("state").isin(h.NEW, h.OPEN)


def _ended_after_discard() -> Column:
    return (F.col("state") == h.DISCARDED) & F.col("winner").isNotNull()


def decisions(rows: DataFrame, rules: RuleColumns) -> DataFrame:
    """A row for every message that the run looked at, and one for every op that waits for its half message."""
    return decision_rows(rows, rules).where("open IS NOT NULL")


def decision_rows(rows: DataFrame, rules: RuleColumns) -> DataFrame:
    """The decisions; and rows whose `open` is null, which only mark that something was not used."""
    now, verdict, is_op = F.lit(rules.now), F.col("verdict"), F.col("state").isNull()
    marks = F.when(_leaves(rules), F.array(F.lit(False), F.lit(True))).otherwise(F.array(F.lit(False)))
    rows = rows.withColumn("is_mark", F.explode(marks))
    rows = rows.withColumn("op", F.explode_outer(F.when(is_op & ~F.col("is_mark"), F.filter("ops", _unless_carried))))
    kept = F.when(is_op, o.why_given_up(F.col("op"), rules).isNull()).otherwise(_looked_at() | _ended_after_discard())
    decision = F.when(is_op, "EARLY_OP").otherwise(verdict["decision"])
    asked = verdict["decision"].eqNullSafe(F.lit("CHECK"))
    counts = asked if rules.counts_later is None else asked & ~rules.counts_later
    ended = verdict["decision"].isin("COMMIT", "ROLLBACK")
    decided = rows.where(F.col("is_mark") | kept).withColumns(
        {
            "decision": F.when(~F.col("is_mark"), decision),
            "reason": verdict["reason"],
            "check_times": F.col("check_times") + counts.cast("int"),
            "last_checked_at": F.when(asked, now).otherwise(F.col("last_checked_at")),
            "op_queue_offset": F.when(is_op, F.col("op")).when(ended, F.col("winner"))["op_queue_offset"],
            "op": F.when(is_op, o.as_text(F.col("op"))),
        }
    )
    return _finished(decided.withColumns(_ended_by(F.when(ended, F.col("winner")))).withColumns(_remembered()), now)


def _ended_by(op: Column) -> dict[str, Column]:
    """Columns that an op gives of the copy that it names; a final message has no op offset."""
    return {
        "op_queue_offset": F.when(~o.is_final(op), F.col("op_queue_offset")),
        "half_landed_at": F.coalesce(op["copy_landed_at"], F.col("half_landed_at")),
        **{name: op[name] for name in _OF_COPY},
    }


def carried_over(open_rows: DataFrame, rules: RuleColumns) -> DataFrame:
    """Open rows outside a slice of a backlog: this run does not look at them, the next one finds them as they are."""
    kept = F.col("decision") == "EARLY_OP"
    rows = open_rows.withColumns(
        {
            "reason": F.when(F.col("decision") == "CHECK", Reason.CHECKED_RECENTLY.name).otherwise(F.col("reason")),
            **{name: F.lit(None).cast(kind) for name, kind in _OF_COPY.items()},
            "decision": F.when(kept, "EARLY_OP").otherwise("WAIT"),
        }
    )
    return _finished(rows, F.lit(rules.now))


def _finished(rows: DataFrame, now: Column) -> DataFrame:
    nowhere = {"superseded_by": "bigint", "superseded_by_broker": "string", "superseded_by_queue": "int"}
    return rows.withColumns(
        {
            "open": F.col("decision").isin(*_CARRIED),
            "decided_at": now,
            **{name: F.lit(None).cast(kind) for name, kind in nowhere.items()},
        }
    )


def _remembered() -> dict[str, Column]:
    """The facts about a transaction's copies that a later run must know."""
    lacks = {"orphan": F.when(F.col("marked"), True), "escaped_key": F.when(F.col("escaped"), F.col("uniq_key"))}
    return lacks | h.written_copies()


def _unless_carried(op: Column) -> Column:
    """An op that landed again while it waits is not carried twice."""
    carried = F.exists("ops", lambda other: ~other["again"] & _same_op(op, other))
    return ~op["again"] | ~carried


def _same_op(one: Column, other: Column) -> Column:
    keys = ["op_queue_offset", "item", "source", "life", "copy_broker", "copy_queue"]
    return F.struct(*[one[k] for k in keys]).eqNullSafe(F.struct(*[other[k] for k in keys]))


def _leaves(rules: RuleColumns) -> Column:
    """Returns whether a case has more ops than were used, or gives one up, or has other rows or a resume."""
    used = F.coalesce(F.col("verdict")["decision"].isin("COMMIT", "ROLLBACK").cast("int"), F.lit(0))
    given_up = F.exists("ops", lambda op: o.why_given_up(op, rules).isNotNull())
    unused = F.when(F.col("state").isNull(), given_up).otherwise(F.size("ops") > used)
    return (
        F.coalesce(unused, F.lit(False))
        | F.coalesce(F.size("extras") > 0, F.lit(False))
        | F.col("asked_for").isNotNull()
    )


def may_have_rejects(rows: DataFrame, rules: RuleColumns) -> DataFrame:
    """Returns the few cases of which something was not used, as `planned` marks them."""
    return rows.where(_leaves(rules))


def rejected_ops(rows: DataFrame, rules: RuleColumns) -> DataFrame:
    """Returns the ops that end nothing, once however often they land."""
    named = rows.withColumn("op", F.explode(F.filter("ops", lambda op: _unless_carried(op) & ~o.is_final(op))))
    why = F.when(F.col("state").isNull(), o.why_given_up(F.col("op"), rules)).otherwise(
        o.why_not_used(F.col("op"), rules)
    )
    told = ~F.col("op")["again"] | _is_news("earlier" in rows.columns)
    unused = named.withColumn("why", why).where(F.col("why").isNotNull() & told)
    op, place = F.col("op"), _named_key()
    half_offset = place["queue_offset"]
    names = [F.lit("item "), op["item"], F.lit(" names half offset "), half_offset]
    detail = F.concat(*names, F.lit(", outcome "), op["outcome"])
    place |= {"queue_offset": op["op_queue_offset"], "item": op["item"], "half_offset": half_offset}
    return unused.select(_reject("OP", reason=F.col("why"), **place, detail=detail)).distinct()


def _reject(kind: str, **cells: Column) -> list[Column]:
    """The columns that all rejects of a run have, in one order."""
    given = {name: F.col(name) for name in QUEUE} | {"kind": F.lit(kind), "item": F.lit(None).cast("int")} | cells
    return [given[name].alias(name) for name in _REJECT]


def _is_news(copies: bool) -> Column:
    """Returns whether an op that an earlier run has seen is rejected for another reason now.

    Then its half message was unknown to that run, rejected or open. `copies`: rows may have `earlier`.
    """
    end = F.col("why").isin(Reason.REDUNDANT.name, Reason.CONFLICT.name) & (F.col("state") != h.ENDED)
    new = (F.col("state") == h.NEW) & (F.col("why") != Reason.HALF_REJECTED.name)
    if copies:  # what a known copy's op is rejected for never changes, but for an end
        named = F.struct(*[column.alias(name) for name, column in _named_key().items()])
        new &= ~F.coalesce(knows(F.col("earlier"), named), F.lit(False))
    return end | new


def _named_key() -> dict[str, Column]:
    """The half key that `op` names: that of a copy, or of the row that stands."""
    of_copy = {"broker_name": "copy_broker", "queue_id": "copy_queue", "queue_offset": "copy_offset"}
    return {name: F.coalesce(F.col("op")[of], F.col(name)) for name, of in of_copy.items()}


def faulty_ops(ops: DataFrame) -> DataFrame:
    """Returns the op rows with a fault of their own."""
    faulty = ops.where(o.is_faulty())
    found = [("item ", "item"), (", text ", "text"), (", outcome ", "outcome"), (", stored ", "store_timestamp")]
    detail = F.concat(
        *[F.concat(F.lit(label), F.coalesce(F.col(c).cast("string"), F.lit("none"))) for label, c in found]
    )
    fault, place = F.col("fault"), {"queue_offset": F.col("op_queue_offset"), "item": F.col("item")}
    # an op with another fault names no half message
    half_offset = F.when(fault.isin(Reason.NO_OUTCOME.name, Reason.KEY_REUSED.name), F.col("half_offset"))
    return faulty.select(_reject("OP", reason=fault, **place, half_offset=half_offset, detail=detail))


def reused_keys(rows: DataFrame) -> DataFrame:
    """Returns half rows of another identity under a key that stands: a broker was rebuilt under its old name."""
    extra = rows.where(F.size("extras") > 0).withColumn("extra", F.explode("extras"))
    other = F.struct(*[F.col("extra")[c].alias(c) for c in h.IDENTITY])
    detail = F.concat(F.lit("another message has this key: "), F.to_json(other))
    offset = F.col("extra")["queue_offset"]
    place = {"queue_offset": offset, "half_offset": offset}
    return extra.select(_reject("HALF", reason=F.lit(Reason.KEY_REUSED.name), **place, detail=detail)).distinct()


def refused_resumes(rows: DataFrame, resumes: DataFrame) -> DataFrame:
    """Returns the resumes of what is not discarded once the ops have been applied, and the second of two."""
    ended = F.col("state").isin(h.ENDED, h.DISCARDED) | F.col("verdict")["decision"].isin("COMMIT", "ROLLBACK")
    rejected = (F.col("state") == h.REJECTED) | (F.col("verdict")["decision"] == "REJECT")
    state = (
        F.when(F.col("state").isNull(), Reason.UNKNOWN.name)
        .when(rejected, Reason.HALF_REJECTED.name)
        .when(ended, Reason.ENDED.name)
        .when(F.col("was_open") | (F.col("state") == h.NEW), Reason.OPEN.name)
    )
    states = rows.select(*HALF_KEY, state.alias("why"), "asked_for", F.lit(True).alias("found"))
    each = resumes.join(states, HALF_KEY, "left")
    asked = F.col("asked")
    why = F.when(F.col("found").isNull(), Reason.UNKNOWN.name).otherwise(F.col("why"))
    second = F.when(F.col("nth") > 1, Reason.OPEN.name)
    refused = each.withColumn("reason", F.coalesce(why, second)).where(F.col("reason").isNotNull())
    detail = F.concat(
        F.lit("resumed by "), F.coalesce("owner", F.lit("unknown")), F.lit(" at "), F.col("resumed_at").cast("string")
    )
    place = {name: asked[name] for name in (*QUEUE, "queue_offset")} | {"half_offset": asked["queue_offset"]}
    return refused.select(_reject("RESUME", reason=F.col("reason"), **place, detail=detail))
