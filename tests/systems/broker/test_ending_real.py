"""`end` and `resume --broker` as a user calls them, from landing to landing: the lake follows the broker that owns."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from halfop.audit.audit import audit
from halfop.ending.endable import checked
from halfop.frame.cli import main
from halfop.rocketmq.wire.client import Broker, HalfPlace, end_transaction
from halfop.settings.model import Settings
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import Row
from support.brokers.rewinds import cut_off
from support.crash import KILLED, dying, ended
from support.ending_rows import connected, delivered, ended_offsets, halves, open_still, originals
from support.entry_points import job_of

from systems.broker.land_and_decide import followed
from systems.broker.real_broker import Plan, RealBroker, broker

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("logging_as_before")]
IN_ROCKSDB: dict[str, object] = {"transRocksDBEnable": True, "transWriteOriginTransHalfEnable": False}


@pytest.fixture
def called(warehouse: KernelWarehouse, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(job: str, *options: str) -> dict[str, Any]:
        common = ("--warehouse", warehouse.root, "--set", "end.brokers=broker-a", "--set", "end.min_age=0s")
        status = main(job_of(job), [*common, *options])
        said: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert said["status"] == status
        return said

    return call


@pytest.mark.parametrize("version", [4, 5, 5.5])
def test_the_lake_follows(version: float, tmp_path: Path, warehouse: KernelWarehouse, called: Any) -> None:
    with broker(version, tmp_path / "broker", {"transactionCheckMax": 1000}) as running, connected(running) as there:
        truths = running.produce([Plan("follows", "U")] * 12)
        assert {decision for decision, _ in followed(warehouse, running).values()} == {"WAIT"}
        commits, rollbacks = str(tmp_path / "commits.jsonl"), str(tmp_path / "rollbacks.parquet")
        odd = "real_topic = 'follows' AND queue_offset % 2 = {}"
        planned = called("end", "--where", odd.format(1), "--commit", "--plan", commits)["planned"]
        planned += called("end", "--where", odd.format(0), "--rollback", "--plan", rollbacks)["planned"]
        assert planned == 12
        time.sleep(1.5)  # the broker's check goes on
        said = called("end", "--apply", commits, "--broker", running.address)
        assert (said["status"], set(said["endings"])) == (0, {"VERIFIED"}), said
        said = called("end", "--apply", rollbacks, "--namesrv", running.namesrv)
        assert (said["status"], set(said["endings"])) == (0, {"VERIFIED"}), said
        assert open_still(there, "follows") == []
        found = followed(warehouse, running)
        final = delivered(there, "follows")
        assert {key: decision for key, (decision, _) in found.items()} == {
            truth.uniq: "COMMIT" if truth.uniq in final else "ROLLBACK" for truth in truths
        }
        assert set(final.values()) == {1}
        assert warehouse.read("real_topics").count() == len(final)


@pytest.mark.parametrize("version", [4, 5, 5.5])
def test_resumed_where_it_was_given_up(version: float, tmp_path: Path, warehouse: KernelWarehouse, called: Any) -> None:
    with broker(version, tmp_path / "broker", {"transactionCheckMax": 1}) as running, connected(running) as there:
        running.produce([Plan("given-up", "U")] * 3)
        while there.max_offset("TRANS_CHECK_MAX_TIME_TOPIC", 0) < 3:
            time.sleep(0.2)
        assert set(followed(warehouse, running).values()) == {("DISCARD", "BROKER_DISCARDED")}
        before = len(halves(there))
        said = called("resume", "--where", "true", "--broker", running.address, "--dry-run")
        assert (said["would_resume"], len(halves(there))) == (3, before)
        said = called("resume", "--where", "true", "--broker", running.address)
        assert (said["status"], said["endings"]) == (0, {"VERIFIED": 3}), said
        assert len(halves(there)) >= before + 3
        kinds = {(row["kind"], row["state"]) for row in warehouse.read("endings").collect()}
        assert kinds == {("RESUME", state) for state in ("INTENDED", "SENT", "VERIFIED")}
        key = called("resume", "--where", "true", "--broker", running.address)
        assert key["endings"] == {"ENDED_MEANWHILE": 3}, "the broker's check walks them"


SHOP = """
resolve:
  groups:
    producers:
      tables: {orders: {path: PATH}}
      query: >
        SELECT id AS key, state, CASE state WHEN 'PAID' THEN 'COMMIT' WHEN 'CANCELLED' THEN 'ROLLBACK' END AS outcome
        FROM orders
      evidence: [state]
"""


@pytest.mark.parametrize(
    ("version", "kept"), [(4, {}), (5, {}), (5.5, {}), (5.5, IN_ROCKSDB)], ids=["4", "5", "5.5", "5.5, RocksDB"]
)
def test_business_data_ends_what_hangs_at_the_broker(
    version: float, kept: dict[str, object], tmp_path: Path, warehouse: KernelWarehouse, called: Any
) -> None:
    settings = {"transactionCheckMax": 1000, **kept}
    with broker(version, tmp_path / "broker", settings) as running, connected(running) as there:
        keys = [truth.uniq for truth in running.produce([Plan("shop", "U")] * 9)]
        assert {decision for decision, _ in followed(warehouse, running).values()} == {"WAIT"}
        states = dict(zip(keys, ["PAID"] * 4 + ["CANCELLED"] * 3 + ["NEW"], strict=False))
        write_deltalake(tmp_path / "orders", pa.table({"id": list(states), "state": list(states.values())}))
        config, plan = tmp_path / "halfop.yaml", str(tmp_path / "plan.jsonl")
        config.write_text(SHOP.replace("PATH", str(tmp_path / "orders")))
        said = called("resolve", "--config", str(config), "--group", "producers", "--plan", plan)
        assert (said["planned"], said["left_out"]) == (7, {"NOT_FOUND": 1, "UNDECIDED": 1}), said
        assert not delivered(there, "shop"), "a plan ends nothing"
        said = called("end", "--apply", plan, "--namesrv", running.namesrv)
        assert (said["status"], said["endings"]) == (0, {"VERIFIED": 7}), said
        assert delivered(there, "shop") == dict.fromkeys(keys[:4], 1)
        if not kept:  # RocksDB's ops name no offsets: the decisions below are by them
            assert open_still(there, "shop") == sorted(keys[7:])
        wanted = dict(zip(keys, ["COMMIT"] * 4 + ["ROLLBACK"] * 3 + ["WAIT"] * 2, strict=True))
        assert {key: decision for key, (decision, _) in followed(warehouse, running).items()} == wanted
        assert {row["transaction_id"] for row in warehouse.read("real_topics").collect()} == set(keys[:4])
        # the broker may have put copies back meanwhile, which are swept
        endings = warehouse.read("endings").where("state = 'VERIFIED' AND origin <> 'SWEEP'").collect()
        assert {(row["uniq_key"], row["origin"], row["evidence"]) for row in endings} == {
            (key, "RESOLVE", f'{{"state":"{states[key]}"}}') for key in keys[:7]
        }


# an answer that waits in the broker's queue is refused soon, so that a doubt is over soon
KILLED_OFTEN = {"transactionCheckMax": 1000, "waitTimeMillsInTransactionQueue": 1000}


def test_the_job_killed_at_its_commits(tmp_path: Path, warehouse: KernelWarehouse, called: Any) -> None:
    """Before INTENDED is there; twice when the answers have left, and nobody has recorded what came of them."""
    with broker(5, tmp_path / "broker", KILLED_OFTEN) as running, connected(running) as there:
        truths = running.produce([Plan("killed", "U")] * 6)
        followed(warehouse, running)
        file = str(tmp_path / "plan.jsonl")
        assert called("end", "--where", "real_topic = 'killed'", "--commit", "--plan", file)["planned"] == 6
        options = ("--apply", file, "--broker", running.address, "--set", "end.brokers=broker-a")
        for left in (0, 6, 6):
            status, said = ended(dying("before", 2, "end", *options, "--warehouse", warehouse.root))
            assert status == KILLED, said
            assert sum(delivered(there, "killed").values()) == left
        said = called("end", *options)
        assert (said["status"], said["endings"]) == (0, {"VERIFIED": 6}), said
        assert delivered(there, "killed") == {truth.uniq: 1 for truth in truths}
        assert open_still(there, "killed") == []


@pytest.mark.parametrize("version", [4, 5])
def test_a_run_that_goes_on_meanwhile(
    version: int, tmp_path: Path, warehouse: KernelWarehouse, called: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer rolls back, and that lands and is decided, after the plan was compared with the last decisions."""
    with (
        broker(version, tmp_path / "broker", {"transactionTimeOut": 3_600_000}) as running,
        connected(running) as there,
    ):
        one, two = [truth.uniq for truth in running.produce([Plan("follow", "U")] * 2, threads=1)]
        followed(warehouse, running)
        file = str(tmp_path / "plan.jsonl")
        assert called("end", "--where", "real_topic = 'follow'", "--commit", "--plan", file)["planned"] == 2

        def follow(warehouse: KernelWarehouse, plan: Any) -> Any:
            found = checked(warehouse, plan)
            (mine,) = [half for half in originals(there, "follow") if half["uniq_key"] == one]
            request = end_transaction(HalfPlace(**{name: mine[name] for name in HalfPlace._fields}), commit=False)
            assert there.remote.answer(request).code == 0
            while mine["queue_offset"] not in ended_offsets(there):
                time.sleep(0.1)
            assert followed(warehouse, running)[one] == ("ROLLBACK", "PRODUCER")
            return found

        monkeypatch.setattr("halfop.ending.apply.checked", follow)
        monkeypatch.setattr("halfop.ending.sender._LONGEST_ROUND", timedelta(0))  # its check passes no fresh message
        assert called("end", "--apply", file, "--broker", running.address)["endings"] == {
            "VERIFIED": 1,
            "ENDED_MEANWHILE": 1,
        }
        assert delivered(there, "follow") == {two: 1}


def places(there: Broker, topic: str) -> dict[str, tuple[int, int]]:
    """By UNIQ_KEY: a half message's offset and its place in the log."""
    return {row["uniq_key"]: (row["queue_offset"], row["commit_log_offset"]) for row in originals(there, topic)}


@pytest.mark.parametrize("version", [4, 5])
def test_after_a_rewind(version: int, tmp_path: Path, warehouse: KernelWarehouse, called: Any) -> None:
    """What stands below the cut ends at the broker, and what is new; what it lost does not, though others are there."""
    commit = ("end", "--where", "real_topic = 'rewound'", "--commit", "--plan")
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    with broker(version, tmp_path / "broker", {"transactionTimeOut": 3_600_000}) as running:
        kept = [each.uniq for each in running.produce([Plan("rewound", "U")] * 3)]
        lost = [each.uniq for each in running.produce([Plan("rewound", "U")] * 2)]
        with connected(running) as there:
            was = places(there, "rewound")
        followed(warehouse, running)
        assert called(*commit, str(before))["planned"] == 5
        lines = before.read_text().splitlines(keepends=True)
        before.write_text("".join(line for line in lines if kept[0] not in line))
        running.kill()
        cut_off(running.store, min(was[each][1] for each in lost))
        running.restart()
        new = [each.uniq for each in running.produce([Plan("rewound", "U")] * 4)]
        apply = ("--broker", running.address)
        with connected(running) as there:
            now = places(there, "rewound")
            assert {was[each] for each in lost} <= {now[each] for each in new}, "the broker would end these instead"
            assert called("end", "--apply", str(before), *apply)["endings"] == {"VERIFIED": 2, "GONE": 2}
            assert delivered(there, "rewound") == dict.fromkeys(kept[1:], 1)
            decided = followed(warehouse, running, accept=True)
            assert {decided[each] for each in lost} == {("DISCARD", "LOST_BY_BROKER")}
            assert called(*commit, str(after))["planned"] == 5, "what is open: of both lives, and nothing that is lost"
            assert called("end", "--apply", str(after), *apply)["endings"] == {"VERIFIED": 5}
            assert delivered(there, "rewound") == dict.fromkeys([*kept, *new], 1)


def until(warehouse: KernelWarehouse, running: RealBroker, reasons: set[str]) -> dict[str, tuple[str, str]]:
    """Follows the broker until all messages are decided for these reasons."""
    for _ in range(60):
        found = followed(warehouse, running)
        if {reason for _, reason in found.values()} <= reasons:
            return found
        time.sleep(0.5)
    raise AssertionError(Counter(found.values()))


def test_what_the_broker_has_forgotten(tmp_path: Path, warehouse: KernelWarehouse, called: Any) -> None:
    """It asks once more than its limit; then nothing but the time shows it. A later end still counts."""
    settings = {**IN_ROCKSDB, "transactionCheckMax": 9}
    with broker(5.5, tmp_path / "broker", settings) as running, connected(running) as there:
        truth = running.produce([Plan("silent", "U" * 20)] * 20 + [Plan("silent", "C")] * 20, linger=20)
        silent = {each.uniq: each.answers for each in truth if each.plan != "C"}
        assert set(silent.values()) == {"U" * 11}, "asked ten times"
        found = until(warehouse, running, {"PRODUCER", "FORGOTTEN_BY_BROKER"})
        assert {uniq for uniq, fate in found.items() if fate == ("DISCARD", "FORGOTTEN_BY_BROKER")} == set(silent)
        summary = audit(warehouse, Settings())
        kinds = {kind: number for kind, number in summary.extra["findings"].items() if number}
        assert kinds == {"FORGOTTEN_BY_BROKER": 20}
        there_again = called("resume", "--where", "true", "--broker", running.address)
        assert (there_again["status"], there_again["resumed"]) == (0, 0), "it keeps no record"
        assert called("resume", "--where", "reason = 'FORGOTTEN_BY_BROKER'")["resumed"] == 20
        found = followed(warehouse, running)
        assert {found[uniq][0] for uniq in silent} <= {"WAIT", "CHECK"}, "asked from here"
        until(warehouse, running, {"PRODUCER", "FORGOTTEN_BY_BROKER"})
        made = str(tmp_path / "plan.jsonl")
        called("end", "--where", "decision = 'DISCARD'", "--commit", "--plan", made)
        said = called("end", "--apply", made, "--broker", running.address)
        assert (said["status"], said["endings"]) == (0, {"VERIFIED": 20}), said
        found = followed(warehouse, running)
        assert {found[uniq] for uniq in silent} == {("COMMIT", "AFTER_DISCARD")}
        assert set(delivered(there, "silent").values()) == {1}


def test_nothing_is_committed_that_was_rolled_back(tmp_path: Path, warehouse: KernelWarehouse, called: Any) -> None:
    """The broker itself takes a commit after a rollback, and delivers; `end` looks at its ops before it sends."""
    with (
        broker(5.5, tmp_path / "broker", {**IN_ROCKSDB, "transactionCheckMax": 1000}) as running,
        connected(running) as there,
    ):
        running.produce([Plan("reversed", "U")] * 60)
        assert {decision for decision, _ in followed(warehouse, running).values()} == {"WAIT"}
        plan = str(tmp_path / "plan.jsonl")
        assert called("end", "--where", "true", "--commit", "--plan", plan)["planned"] == 60
        rows = warehouse.read("half_messages").orderBy("queue_offset").collect()
        for row in rows[:20]:
            rolled_back(there, row)
        committed = rows[0]
        said = called("end", "--apply", plan, "--broker", running.address)
        assert (said["status"], said["endings"]) == (0, {"VERIFIED": 40, "ENDED_MEANWHILE": 20}), said
        assert delivered(there, "reversed") == {row["uniq_key"]: 1 for row in rows[20:]}
        found = {uniq: decision for uniq, (decision, _) in followed(warehouse, running).items()}
        assert found == {row["uniq_key"]: "COMMIT" if n >= 20 else "ROLLBACK" for n, row in enumerate(rows)}
        end(there, committed, commit=True)
        assert delivered(there, "reversed")[committed["uniq_key"]] == 1, "what a broker does by itself"


def rolled_back(there: Broker, row: Row) -> None:
    end(there, row, commit=False)


def end(there: Broker, row: Row, commit: bool) -> None:
    names = ("producer_group", "uniq_key", "real_topic", "queue_offset", "commit_log_offset")
    half = HalfPlace(*(row[name] for name in names))
    there.remote.ask(end_transaction(half, commit))
