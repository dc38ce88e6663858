"""The rules the whole way, through landing and Delta: the cases of `test_rules`, and whole messages as written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from chispa import assert_df_equality
from conftest import NewWarehouse
from halfop.warehouse.tables import Warehouse
from model import reference as m
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from support import rows as r
from support.rules.cases_of_lines import OBSERVED, RULES
from support.rules.one_look import ONE_LOOK
from support.rules.rule_case import Case, Outcome, by_the_model, check, landed_abreast, named, outcome
from support.rules.rule_words import HOUR, MINUTE, NOW, SECOND, commit, half
from support.rules.stories import STORIES
from support.rules.unlike_the_broker import STORY_RULES, UNLIKE_THE_BROKER

pytestmark = pytest.mark.thorough
# Fewer instants than `test_rules` has: a run the whole way costs a hundred times one on frames in memory.
RUNS = [NOW, NOW + MINUTE, NOW + 2 * MINUTE]
TOLD = [*UNLIKE_THE_BROKER, *STORIES]


@dataclass(frozen=True)
class Written:
    warehouse: Warehouse
    outcome: Outcome


def written(
    warehouse: Warehouse, cases: Sequence[Case], rules: m.Settings, runs: Sequence[int], layout: r.Layout = "single"
) -> Written:
    """Lands and runs all cases side by side: the rows of run n land at its instant."""
    for run, now in enumerate(runs):
        landing = landed_abreast(cases, run, now)
        r.land(warehouse, landing.halves, landing.ops, now, landing.known)
        if landing.resumes:
            r.resume(warehouse, landing.resumes, now)
        r.run(warehouse, rules, now, layout=layout)
    by_run = [r.decisions(warehouse, run) for run in range(1, len(runs) + 1)]
    rejects = warehouse.read("rejected").select("broker_name", "kind", "reason").collect()
    return Written(warehouse, outcome(cases, by_run, [(row[0], row[1], row[2]) for row in rejects]))


# ---- what is written: whole messages ----

PROPERTIES = {
    "REAL_TOPIC": "Written",
    "REAL_QID": "3",
    "TRAN_MSG": "true",
    "PGROUP": "g",
    "UNIQ_KEY": "k0",
    "KEYS": "a b",
    "TAGS": "tag",
    "own": "ü",
    "DELAY": "3",
    "__CRC32#": "0123456789",
    "TIMER_DELIVER_MS": "1750000000000",
    "TIMER_DEL_UNIQKEY": "k0",
    "TIMER_OWN": "kept",
    "WAIT": "",
}
WHOLE: dict[str, Any] = {
    "tags": "tag",
    "keys": "a b",
    "flag": -7,
    "sys_flag": 0b10110,  # prepared (0x4), with two flags that have nothing to do with transactions
    "born_host": "10.0.0.1:1234",
    "store_host": "[::1]:10911",
    "reconsume_times": 2,
    "body": bytearray(b"\x00\xff body"),
    "offset_msg_id": "0A000001000012340000000000000100",
    "properties": PROPERTIES,
}
TO_COMMIT, TO_DISCARD, TO_CHECK = "written: commit", "written: discard", "written: check"


def whole(broker: str, age: int) -> dict[str, Any]:
    return r.half_cells(half(age=age, real_topic="Written"), NOW) | WHOLE | {"broker_name": broker}


def land_whole(warehouse: Warehouse) -> None:
    rows = [whole(TO_COMMIT, 10 * SECOND), whole(TO_DISCARD, 80 * HOUR), whole(TO_CHECK, 10 * SECOND)]
    r.land(warehouse, [], [commit(offset=77, broker=TO_COMMIT)], NOW)
    r.append(warehouse, "half_messages", rows)


@pytest.fixture(scope="module")
def looked(new_warehouse: NewWarehouse) -> Written:
    warehouse = new_warehouse("looked")
    land_whole(warehouse)
    return written(warehouse, ONE_LOOK, RULES, [NOW], "per_topic")


@pytest.fixture(scope="module")
def told(new_warehouse: NewWarehouse) -> Written:
    return written(new_warehouse("told"), TOLD, STORY_RULES, RUNS)


@pytest.mark.parametrize("case", ONE_LOOK, ids=named)
def test_one_look(looked: Written, case: Case) -> None:
    check(looked.outcome, case)


@pytest.mark.parametrize("case", TOLD, ids=named)
def test_runs_one_after_the_other(told: Written, case: Case) -> None:
    """Runs decide as the reference model does, which `test_rules` holds against what is written down for each case."""
    wanted, rejects = by_the_model(case, STORY_RULES, RUNS)
    check(told.outcome, replace(case, wanted=wanted, rejects=rejects))


def test_watching_asks_nobody_and_discards_only_at_its_end(warehouse: Warehouse) -> None:
    found = written(warehouse, OBSERVED, replace(RULES, ask=False), [NOW])
    for case in OBSERVED:
        check(found.outcome, case)
    assert {row.reason for row in r.discards(warehouse)} == {"END_NOT_SEEN"}
    assert r.requests(warehouse) == {}


def test_nothing_is_put_back_to_the_half_queue(told: Written) -> None:
    rows = told.warehouse.read("half_messages").where(F.col("broker_name") == "nothing is put back")
    assert rows.count() == 1


def test_a_committed_transaction_is_delivered_once(told: Written) -> None:
    delivered = r.delivered(told.warehouse)
    assert set(delivered.values()) == {1}
    keys = [row.key[0] for row in delivered]
    assert len(keys) == len(set(keys))
    committed = {name for name, of in told.outcome.decided.items() if any(text.startswith("COMMIT") for text in of)}
    assert set(keys) == committed


def only(warehouse: Warehouse, name: str, broker: str) -> DataFrame:
    return warehouse.read(name).where(F.col("broker_name") == broker)


def test_a_commit_writes_the_half_message_as_end_message_transaction_restores_it(looked: Written) -> None:
    restored = {
        name: WHOLE[name] for name in ("body", "flag", "tags", "keys", "born_host", "store_host", "reconsume_times")
    }
    left_out = ("REAL_TOPIC", "REAL_QID", "TRAN_MSG", "__CRC32#", "DELAY", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY")
    kept = {name: value for name, value in PROPERTIES.items() if name not in left_out}
    wanted = restored | {
        "topic": "Written",
        "queue_id": 3,
        "sys_flag": 0b11010,
        "born_timestamp": NOW - 10 * SECOND,
        "store_timestamp": NOW - 10 * SECOND,
        "prepared_transaction_offset": 0,
        "transaction_id": "k0",
        "properties": kept,
        "broker_name": TO_COMMIT,
        "half_queue_id": 0,
        "half_queue_offset": 0,
        "op_queue_offset": 77,
        "run_id": 1,
        "committed_at": NOW,
    }
    same(looked.warehouse, "real_topic", only(looked.warehouse, "topics/Written", TO_COMMIT), wanted)


def test_a_discard_keeps_the_whole_half_message(looked: Written) -> None:
    wanted = whole(TO_DISCARD, 80 * HOUR) | {"reason": "EXPIRED", "check_times": 0, "run_id": 1, "discarded_at": NOW}
    same(looked.warehouse, "trans_check_max_time", only(looked.warehouse, "trans_check_max_time", TO_DISCARD), wanted)


def test_a_check_asks_with_what_the_producers_listener_reads(looked: Written) -> None:
    rows = only(looked.warehouse, "check_requests", TO_CHECK)
    wanted = {
        "request_id": rows.collect()[0]["request_id"],
        "broker_name": TO_CHECK,
        "producer_group": "g",
        "real_topic": "Written",
        "real_queue_id": 3,
        "uniq_key": "k0",
        "msg_id": "k0",
        "offset_msg_id": WHOLE["offset_msg_id"],
        "commit_log_offset": 0,
        "tran_state_table_offset": 0,
        "check_times": 1,
        "body": WHOLE["body"],
        "properties": PROPERTIES,
        "run_id": 1,
        "requested_at": NOW,
        "half_queue_id": 0,
        "born_timestamp": NOW - 10 * SECOND,
        "store_timestamp": NOW - 10 * SECOND,
        **{name: WHOLE[name] for name in ("sys_flag", "flag", "born_host", "store_host", "reconsume_times")},
    }
    same(looked.warehouse, "check_requests", rows, wanted)


def test_a_request_id_is_unique(told: Written) -> None:
    ids = told.warehouse.read("check_requests").select("request_id")
    assert ids.count() == ids.distinct().count() > 10


def test_a_reject_says_where_to_find_the_row(looked: Written) -> None:
    found = only(looked.warehouse, "rejected", "garbage 'x'").collect()[0]
    assert (found["kind"], found["queue_id"], found["queue_offset"], found["run_id"]) == ("OP", 0, 0, 1)
    assert "item 0, text x" in found["detail"]


def same(warehouse: Warehouse, name: str, found: DataFrame, wanted: Mapping[str, Any]) -> None:
    expected = r.frame(warehouse, name, [dict(wanted)])
    assert_df_equality(found.select(expected.columns), expected, ignore_nullable=True, ignore_metadata=True)
