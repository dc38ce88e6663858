"""`end`, for a broker that lands by files: a plan, then op rows, then the next run; and what is refused on the way."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import NewWarehouse
from halfop.columns.keys import Key
from halfop.ending.plan import ROWS, EndingPlan, PlannedPlace, read, write
from halfop.ending.table import TABLE, Ending, EndingsTable, known
from halfop.explain.explain import timeline
from halfop.explain.look_up import look_up
from halfop.frame.cli import main
from halfop.frame.errors import WarehouseBusy
from halfop.landing.files.sources import complete
from halfop.landing.progress import OffsetSpan, ProgressRow, Queue, move
from halfop.rocketmq.names import OP_TOPIC
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import functions as F
from support import rows as r
from support.crash import KILLED, dying, ended
from support.entry_points import job_of
from support.messages import KNOWN, NOW, QUEUE, RULES, half, ops

pytestmark = pytest.mark.usefixtures("logging_as_before")
ALLOWED = ("--set", "end.brokers=b,c")


@pytest.fixture
def called(warehouse: KernelWarehouse, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*options: str) -> tuple[int, dict[str, Any]]:
        status = main(job_of("end"), ["--warehouse", warehouse.root, *options])
        return status, json.loads(capsys.readouterr().out.splitlines()[-1])

    return call


def states(warehouse: KernelWarehouse) -> list[tuple[int, str]]:
    rows = warehouse.read("endings").orderBy("at").collect()
    return [(row["queue_offset"], row["state"]) for row in rows]


def decided(warehouse: KernelWarehouse) -> set[tuple[int, str, str]]:
    last = warehouse.read("decisions").groupBy("queue_offset").agg(F.max_by(F.struct("*"), "run_id").alias("d"))
    return {(row["queue_offset"], row["decision"], row["reason"]) for row in last.select("d.*").collect()}


def test_a_plan_is_of_one_warehouse(
    warehouse: KernelWarehouse, new_warehouse: NewWarehouse, called: Any, tmp_path: Path
) -> None:
    """The same half keys are other messages elsewhere. The command to copy names the warehouse."""
    other, file = new_warehouse("other"), str(tmp_path / "plan.jsonl")
    for each in (warehouse, other):
        r.land(each, [half(0)], [], NOW, KNOWN)
        r.run(each, RULES, NOW)
    (note,) = called("--key", "b/0/0", "--commit", "--plan", file)[1]["notes"]
    assert f"end --warehouse {warehouse.root} --apply {file} --namesrv" in note
    status, said = called("--apply", file, *ALLOWED, "--warehouse", other.root)
    assert (status, "made for another warehouse" in said["error"]) == (2, True)
    assert other.version(TABLE) == -1, "nothing was ended"


def test_from_a_plan_to_op_rows_to_decisions(warehouse: KernelWarehouse, called: Any, tmp_path: Path) -> None:
    checked = half(3, check_times="1", store=NOW - 3_600_000)
    r.land(warehouse, [half(0), half(1), half(2), checked, half(4), half(5)], [], NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    file = str(tmp_path / "plan.jsonl")
    status, said = called("--where", "queue_offset in (0, 1, 3)", "--commit", "--plan", file)
    assert (status, said["planned"], said["left_out"]) == (0, 3, {})
    assert warehouse.version("endings") == -1, "a plan ends nothing"
    assert [row["decision"] for row in read(file).rows.to_pylist()] == ["CHECK", "CHECK", "DISCARD"]
    rest = str(tmp_path / "rest.parquet")
    assert called("--key", "b/0/2", "--key", "b/0/4", "--rollback", "--plan", rest)[0] == 0
    assert called("--key", "b/0/4", "--rollback", "--plan", rest)[0] == 2, "the file is there already"

    status, said = called("--apply", file)
    assert (status, "may not be asked" in said["error"]) == (2, True), "nobody has allowed it"
    assert called("--apply", file, *ALLOWED, "--limit", "2")[0] == 2
    r.land(warehouse, [], ops("ROLLBACK", 1), NOW + 1, KNOWN)
    r.run(warehouse, RULES, NOW + 1)
    status, said = called("--apply", file, *ALLOWED)
    assert (status, said.get("endings")) == (0, {"SENT": 2, "ENDED_MEANWHILE": 1}), said
    before = states(warehouse)
    assert before == [(1, "ENDED_MEANWHILE"), (0, "INTENDED"), (3, "INTENDED"), (0, "SENT"), (3, "SENT")]
    assert called("--apply", file, *ALLOWED)[1]["endings"] == said["endings"]
    assert states(warehouse) == before, "all of it is done"
    head = tmp_path / "head.jsonl"
    head.write_text(Path(file).read_text().splitlines()[0])
    status, said = called("--apply", str(head))
    assert (status, said["endings"]) == (0, {}), "all lines were deleted"
    assert called("--apply", rest, *ALLOWED)[0] == 0
    r.land(warehouse, [], ops("COMMIT", 4), NOW + 2, KNOWN)
    r.run(warehouse, RULES, NOW + 2)
    assert decided(warehouse) == {
        (0, "COMMIT", "CHECK"),
        (1, "ROLLBACK", "PRODUCER"),
        (2, "ROLLBACK", "CHECK"),
        (3, "COMMIT", "AFTER_DISCARD"),
        (4, "COMMIT", "PRODUCER"),
        (5, "WAIT", "CHECKED_RECENTLY"),
    }, "of 4, the producer's own answer counts"
    assert r.rejected(warehouse) == {("OP", "CONFLICT", "b", 0, 2**62 + 4, 0, 4): 1}
    status, said = called("--apply", rest, *ALLOWED)
    assert (status, said["endings"]) == (0, {"VERIFIED": 1, "ENDED_MEANWHILE": 1})
    (life,) = look_up(warehouse, {Key("b", 0, 2)})
    told = [line.partition("end: ")[2] for line in timeline(life) if "end: " in line]
    assert [line.split(",")[0] for line in told] == ["ROLLBACK INTENDED", "ROLLBACK SENT", "ROLLBACK VERIFIED"]


@pytest.mark.thorough
def test_a_second_plan_says_the_opposite_before_a_run_has_seen_the_first(
    warehouse: KernelWarehouse, called: Any, tmp_path: Path
) -> None:
    r.land(warehouse, [half(n) for n in range(3)], [], NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    first, second = str(tmp_path / "first.jsonl"), str(tmp_path / "second.jsonl")
    assert called("--key", "b/0/0", "--key", "b/0/2", "--commit", "--plan", first)[0] == 0
    assert called("--key", "b/0/0", "--rollback", "--plan", second)[0] == 0
    assert called("--apply", first, *ALLOWED)[1]["endings"] == {"SENT": 2}
    status, said = called("--apply", second, *ALLOWED)
    assert (status, said["endings"]) == (0, {"ENDED_MEANWHILE": 1}), "not SENT: the run will commit it"
    swept = EndingsTable(warehouse)
    (row,) = known(warehouse, read(first).head.plan_id, [Key("b", 0, 0)]).mine.values()
    swept.record([row._replace(key=Key("b", 0, 1), kind="ROLLBACK", origin="SWEEP", at=datetime.now(timezone.utc))])
    status, said = called("--apply", first, *ALLOWED)
    assert (status, said["endings"], said["not_tried"]) == (0, {"SENT": 2}, 0), "a copy that was swept is no row of it"


def test_what_has_changed_since_the_plan_is_not_ended(warehouse: KernelWarehouse, called: Any, tmp_path: Path) -> None:
    r.land(warehouse, [half(0), half(1), half(2)], [], NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    file = tmp_path / "plan.jsonl"
    assert called("--where", "true", "--commit", "--plan", str(file))[0] == 0
    rows = read(str(file)).rows.to_pylist()
    before = [
        {**rows[0], "decision": "DISCARD"},
        {**rows[1], "commit_log_offset": 101},
        {**rows[2], "queue_offset": 77},
    ]
    earlier = tmp_path / "earlier.jsonl"
    write(EndingPlan(read(str(file)).head, pa.Table.from_pylist([*before, rows[2]], schema=ROWS)), str(earlier))
    status, said = called("--apply", str(earlier), *ALLOWED)
    assert (status, said["endings"]) == (5, {"FAILED": 3, "SENT": 1})
    remarks = {row["queue_offset"]: row["remark"] for row in warehouse.read("endings").collect()}
    assert remarks[0] == "it was DISCARD when planned, and is CHECK now: plan again"
    assert remarks[1] == "the plan's commit_log_offset is not that of the half message"
    assert remarks[77] == "no run has decided about this half message"


@pytest.mark.slow
def test_a_resume_since_the_plan_that_no_run_has_seen_stops_the_row(
    warehouse: KernelWarehouse, called: Any, tmp_path: Path
) -> None:
    r.land(warehouse, [half(n, check_times="1", store=NOW - 3_600_000) for n in (0, 1)], [], NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    file, other = str(tmp_path / "plan.jsonl"), str(tmp_path / "other.jsonl")
    assert called("--where", "true", "--commit", "--plan", file)[1]["planned"] == 2
    r.resume(warehouse, [(*QUEUE, 0)], NOW + 1)
    status, said = called("--apply", file, *ALLOWED)
    assert (status, said["endings"]) == (5, {"FAILED": 1, "SENT": 1})
    remarks = {row["queue_offset"]: row["remark"] for row in warehouse.read("endings").collect()}
    assert remarks[0] == "it was DISCARD when planned, and is RESUMED now: plan again after the next reconcile"
    status, said = called("--key", "b/0/0", "--commit", "--plan", other)
    assert (status, said["left_out"]) == (0, {"RESUMED": 1})
    r.run(warehouse, RULES, NOW + 100_000)
    assert decided(warehouse) >= {(1, "COMMIT", "AFTER_DISCARD")}
    assert called("--key", "b/0/0", "--commit", "--plan", other)[1]["planned"] == 1


@pytest.mark.slow
def test_tables_may_be_kept_small_between_the_plan_and_its_call(
    warehouse: KernelWarehouse, called: Any, tmp_path: Path
) -> None:
    """With nothing kept, twice, and runs in between: open and discarded ones end as planned."""
    at_once = [f"retention.{name}=0s" for name in ("verify", "files", "waits", "landed")]
    kept = [each for setting in at_once for each in ("--set", setting)]
    discarded = [half(n, check_times="1", store=NOW - 3_600_000) for n in range(10, 14)]
    for n in range(4):
        r.land(warehouse, [half(n), discarded[n]], ops("COMMIT", 100 + n), NOW + n, KNOWN)
        r.run(warehouse, RULES, NOW + n, layout="per_topic")
    file = str(tmp_path / "plan.jsonl")
    assert called("--where", "queue_offset in (0, 1, 10, 11)", "--commit", "--plan", file)[1]["planned"] == 4
    for n in range(4, 13):
        r.land(warehouse, [half(200 + n)], ops("ROLLBACK", 200 + n), NOW + n, KNOWN)
        r.run(warehouse, RULES, NOW + n, layout="per_topic")
    for _ in range(2):
        assert main(job_of("maintain"), ["--warehouse", warehouse.root, *kept]) == 0
    status, said = called("--apply", file, *ALLOWED)
    assert (status, said["endings"]) == (0, {"SENT": 4})
    r.run(warehouse, RULES, NOW + 20, layout="per_topic")
    assert sorted(row["half_queue_offset"] for row in warehouse.read("topics/T").collect()) == [0, 1, 10, 11]
    assert called("--apply", file, *ALLOWED)[1]["endings"] == {"VERIFIED": 4}


def test_what_is_refused_before_anything_is_done(warehouse: KernelWarehouse, called: Any, tmp_path: Path) -> None:
    sources = {"b": "BROKER"}
    r.land(warehouse, [half(0), half(1)], [], NOW, KNOWN, sources=sources)
    r.run(warehouse, RULES, NOW)
    file = str(tmp_path / "plan.jsonl")
    for status, *options in (
        (2, "--where", "true"),
        (2, "--where", "no_such_column = 1", "--commit"),
        (2, "--where", "true", "--commit", "--limit", "1"),
        (3, "--key", "b/0/77", "--commit"),
        (2, "--apply", "x", "--commit"),
        (3, "--apply", "x"),
    ):
        assert called(*options)[0] == status, options
    assert called("--where", "true", "--commit", "--plan", file)[0] == 0
    status, said = called("--apply", file, *ALLOWED)
    assert (status, "give --namesrv or --broker" in said["error"]) == (2, True)
    none = tmp_path / "none.jsonl"
    status, said = called("--where", "true", "--rollback", "--plan", str(none), "--min-age", "90000h")
    assert (status, said["left_out"], none.exists()) == (0, {"TOO_YOUNG": 2}, False), "an empty plan is none"


def test_an_answer_of_ours_is_no_op_of_the_brokers_queue(warehouse: KernelWarehouse) -> None:
    """A gap in the op queue is closed by the broker's ops alone."""
    ours = r.op_cells(ops("COMMIT", 1)[0], NOW) | {"queue_offset": 2**62, "source": "RESOLVE"}
    r.land(warehouse, [], [*ops("COMMIT", 5), *ops("COMMIT", 6)], NOW, {})
    r.append(warehouse, "op_messages", [ours])
    queue = Queue(*QUEUE)
    move(warehouse, [ProgressRow("b", OP_TOPIC, 0, 5, None, NOW, 5, highest_offset=9)], "FILES")
    found = complete(warehouse, [queue], {queue: OffsetSpan(5, 5, NOW * 1000, True)}, {})
    assert found[queue].next_offset == 7
    assert found[queue].highest is None


@pytest.mark.parametrize("by_spark", [False, True], ids=["by Kernel", "by Spark"])
def test_a_second_process_stops_the_first(warehouse: KernelWarehouse, by_spark: bool) -> None:
    """Also if a user's constraint leaves the table to Spark's writer."""
    warehouse.make(TABLE)
    if by_spark:
        warehouse.spark.sql(f"ALTER TABLE delta.`{warehouse.path(TABLE)}` ADD CONSTRAINT named CHECK (plan_id != '')")
    assert warehouse.takes_files(TABLE) != by_spark
    first, second = EndingsTable(warehouse), EndingsTable(warehouse)
    at = datetime(2025, 1, 1, tzinfo=timezone.utc)
    row = Ending(
        "p", Key("b", 0, 1), "COMMIT", "KEY", None, "INTENDED", None, None, "me", at, "U", PlannedPlace(1, 100)
    )
    first.record([row])
    first.record([row._replace(state="SENT", at=at + timedelta(seconds=1))])
    with pytest.raises(WarehouseBusy, match="another process ends or resumes transactions"):
        second.record([row])
    found = known(warehouse, "p", [row.key])
    assert found.mine[row.key].state == "SENT"
    assert found.mine[row.key].sent == PlannedPlace(1, 100)
    assert (found.after, found.lately) == (at + timedelta(seconds=1), {}), "that was long ago"


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 3, 4])
def test_killed_before_a_commit(warehouse: KernelWarehouse, called: Any, tmp_path: Path, number: int) -> None:
    """The table endings is made, INTENDED, the op rows, SENT: whatever comes first, each op row lands once."""
    r.land(warehouse, [half(0), half(1)], [], NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    file = str(tmp_path / "plan.jsonl")
    assert called("--where", "true", "--commit", "--plan", file)[0] == 0
    options = ("--apply", file, *ALLOWED, "--warehouse", warehouse.root)
    status, said = ended(dying("before", number, "end", *options))
    assert status == KILLED, said
    assert ops_of_ours(warehouse) == ({0, 1} if number == 4 else set())
    status, said = called("--apply", file, *ALLOWED)
    assert (status, said["endings"]) == (0, {"SENT": 2})
    assert ops_of_ours(warehouse) == {0, 1}
    assert warehouse.read("op_messages").count() == 2


def ops_of_ours(warehouse: KernelWarehouse) -> set[int]:
    return {row["half_offset"] for row in warehouse.read("op_messages").where("source = 'RESOLVE'").collect()}


def test_half_offsets_of_63_bits_get_answers_of_their_own(
    warehouse: KernelWarehouse, called: Any, tmp_path: Path
) -> None:
    every = (5, 2**62 + 5, 2**62 - 1, 2**63 - 1)
    halves = [half(n, commit_log_offset=at) for at, n in enumerate(every)]
    r.land(warehouse, halves, [], NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    file = str(tmp_path / "plan.jsonl")
    assert called("--where", "true", "--rollback", "--plan", file)[1]["planned"] == 4
    assert called("--apply", file, *ALLOWED)[1].get("endings") == {"SENT": 4}
    r.run(warehouse, RULES, NOW + 1)
    assert decided(warehouse) == {(n, "ROLLBACK", "CHECK") for n in every}
    assert r.rejected(warehouse) == {}
