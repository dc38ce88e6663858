"""Charts of what runs have decided: by run, by the age of what is open, by the time that an end took."""

from __future__ import annotations

import math

import altair as alt
from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from halfop.charts.look import WHOLE, Drawn, by_decision, chart, shown
from halfop.columns.keys import QUEUE
from halfop.planning.plan import PLAN_APP
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import all_of, any_of, between, equal
from halfop.wording import refuse_empty

_ENDS, _OPEN = ("COMMIT", "ROLLBACK"), ("CHECK", "WAIT")
_MOST_BARS, _MOST_DOTS = 24, 2_000


def by_run(warehouse: Warehouse, runs: int) -> Drawn:
    """Draws what each of the last runs decided."""
    refuse_empty(warehouse)
    last = warehouse.marker("decisions", PLAN_APP)
    decided = warehouse.read("decisions", where=between("run_id", last - runs + 1, last))
    name = F.concat_ws(", ", "run_id", F.date_format("decided_at", "MM-dd HH:mm:ss")).alias("run")
    found = decided.groupBy("run_id", name, "decision").agg(F.count("*").alias("messages")).collect()
    ended = sum(row["messages"] for row in found if row["decision"] in _ENDS)
    still_open = sum(row["messages"] for row in found if row["run_id"] == last and row["decision"] in _OPEN)
    bars = chart([row.asDict() for row in found]).mark_bar(height=22)
    made = bars.encode(
        x=alt.X("messages:Q", title="messages", axis=WHOLE),
        y=alt.Y("run:N", title="run", sort=alt.EncodingSortField("run_id", op="min")),
        color=by_decision({row["decision"] for row in found}),
        order=alt.Order("decision:N"),
    )
    finding = f"{ended:,} messages have ended, {still_open:,} are open"
    return shown(made, finding, "what the last runs decided", height=alt.Step(34))


# ---- open ----


def open_by_age(warehouse: Warehouse) -> Drawn:
    """Draws the ages of the messages that the last run left open."""
    refuse_empty(warehouse)
    run_id = warehouse.marker("decisions", PLAN_APP)
    left = any_of([all_of(equal("run_id", run_id), equal("decision", each)) for each in _OPEN])
    rows = warehouse.read("decisions", where=left).withColumn("age", _seconds("decided_at"))
    about = [F.min("age"), F.max("age"), F.count("*"), F.date_format(F.max("decided_at"), "HH:mm:ss")]
    youngest, oldest, messages, at = rows.agg(*about).collect()[0]
    if not messages:
        return shown(chart([]).mark_bar(), "Nothing is open", f"after run {run_id}" if run_id > 0 else "no run yet")
    step = _step(((oldest or 0) - (youngest or 0)) / _MOST_BARS)
    age = (F.floor(F.col("age") / step) * step).alias("age")
    found = rows.where("age IS NOT NULL").groupBy(age, "decision").agg(F.count("*").alias("messages")).collect()
    asked = sum(row["messages"] for row in found if row["decision"] == "CHECK")
    finding = f"Of {messages:,} open messages {asked:,} are due for a question, the oldest {oldest or 0:,.0f} s old"
    return shown(_bars(found, step), finding, f"open messages at {at}, after run {run_id}, by age")


def _bars(found: list[Row], step: float) -> alt.Chart:
    bars = chart([row.asDict() | {"below": row["age"] + step} for row in found]).mark_bar(binSpacing=2)
    made: alt.Chart = bars.encode(
        x=alt.X("age:Q", bin="binned", title="age in seconds"),
        x2="below:Q",
        y=alt.Y("messages:Q", title="messages", axis=WHOLE),
        color=by_decision({row["decision"] for row in found}),
    )
    return made


def _step(least: float) -> float:
    """Returns a round number, at least this one: 0.1, 0.2, 0.5, 1, 2, 5, 10…"""
    power = 10.0 ** math.floor(math.log10(max(least, 0.1)))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= least)


def _seconds(until: str) -> Column:
    return (F.unix_micros(until) - F.unix_micros("born_timestamp")) / 1e6


# ---- ended ----


def time_to_end(warehouse: Warehouse) -> Drawn:
    """Draws how long producers took to end their transactions: from the half message's birth to the op message."""
    refuse_empty(warehouse)
    ops = warehouse.read("op_messages").groupBy(*QUEUE, F.col("queue_offset").alias("op_queue_offset"))
    ended = warehouse.read("decisions", where=any_of([equal("decision", each) for each in _ENDS]))
    by_op = ended.join(ops.agg(F.min("store_timestamp").alias("said_at")), [*QUEUE, "op_queue_offset"])
    rows = by_op.select("decision", _seconds("said_at").alias("seconds")).where("seconds IS NOT NULL")
    found = rows.orderBy(F.rand(7)).limit(_MOST_DOTS).collect()
    dots = chart([row.asDict() for row in found]).transform_calculate(y="random()", x="max(datum.seconds, 0.001)")
    made = dots.mark_circle(size=26, opacity=0.5).encode(
        x=alt.X("x:Q", title="seconds from born to op", scale=alt.Scale(type="log"), axis=alt.Axis(grid=False)),
        y=alt.Y("y:Q", axis=None),
        color=by_decision({row["decision"] for row in found}),
    )
    return shown(
        made, _pace(sorted(row["seconds"] for row in found)), f"a dot a message, {len(found):,} of them", height=170
    )


def _pace(seconds: list[float]) -> str:
    if not seconds:
        return "No op has ended anything yet"
    middle, slow = (seconds[int(len(seconds) * part)] for part in (0.5, 0.99))
    return f"Half of the messages ended within {middle:,.2f} s, one in a hundred took more than {slow:,.1f} s"
