"""What a run reads, counted and joined: the ways to a plan agree, and the counts that choose between them are right."""

from __future__ import annotations

import model as m
import pytest
import rows as r
from chispa import assert_df_equality
from halfop.planning.inputs import Inputs, pinned
from halfop.planning.plan import Plan
from halfop.planning.ranges import Meeting, Span, Tally, meeting
from halfop.runs.reconcile import Request, _open
from halfop.warehouse.tables import Warehouse
from oracle import NOW, folders, halves, ops, settings
from pyspark.sql import DataFrame

CASES = folders()[0]


def _answered_once(landed: dict[m.Key, m.Half]) -> list[m.Op]:
    """One op a half message at most, each for a half message that is there."""
    named: dict[m.Key, m.Op] = {}
    for op in ops(CASES):
        if op.half_offset is not None and (op.broker, op.queue, op.half_offset) in landed:
            named.setdefault((op.broker, op.queue, op.half_offset), op)
    return list(named.values())


def _decided(inputs: Inputs, met: Meeting) -> DataFrame:
    again = Inputs(inputs.warehouse, inputs.run, inputs.rules, inputs.arrived_halves, inputs.arrived_ops)
    vars(again)["meeting"] = met
    return Plan(again).decisions


def test_the_ways_to_a_plan_agree(warehouse: Warehouse) -> None:
    landed = {half.key: half for half in halves(CASES)}
    queues = {(half.broker, half.queue): NOW for half in landed.values()}
    r.land(warehouse, landed.values(), _answered_once(landed), NOW, queues)
    request = Request(r.settings(settings(CASES)), r.instant(NOW))
    with pinned(warehouse, _open(warehouse, request, None)) as inputs:
        met = inputs.meeting._replace(copies=False)  # each of these messages is a transaction of its own
        assert (met.all_met, met.ops.repeated, met.headers) == (True, False, False), "the packed way"
        packed = _decided(inputs, met).cache()
        assert packed.where("decision in ('COMMIT', 'ROLLBACK')").count() > 100
        others = (met._replace(headers=True), met._replace(ops=met.ops._replace(repeated=True)), inputs.meeting)
        assert inputs.meeting.copies
        for other in others:
            decided = _decided(inputs, other).drop("orphan")
            assert_df_equality(
                packed.drop("orphan"), decided, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True
            )
        packed.unpersist()


NONE = Tally(0, 0, False, [])


def _tally(rows: int, arrived: int, repeated: bool, low: int, high: int) -> Tally:
    return Tally(rows, arrived, repeated, [Span("b", 0, low, high)] if arrived else [])


@pytest.mark.parametrize(
    ("halves_there", "ops_there", "expected"),
    [
        ([], [], Meeting(NONE, NONE, True, True, False, False)),
        (
            [(0, True), (63, True), (64, False)],
            [(63, True, False)],
            Meeting(_tally(3, 2, False, 0, 63), _tally(1, 1, False, 63, 63), True, True, False, False),
        ),
        (
            [(5, True), (5, False)],
            [(5, True, True), (5, False, False)],
            Meeting(_tally(2, 1, True, 5, 5), _tally(2, 1, True, 5, 5), True, True, True, True),
        ),
        (
            [(1, True)],
            [(65, False, False), (1, True, False)],  # the same place in another block
            Meeting(_tally(1, 1, False, 1, 1), _tally(2, 1, False, 1, 1), False, True, False, False),
        ),
        (
            [(1, True)],
            [(m.LONG_MAX, True, False)],
            Meeting(_tally(1, 1, False, 1, 1), _tally(1, 1, False, m.LONG_MAX, m.LONG_MAX), False, False, False, False),
        ),
    ],
    ids=["nothing", "met", "twice", "one that waited is unmet", "one that arrived is unmet"],
)
def test_counts_of_what_meets(
    warehouse: Warehouse,
    halves_there: list[tuple[int, bool]],
    ops_there: list[tuple[int, bool, bool]],
    expected: Meeting,
) -> None:
    put_back = expected.copies
    key = "broker_name STRING, queue_id INT, queue_offset BIGINT, arrived BOOLEAN"
    of_half = f"{key}, put_back BOOLEAN"
    frame = warehouse.spark.createDataFrame
    there = frame([("b", 0, *row, put_back) for row in halves_there], of_half)
    named = frame(
        [("b", 0, offset, arrived, (header,)) for offset, arrived, header in ops_there],
        f"{key}, op STRUCT<header: BOOLEAN>",
    )
    assert meeting(there, named) == expected
