"""follow: what a cycle makes of its two steps, when the next one comes, and signals. The steps are stood in for."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from halfop.follow import Cycle, Measures, SparkIsGone, Step, StepEnd, Stop, Turns, cycle, follow
from halfop.frame.cli import Context
from halfop.frame.errors import HalfopError, InputRefused, TransientError, UsageError, WarehouseBusy
from halfop.frame.log import configure, logged_with
from halfop.frame.output import TextOutput
from halfop.frame.summary import JobFields, Summary
from halfop.frame.trouble import failure_of
from halfop.jobs.follow import _printed
from halfop.planning.digest import LATENCIES, Latency
from halfop.settings.model import MetricsSettings, Settings
from prometheus_client.parser import text_string_to_metric_families
from typing_extensions import Unpack

pytestmark = pytest.mark.usefixtures("logging_as_before")
SECOND = timedelta(seconds=1)


def landing(status: int = 0, **extra: Unpack[JobFields]) -> Summary:
    return Summary("land", status=status, rows_written={"half_messages": 3}, notes=["landed"], extra=extra)


def run(status: int = 0, **extra: Unpack[JobFields]) -> Summary:
    return Summary("reconcile", run_id=7, status=status, decisions={"COMMIT": {"PRODUCER": 3}}, extra=extra)


def step(result: Summary | BaseException) -> Step:
    def done() -> Summary:
        if isinstance(result, BaseException):
            raise result
        return result

    return done


def a_cycle(
    land: Summary | BaseException, ran: Summary | BaseException, stopping: bool = False, alive: bool = True
) -> Cycle:
    return cycle(4, step(land), step(ran), lambda: stopping, lambda: alive)


# ---- a cycle ----


class Full(TextOutput):
    def summary(self, summary: Summary) -> None:
        raise TransientError("/dev/stdout: the disk is full")


def test_a_stdout_that_takes_no_more_costs_lines_and_no_cycle(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []
    context = Context(Settings(), logging.getLogger("halfop.follow"), Full(), [lambda: done.append("later")])
    _printed(context, run())
    assert [each.getMessage() for each in caplog.records] == ["no more lines to stdout: /dev/stdout: the disk is full"]
    assert done == ["later"]


def test_a_cycle_is_one_json_object_with_what_both_jobs_would_have_printed() -> None:
    told = json.loads(a_cycle(landing(), run(open_messages=2)).summary().to_json())
    assert (told["job"], told["cycle"], told["status"], told["run_id"]) == ("follow", 4, 0, 7)
    assert told["decisions"] == {"COMMIT": {"PRODUCER": 3}}
    assert told["seconds"].keys() == {"land", "run"}
    assert told["landing"] == json.loads(landing().to_json())
    assert told["run"] == json.loads(run(open_messages=2).to_json())
    assert told["notes"] == ["landed"]
    assert "transient" not in told


BUSY, REFUSED, DOWN = WarehouseBusy("held"), InputRefused("f.jsonl", 3, "no JSON"), OSError("down")


@pytest.mark.parametrize(
    ("land", "ran", "status", "transient"),
    [
        (landing(), run(), 0, None),
        (landing(), run(5), 5, None),
        (DOWN, run(), 1, True),
        (REFUSED, run(), 3, False),
        (BUSY, run(), 4, True),
        (landing(1, failed_brokers={"b": "down"}, transient=True), run(), 1, True),
        (REFUSED, run(5), 3, False),
        (BUSY, run(5), 4, True),
        (landing(), BUSY, 4, True),
        (BUSY, BUSY, 4, True),
        (BUSY, run(1, failed_sinks={"topics/T": "full"}, transient=False), 1, False),
        (REFUSED, HalfopError("lost"), 1, False),
        (REFUSED, OSError("full"), 1, False),
    ],
)
def test_the_worse_of_two_statuses_counts(
    land: Summary | Exception, ran: Summary | Exception, status: int, transient: bool | None
) -> None:
    summary = a_cycle(land, ran).summary()
    assert (summary.status, summary.extra.get("transient")) == (status, transient)


def test_a_landing_that_fails_holds_up_no_run() -> None:
    told = json.loads(a_cycle(REFUSED, run()).summary().to_json())
    assert told["landing"] == {"job": "land", "error": "f.jsonl:3: no JSON", "transient": False, "status": 3}
    assert (told["run"]["status"], told["run_id"]) == (0, 7)


@pytest.mark.parametrize("error", [UsageError("--now is before run 3's"), KeyError("run"), KeyboardInterrupt()])
@pytest.mark.parametrize("at_run", [False, True])
def test_wrong_usage_and_mistakes_end_the_process_as_in_the_job_alone(error: BaseException, at_run: bool) -> None:
    with pytest.raises(type(error)):
        a_cycle(landing(), error) if at_run else a_cycle(error, run())


@pytest.mark.parametrize(
    ("land", "ran"),
    [(DOWN, run()), (landing(), DOWN), (REFUSED, run()), (landing(), run(1, failed_sinks={"topics/T": "stopped"}))],
)
def test_a_spark_that_is_gone_ends_the_process(land: Summary | Exception, ran: Summary | Exception) -> None:
    with pytest.raises(SparkIsGone, match="Spark no longer answers in this process; start follow again") as found:
        a_cycle(land, ran, alive=False)
    assert failure_of(found.value, verbose=False).status == 1


def test_a_cycle_that_fails_nowhere_asks_nothing_of_spark() -> None:
    assert a_cycle(landing(), run(5), alive=False).status == 5


def test_asked_to_stop_while_it_lands_a_cycle_has_no_run() -> None:
    ended = a_cycle(landing(), AssertionError("ran"), stopping=True)
    told = json.loads(ended.summary().to_json())
    assert (told["status"], told["run"], told["run_id"]) == (0, None, None)
    assert "stopped by a signal before its run" in told["notes"]


def test_log_fields_of_a_failed_run_do_not_stay(capsys: pytest.CaptureFixture[str]) -> None:
    configure(verbose=False, json_lines=True)
    log = logging.getLogger("halfop.test")

    def failing() -> Summary:
        with logged_with(run_id=8):
            raise OSError("full")

    with logged_with(job="follow"):
        cycle(1, step(landing()), failing, lambda: False, lambda: True)
        log.info("after")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    fields = [(line["message"], line["job"], line.get("cycle"), line.get("run_id")) for line in lines]
    assert fields == [("the run failed: OSError: full", "follow", 1, 8), ("after", "follow", None, None)]


# ---- turns ----


def after(status: int | None) -> Cycle:
    done = StepEnd(0.1, Summary("reconcile", status=status)) if status is not None else None
    return Cycle(1, StepEnd(0.1, None, failure_of(DOWN, False)), done)


def test_turns_come_later_while_runs_fail() -> None:
    turns = Turns(timedelta(seconds=10))
    lengths = []
    for status in (0, 1, 1, 1, 1, 1, 1, 3, 4, 1, 5, None):
        turns.count(after(status))
        lengths.append(turns.length.total_seconds())
    assert lengths == [10, 20, 40, 80, 160, 300, 300, 300, 10, 20, 10, 10]


@pytest.mark.parametrize(("every", "first", "last"), [(0, 2, 300), (1, 2, 300), (200, 300, 300), (900, 900, 900)])
def test_the_longest_turn(every: int, first: int, last: int) -> None:
    turns = Turns(every * SECOND)
    turns.count(after(1))
    assert turns.length == first * SECOND
    turns.failures = 10_000
    assert turns.length == last * SECOND


class Watched(Stop):
    """Waits for nobody, and is asked to stop after so many waits."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self.waits, self.waited = waits, list[float]()

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        if len(self.waited) == self.waits:
            self._take(signal.SIGTERM, None)


def test_cycle_after_cycle_until_the_process_is_asked_to_stop() -> None:
    results: list[Summary | BaseException] = [run(), OSError("full"), OSError("full"), run()]
    stop, seen = Watched(len(results)), list[Cycle]()

    def turn(number: int) -> Cycle:
        return cycle(number, step(landing()), step(results[number - 1]), lambda: stop.asked, lambda: True)

    assert follow(turn, seen.append, stop, timedelta(seconds=10)) == 4
    assert [each.number for each in seen] == [1, 2, 3, 4]
    assert [each.status for each in seen] == [0, 1, 1, 0]
    assert [round(each) for each in stop.waited] == [10, 20, 40, 10]


def test_what_a_cycle_takes_is_part_of_its_turn() -> None:
    stop = Watched(1)
    slow = step(landing())

    def turn(number: int) -> Cycle:
        begun = time.monotonic()
        while time.monotonic() < begun + 0.05:
            pass
        return cycle(number, slow, step(run()), lambda: False, lambda: True)

    follow(turn, lambda ended: None, stop, timedelta(milliseconds=20))
    assert stop.waited[0] < 0


# ---- signals ----


@pytest.fixture
def stop() -> Iterator[Stop]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    stop = Stop()
    stop.listen()
    yield stop
    for number, handler in before.items():
        signal.signal(number, handler)


def sent(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_wakes_who_waits_at_once(stop: Stop, number: int) -> None:
    threading.Timer(0.05, sent, [number]).start()
    start = time.monotonic()
    stop.wait(60)
    assert stop.asked
    assert time.monotonic() - start < 10
    stop.wait(60)
    assert time.monotonic() - start < 10, "nor does it wait again"


def test_a_signal_in_the_middle_of_a_step_lets_it_end(stop: Stop) -> None:
    def landing_in_two() -> Summary:
        sent(signal.SIGTERM)
        return landing()

    seen: list[Cycle] = []
    turn: Callable[[int], Cycle] = lambda number: cycle(  # noqa: E731
        number, landing_in_two, step(run()), lambda: stop.asked, lambda: True
    )
    assert follow(turn, seen.append, stop, timedelta(hours=1)) == 1
    assert (seen[0].landing.status, seen[0].run) == (0, None)


def test_the_same_request_may_come_twice_and_a_second_one_counts(stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    sent(signal.SIGTERM)
    sent(signal.SIGTERM)  # passed on by the JVM
    sent(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) == stop._take
    monkeypatch.setattr("halfop.warehouse.signals._SAME_SECONDS", -1.0)
    with monkeypatch.context() as patch:
        patch.setattr("halfop.warehouse.signals.os.kill", lambda pid, number: killed.append(number))
        signal.raise_signal(signal.SIGTERM)
    assert (killed, signal.getsignal(signal.SIGTERM)) == ([signal.SIGTERM], signal.SIG_DFL)


# ---- metrics ----


def committed(*seconds: float) -> Summary:
    within = tuple(sum(each <= bound for each in seconds) for bound in LATENCIES)
    return run(commit_latency=vars(Latency(within, len(seconds), sum(seconds))))


def test_metrics_as_of_each_cycle(tmp_path: Any) -> None:
    measures = Measures(MetricsSettings(folder=str(tmp_path)), "land_files")

    def report(number: int, land: Summary | Exception, ran: Summary | Exception) -> None:
        ended = cycle(number, step(land), step(ran), lambda: False, lambda: True)
        measures.report(ended, ended.summary())

    report(1, landing(bad_rows=0), committed(0.5, 7))
    report(2, REFUSED, committed(15, 100_000))
    report(3, landing(bad_rows=2), OSError("full"))
    of_files, of_runs, own = (read(tmp_path / f"halfop_{name}.prom") for name in ("land_files", "reconcile", "follow"))
    assert (of_files["halfop_bad_rows"], of_files["halfop_exit_status"]) == (2, 0)
    assert (of_runs["halfop_exit_status"], of_runs["halfop_run_id"]) == (1, 7), "as the last run that was done left it"
    assert (own["halfop_cycles"], own["halfop_exit_status"]) == (3, 1)
    counts = {le: own[f"halfop_commit_latency_seconds_bucket{le}"] for le in ("1.0", "5.0", "10.0", "20.0", "+Inf")}
    assert counts == {"1.0": 1, "5.0": 1, "10.0": 2, "20.0": 3, "+Inf": 4}
    assert own["halfop_commit_latency_seconds_count"] == 4
    assert own["halfop_commit_latency_seconds_sum"] == 100_022.5


def read(path: Any) -> dict[str, float]:
    families = text_string_to_metric_families(path.read_text())
    return {each.name + each.labels.get("le", ""): each.value for family in families for each in family.samples}
