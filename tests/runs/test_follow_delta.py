"""follow on real tables: cycles over files, runs that need not be, real signals, and kills in the middle of a cycle."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from halfop.follow import Cycle, Stop
from halfop.frame.cli import main
from halfop.landing import progress
from halfop.landing.progress import keep_tidy
from halfop.runs.finish import idle
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.load import load_settings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import hold
from halfop.warehouse.progress import TABLE as PROGRESS
from pyspark.sql import SparkSession
from support.crash import KILLED, commits, dying, ended, job, said_until, script_of
from support.entry_points import job_of
from support.json_lines import half, lines, op

LATER = "2025-06-15T16:00:00Z"
MORE = "2025-06-15T16:00:01Z"
ALL_KNOWN = "2025-06-15T15:59:00Z"
LOG = logging.getLogger("halfop.test")
LATENCIES = {"messages": 1, "within": [0] * 12}


def files(folder: Path) -> list[str]:
    return ["files", "--half", str(folder / "half-*.jsonl"), "--op", str(folder / "op-*.jsonl")]


def came(folder: Path, number: int) -> None:
    """Two messages: one that is committed, one that stays open."""
    first = number * 2
    lines(folder / f"half-{number}.jsonl", half(first), half(first + 1))
    lines(folder / f"op-{number}.jsonl", op(number, str(first)))


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch, logging_as_before: None) -> Iterator[None]:
    """A follow in this process, whose JVM and handlers of signals are the suite's."""
    monkeypatch.setattr("halfop.jobs.follow.pass_on", lambda spark: None)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("in_process")
def test_cycles_over_files(warehouse: KernelWarehouse, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows that have landed are decided in the same cycle; a landing that is refused holds up no run."""
    said: list[Any] = []

    def once(now: str, *options: str) -> int:
        command = [*files(tmp_path), "--once", "--now", now, "--warehouse", warehouse.root, *options]
        status = main(job_of("follow"), command)
        (line,) = capsys.readouterr().out.splitlines()
        said.append(json.loads(line))
        return status

    came(tmp_path, 0)
    assert once(LATER) == 0
    came(tmp_path, 1)
    (tmp_path / "half-2.jsonl").write_text("no JSON\n")
    assert once(LATER) == 3
    (tmp_path / "half-2.jsonl").unlink()
    assert once(MORE, "--set", "rules.ask=false") == 0
    committed = [each["decisions"].get("COMMIT", {}).get("PRODUCER") for each in said]
    assert (committed, [each["run_id"] for each in said]) == ([1, None, 1], [1, 2, 3])
    assert "half-2.jsonl:1" in said[1]["landing"]["error"]
    assert (said[1]["run"]["status"], said[1]["transient"]) == (0, False)
    assert said[2]["landing"]["rows_written"] == {"half_messages": 2, "op_messages": 1}
    assert (said[2]["run"]["open_messages"], said[0]["run"]["commit_latency"]) == (
        2,
        LATENCIES | {"seconds": said[0]["run"]["commit_latency"]["seconds"]},
    )
    assert warehouse.read("topics/T").count() == 2


@pytest.mark.usefixtures("in_process")
def test_what_only_one_run_can_have_needs_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfop.jobs.follow.follow", lambda *_: 0)
    for option in (["--now", LATER], ["--fail-on", "conflicts"], ["--known-until", LATER]):
        assert main(job_of("follow"), ["store", "--path", "/nowhere", *option]) == 2
        assert re.search("needs? --once", json.loads(capsys.readouterr().out)["error"])


@pytest.mark.usefixtures("in_process")
def test_time_passes_from_cycle_to_cycle(
    warehouse: KernelWarehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`now` is each landing's: a clock that stands still asks nobody again, and discards nothing."""

    def two(turn: Callable[[int], Cycle], done: Callable[[Cycle], None], stop: Stop, every: timedelta) -> int:
        for number in (1, 2):
            done(turn(number))
        return 2

    monkeypatch.setattr("halfop.jobs.follow.follow", two)
    came(tmp_path, 0)
    assert main(job_of("follow"), [*files(tmp_path), "--known-until", "now", "--warehouse", warehouse.root]) == 0
    first, second, _ = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["landing"]["known_until"]["least"] < second["landing"]["known_until"]["least"]


@pytest.mark.usefixtures("in_process")
def test_a_held_lock_is_a_failed_step(
    spark: SparkSession, warehouse: KernelWarehouse, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    came(tmp_path, 0)
    command = [*files(tmp_path), "--once", "--now", LATER, "--warehouse", warehouse.root]
    with hold(KernelWarehouse(spark, warehouse.root), "landing", timedelta(0)):
        assert main(job_of("follow"), command) == 4
    printed = capsys.readouterr()
    assert "another process holds the landing lock" in printed.err
    assert "so this turn leaves it to the next" in printed.err
    assert not {"ERROR", "WARNING"} & set(printed.err.split()), "nothing is wrong but the moment"
    told = json.loads(printed.out)
    assert (told["landing"]["status"], told["run"]["status"]) == (4, 0)
    with hold(warehouse, "run", timedelta(0)):
        assert main(job_of("follow"), command) == 4
    told = json.loads(capsys.readouterr().out)
    assert (told["landing"]["status"], told["run"]["status"], told["run"]["transient"]) == (0, 4, True)
    with hold(warehouse, "landing", timedelta(0)), hold(warehouse, "run", timedelta(0)):
        pass  # nobody holds them between cycles


def test_a_run_that_would_decide_nothing_is_none(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    request = Request(load_settings(None, (), {}))
    assert idle(warehouse, request.settings, request.now) is None, "reconcile itself says that nothing has landed"
    land = job_of("land")
    halves = lines(tmp_path / "h.jsonl", half(0))
    assert main(land, ["files", "--half", halves, "--known-until", ALL_KNOWN, "--warehouse", warehouse.root]) == 0
    assert idle(warehouse, request.settings, request.now) is None
    assert reconcile(warehouse, request).extra["open_messages"] == 1
    assert idle(warehouse, request.settings, request.now) is None, "a message is open: time alone may decide about it"
    ops = lines(tmp_path / "o.jsonl", op(0, "0"))
    assert main(land, ["files", "--op", ops, "--warehouse", warehouse.root]) == 0
    assert reconcile(warehouse, request).extra["open_messages"] == 0
    told = idle(warehouse, request.settings, request.now)
    assert told is not None
    assert (told.run_id, told.status, told.extra["open_messages"]) == (None, 0, 0)
    assert list(told.extra["queues_behind"]) == ["b/0"], "the broker's clock stands still all the same"
    given = Request(load_settings(None, (), {}), now=told.extra["now"])
    assert idle(warehouse, given.settings, given.now) is None, "an instant that is given is recorded"


def test_many_landings_leave_few_files_of_progress(warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_MOST_FILES", 3)
    row = progress.log_row("b", 0, 1, 1)
    progress.add_missing(warehouse, [row], "STORE")
    for end in range(2, 7):
        progress.move(warehouse, [row._replace(next_offset=end)], "STORE")
    with hold(warehouse, "landing", timedelta(0)):
        keep_tidy(KernelWarehouse(warehouse.spark, warehouse.root), LOG)
        assert len(warehouse.log.data_files(warehouse.path(PROGRESS), None, None) or ()) == 6, "another lands"
    keep_tidy(warehouse, LOG)
    assert len(warehouse.log.data_files(warehouse.path(PROGRESS), None, None) or ()) == 1
    assert progress.log_offset(warehouse, "b") == 6


def test_a_jobs_logs_get_their_checkpoints_after_its_result(warehouse: KernelWarehouse) -> None:
    warehouse.log.defer_upkeep()
    row = progress.log_row("b", 0, 1, 1)
    progress.add_missing(warehouse, [row], "STORE")
    for end in range(2, 25):
        progress.move(warehouse, [row._replace(next_offset=end)], "STORE")
    found = Path(warehouse.path(PROGRESS), "_delta_log")
    assert list(found.glob("*.checkpoint*.parquet")) == []
    warehouse.log.upkeep()
    assert len(list(found.glob("*.checkpoint*.parquet"))) == 1


# ---- processes ----


def following(folder: Path, *options: str) -> list[str]:
    return ["follow", *files(folder), "--warehouse", str(folder / "warehouse"), *options]


def a_line(text: str) -> Any:
    return json.loads(text.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_between_cycles_wakes_it(tmp_path: Path, number: int) -> None:
    """The launcher's own process gets it, as from systemd; it is the JVM by then."""
    came(tmp_path, 0)
    process = job(*following(tmp_path, "--every", "1h"))
    first = a_line(said_until(process, r'^\{"job": "follow"'))
    process.send_signal(number)
    start = time.monotonic()
    status, said = ended(process)
    assert (first["cycle"], first["status"], status) == (1, 0, 0), said
    assert time.monotonic() - start < 60
    assert (a_line(said)["cycles"], a_line(said)["status"]) == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("whole_group", [False, True])
def test_a_signal_in_the_middle_of_a_run_lets_it_close(spark: SparkSession, tmp_path: Path, whole_group: bool) -> None:
    """One to all processes, as from a terminal, is one request."""
    came(tmp_path, 0)
    process = job(*following(tmp_path, "--every", "1h"))
    said_until(process, "run 1 decides")
    if whole_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.terminate()
    status, said = ended(process)
    assert status == 0, said
    assert a_line(said)["cycles"] == 1
    events = [row["event"] for row in KernelWarehouse(spark, str(tmp_path / "warehouse")).rows("runs")]
    assert sorted(events) == ["CLOSED", "OPENED"]


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """And the next start finishes what it left."""
    came(tmp_path, 0)
    process = job(*following(tmp_path, "--once"))
    said_until(process, "run 1 decides")
    process.terminate()
    time.sleep(0.1)
    os.killpg(process.pid, signal.SIGSTOP)  # so that the run does not close meanwhile
    time.sleep(1.2)  # sooner, it would count as the same request
    process.terminate()
    os.killpg(process.pid, signal.SIGCONT)
    status, said = ended(process)
    assert status == 128 + signal.SIGTERM, said
    status, said = ended(job(*following(tmp_path, "--once")))
    assert (status, a_line(said)["status"]) == (0, 0), said


OF_LANDINGS = ("half_messages", "op_messages")
OF_RUNS = ("runs", "decisions", "check_requests", "topics/T")
# `repeated`: files that a killed landing has not recorded land again; the rules count such rows once.
UNLIKE_EACH_TIME = (
    *("landed_at", "half_landed_at", "repeated"),
    *("at", "owner", "seconds", "settings", "inputs", "inputs_before"),
)


def content(warehouse: KernelWarehouse) -> dict[str, Counter[str]]:
    """The tables after a cycle. A cycle that finds its run closed makes a second run, which does not count."""

    def rows(name: str, where: str) -> list[str]:
        return [str(row) for row in warehouse.read(name).where(where).drop(*UNLIKE_EACH_TIME).collect()]

    landed = {name: Counter(set(rows(name, "true"))) for name in OF_LANDINGS}
    return landed | {name: Counter(rows(name, "run_id <= 1")) for name in OF_RUNS}


# The master of Spark's blocks ends after the first cycle, while the JVM and the context live on; then more comes.
SPARK_GOES = """
import sys
from pathlib import Path
from halfop.follow import Measures
from halfop.follow import Cycle, Stop
from halfop.frame.cli import main
from halfop.jobs.follow import JOB
from halfop.warehouse.session import spark_session

def end(*_):
    jvm = spark_session("follow")._jvm
    named = jvm.java.lang.Class.forName
    stop = named("org.apache.spark.storage.BlockManagerMessages$StopBlockManagerMaster$").getField("MODULE$").get(None)
    kind = jvm.scala.reflect.ClassTag.apply(named("java.lang.Object"))
    assert jvm.org.apache.spark.SparkEnv.get().blockManager().master().driverEndpoint().askSync(stop, kind)
    for late in Path(sys.argv[1]).glob("late-*"):
        late.rename(late.with_name(late.name.removeprefix("late-")))

Measures.report = end
sys.exit(main(JOB, sys.argv[2:]))
"""


@pytest.mark.slow
def test_a_spark_that_is_gone_ends_the_process(tmp_path: Path) -> None:
    came(tmp_path, 0)
    came(tmp_path, 1)
    for late in tmp_path.glob("*-1.jsonl"):
        late.rename(late.with_name(f"late-{late.name}"))
    process = script_of("python", "-c", SPARK_GOES, str(tmp_path), *following(tmp_path)[1:], "--every", "1s")
    status, said = ended(process)
    assert status == 1, said
    assert "Spark no longer answers in this process; start follow again" in said


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_maintain_gets_its_turn_beside_follow(spark: SparkSession, tmp_path: Path) -> None:
    """While each cycle brings something, also if it starts in the middle of a run; and no turn of follow fails."""
    at_once = [each for name in ("verify", "files", "waits", "landed") for each in ("--set", f"retention.{name}=0s")]
    came(tmp_path, 0)
    process = job(*following(tmp_path, "--every", "5s"))
    said = said_until(process, r'^\{"job": "follow"')
    for number in (1, 2):
        came(tmp_path, number)
        said += said_until(process, r"run \d+ decides")
        maintenance = job("maintain", "--warehouse", str(tmp_path / "warehouse"), "--wait", "60s", *at_once)
        fed = came_while(maintenance, process, tmp_path, number * 100)
        status, told = ended(maintenance)
        assert status == 0, told
        assert a_line(told)["rows_trimmed"], told
        said += fed
    process.terminate()
    status, rest = ended(process)
    assert status == 0, said + rest
    assert "ERROR" not in said + rest
    warehouse = KernelWarehouse(spark, str(tmp_path / "warehouse"))
    delivered = Counter(row["half_queue_offset"] for row in warehouse.read("topics/T").collect())
    assert set(delivered.values()) == {1}
    assert len(delivered) >= len(list(tmp_path.glob("half-*.jsonl"))) - 1, "the last may have come too late"


def came_while(other: subprocess.Popen[str], process: subprocess.Popen[str], folder: Path, number: int) -> str:
    """Something comes for each cycle until the other process has ended."""
    said = ""
    while other.poll() is None:
        number += 1
        came(folder, number)
        said += said_until(process, r'^\{"job": "follow"')
    return said


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_after_each_commit_of_a_cycle(spark: SparkSession, tmp_path: Path) -> None:
    def prepared(name: str) -> list[str]:
        came(tmp_path / name, 0)
        return following(tmp_path / name, "--once", "--now", LATER)

    number = commits(*prepared("undisturbed"))
    wanted = content(KernelWarehouse(spark, str(tmp_path / "undisturbed" / "warehouse")))
    assert number > len(wanted)
    for at in range(1, number + 1):
        command = prepared(f"killed-{at}")
        status, said = ended(dying("after", at, *command))
        assert status == KILLED, said
        status, said = ended(job(*command))
        assert status == 0, said
        assert content(KernelWarehouse(spark, str(tmp_path / f"killed-{at}" / "warehouse"))) == wanted, at
