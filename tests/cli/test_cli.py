"""The frame of a job: options, argument types, what goes to which stream, and the exit status."""

from __future__ import annotations

import argparse
import ast
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from halfop.frame.arguments import at_call, duration, instant, instant_or_now, positive_int
from halfop.frame.cli import Context, Job, _parser, main, setting_option
from halfop.frame.commands import on_message
from halfop.frame.errors import HalfopError, InputRefused, TransientError, UsageError, WarehouseBusy
from halfop.frame.log import JsonFormatter, TextFormatter, configure
from halfop.frame.output import Table
from halfop.frame.summary import JobFields, Summary
from halfop.settings import home
from halfop.settings.model import Settings
from support.places import ROOT

Run = Callable[[Context, argparse.Namespace], Summary]


pytestmark = pytest.mark.usefixtures("logging_as_before")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    files = parser.add_subparsers(required=True, dest="source").add_parser("files")
    files.add_argument("--half", required=True)
    setting_option(files, "--max-rows", "run.max_rows", "N")


def job(run: Run = lambda context, args: Summary("land")) -> Job:
    return Job("land", "Lands half and op messages.", run, add_arguments, ["files --half h.jsonl"])


def failing(error: BaseException) -> Job:
    def run(context: Context, args: argparse.Namespace) -> Summary:
        raise error

    return job(run)


def seen_context(*argv: str) -> Context:
    seen: list[Context] = []

    def run(context: Context, args: argparse.Namespace) -> Summary:
        seen.append(context)
        return Summary("land")

    assert main(job(run), argv) == 0
    return seen[0]


def last_line(out: str) -> Any:
    assert out.endswith("\n")
    return json.loads(out.splitlines()[-1])


FILES = ("files", "--half", "h")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], ["--set", "topics.threads=2", "--set", "rules.ask=false", "--wait", "4s", "--warehouse", "/w"]),
        (["--set", "topics.threads=2", "--set", "rules.ask=false", "--wait", "4s", "--warehouse", "/w"], []),
        (
            ["--set", "topics.threads=9", "--warehouse", "/w"],
            ["--set", "rules.ask=false", "--set=topics.threads=2", "--wait=4s"],
        ),
        (["--set", "topics.threads=2", "--warehouse", "/w"], ["--set", "rules.ask=false", "--wait=4s"]),
        (["--wait", "9s", "--warehouse=/w"], ["--set", "topics.threads=2", "--set", "rules.ask=false", "--wait", "4s"]),
    ],
)
def test_common_options_before_and_after_a_subcommand(before: list[str], after: list[str]) -> None:
    settings = seen_context(*before, *FILES, *after).settings
    assert (settings.topics.threads, settings.rules.ask) == (2, False)
    assert (settings.lock.wait, settings.warehouse) == (timedelta(seconds=4), "/w")


def test_a_jobs_own_option_wins_over_set() -> None:
    assert seen_context(*FILES, "--max-rows", "7", "--set", "run.max_rows=8").settings.run.max_rows == 7


def test_config_file_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.yaml").write_text("topics: {threads: 3, layout: single}")
    monkeypatch.setenv("HALFOP_TOPICS__THREADS", "4")
    topics = seen_context(*FILES, "--config", str(tmp_path / "c.yaml")).settings.topics
    assert (topics.threads, topics.layout) == (4, "single")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "required: source"),
        (["files"], "required: --half"),
        (["filez"], "invalid choice: 'filez'"),
        ([*FILES, "--warehous", "/w"], "unrecognized arguments: --warehous /w; did you mean --warehouse?"),
        ([*FILES, "--max-row=1"], "did you mean --max-rows?"),
        ([*FILES, "--wait", "4"], "argument --wait: lock.wait (command line): expected a duration"),
        (
            [*FILES, "--max-rows", "0"],
            "argument --max-rows: run.max_rows (command line): expected greater than or equal to 1",
        ),
        ([*FILES, "--warehouse", ""], "argument --warehouse: needs a value"),
        ([*FILES, "--log", "xml"], "argument --log: invalid choice: 'xml'"),
        ([*FILES, "--set", "rules.asc=1"], "rules.asc (--set): unknown key; the nearest known one is rules.ask"),
        ([*FILES, "--config", "/nowhere/c.yaml"], "/nowhere/c.yaml: can't be read"),
    ],
)
def test_wrong_usage_is_status_2_and_runs_nothing(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(failing(AssertionError("ran")), argv) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert err.startswith("halfop land: ")
    assert "Traceback" not in err
    answer = last_line(out)
    assert said in answer["error"]
    assert (answer["job"], answer["status"]) == ("land", 2)


@pytest.mark.parametrize("argv", [["--help"], ["files", "--help"]])
def test_help(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(job(), argv)
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "usage: ./spark-submit.sh land" in out
    assert "--set KEY=VALUE" in out
    assert "examples:\n  ./spark-submit.sh land files --half h.jsonl\n" in out
    assert "exit status" in out


def test_the_command_is_right_where_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a folder").mkdir()
    monkeypatch.chdir(tmp_path / "a folder")
    monkeypatch.setenv("HALFOP_HOME", str(tmp_path / "a folder"))
    assert on_message("explain", "b/0/1", Settings()) == "./spark-submit.sh explain b/0/1"
    monkeypatch.chdir(tmp_path)
    elsewhere = f"'{tmp_path}/a folder/spark-submit.sh' explain b/0/1"
    assert on_message("explain", "b/0/1", Settings()) == elsewhere
    monkeypatch.chdir(tmp_path / "a folder")
    (tmp_path / "a folder").rmdir()
    assert on_message("explain", "b/0/1", Settings()) == elsewhere


def test_a_wheel_is_called_by_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home.launcher() == "./spark-submit.sh"
    lock = tmp_path / "jars.lock"
    lock.touch()
    monkeypatch.setattr(home, "JARS_LOCK", lock)
    assert on_message("explain", "b/0/1", Settings()) == "halfop explain b/0/1"
    assert _parser(job()).prog == "halfop land"


def test_an_option_of_a_setting_has_help_as_the_others_have(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main(job(), ["files", "--help"])
    out = capsys.readouterr().out
    for option, default in [
        ("--warehouse URI", "default: warehouse/ in the checkout (setting warehouse)"),
        ("--wait DURATION", "default: 0s (setting lock.wait)"),
        ("--max-rows N", "default: no limit (setting run.max_rows)"),
    ]:
        (line,) = [line for line in out.splitlines() if line.startswith(f"  {option} ")]
        text = line.removeprefix(f"  {option}").lstrip()
        assert text[0].islower()
        assert text.endswith(default)
    assert "null" not in out


@pytest.mark.parametrize(
    ("error", "status", "transient", "said"),
    [
        (HalfopError("odd"), 1, False, "odd"),
        (TransientError("down"), 1, True, "down"),
        (UsageError("--now lies ahead"), 2, False, "--now lies ahead"),
        (
            InputRefused("h.jsonl", 7, "no queue_offset", "give one"),
            3,
            False,
            "h.jsonl:7: no queue_offset\n  give one",
        ),
        (InputRefused(Path("store"), None, "not a store"), 3, False, "store: not a store"),
        (WarehouseBusy("held"), 4, True, "held"),
        (KeyboardInterrupt(), 130, True, "interrupted"),
        (ValueError("bad\x1b[2J"), 1, False, "ValueError: bad\\x1b[2J\n  run again with -v"),
        (
            OSError(28, "No space left on device"),
            1,
            True,
            "the warehouse, or Spark's folder spark.local.dir: the disk is full",
        ),
        (
            RuntimeError("o1.load\n: java.io.X: y\n\tat a.b(C.java)\n\tat d"),
            1,
            True,
            "RuntimeError: o1.load\n  : java.io.X: y\n  run",
        ),
        (RuntimeError("[NO_TABLE] t\n\nJVM stacktrace:\nx"), 1, True, "RuntimeError: [NO_TABLE] t\n  run"),
    ],
)
def test_an_error_is_one_block_one_line_and_one_status(
    error: BaseException, status: int, transient: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(failing(error), FILES) == status
    out, err = capsys.readouterr()
    assert err.startswith(f"halfop land: {said}")
    assert "Traceback" not in err
    answer = last_line(out)
    assert answer.keys() == {"job", "error", "transient", "status"}
    assert (answer["status"], answer["transient"]) == (status, transient)


@pytest.mark.parametrize("error", [ValueError("bad"), UsageError("bad")])
def test_verbose_shows_the_traceback(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    main(failing(error), [*FILES, "-v"])
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert "run again with -v" not in err


def test_json_log_holds_the_error_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(failing(UsageError("bad")), [*FILES, "--log", "json"]) == 2
    line = last_line(capsys.readouterr().err)
    assert (line["level"], line["logger"], line["message"]) == ("ERROR", "halfop.land", "bad")


@pytest.mark.parametrize("asked", [["--log", "json"], ["--log=json"]])
def test_json_log_holds_wrong_usage_too(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(failing(AssertionError("ran")), [*asked, *FILES, "--warehous", "/w"]) == 2
    (line,) = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (line["level"], line["job"]) == ("ERROR", "land")
    assert "unrecognized arguments: --warehous" in line["message"]


@pytest.mark.parametrize("status", [0, 1, 5])
def test_a_summary_is_printed_last_whatever_its_status(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    def run(context: Context, args: argparse.Namespace) -> Summary:
        print("a table for people")
        context.log.info("landed")
        return Summary("land", run_id=3, status=status, rows_written={"half_messages": 2})

    assert main(job(run), FILES) == status
    out, err = capsys.readouterr()
    assert (last_line(out)["run_id"], last_line(out)["status"]) == (3, status)
    assert err.endswith(" halfop.land  landed\n")


@pytest.mark.process
def test_a_reader_that_went_away_changes_no_status() -> None:
    program = (
        "import sys; from halfop.frame.cli import Job, run_job; from halfop.frame.summary import Summary\n"
        "sys.stdin.read(); run_job(Job('x', '', lambda c, a: Summary('x', status=5)), [])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.close()
        assert (process.stderr.read(), process.wait()) == (b"", 5)


@pytest.mark.process
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("alone", [True, False])
def test_a_stdout_that_takes_no_more_is_a_sentence_and_status_1(tmp_path: Path, alone: bool) -> None:
    """Metrics and what comes later are done all the same."""
    program = (
        "import sys; from halfop.frame.cli import Job, run_job; from halfop.frame.output import write_alone\n"
        "from halfop.frame.summary import Summary\n"
        "def run(context, args):\n"
        "    context.later.append(lambda: sys.stderr.write('later'))\n"
        f"    {alone} and write_alone('a row')\n"
        "    return Summary('x')\n"
        f"run_job(Job('x', '', run, measured=lambda args: 'x', alone=lambda args: {alone}))"
    )
    command = [sys.executable, "-c", program, "--set", f"metrics.folder={tmp_path}"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), check=False)
    said = "halfop x: /dev/stdout: the disk is full. Make room on it, and start again, which is always safe"
    assert (done.returncode, done.stderr) == (1, f"{said} (No space left on device)\nlater")
    assert 'halfop_exit_status{command="x",name="halfop"} 1.0\n' in (tmp_path / "halfop_x.prom").read_text()


def environment() -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT / "lib")}


# ---- output ----


def showing(context: Context, args: argparse.Namespace) -> Summary:
    context.output.text("a line\n")
    context.output.tables(
        Table(["table", "rows"], [["topics\x1b[2J", 7], ["x" * 200, None]], "Where it is"), Table(["kind"], [])
    )
    return Summary("land")


def test_output_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(job(showing), FILES) == 0
    lines = capsys.readouterr().out.splitlines()
    width = 100
    assert lines[:-1] == [
        "a line",
        "Where it is",
        "",
        "table".ljust(width) + "  rows",
        "-" * width + "  ----",
        "topics\\x1b[2J".ljust(width) + "  7",
        "x" * (width - 1) + "…",
    ]


def test_output_for_machines_is_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(job(showing), [*FILES, "--log", "json"]) == 0
    *shown, summary = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    rows = [{"table": "topics\x1b[2J", "rows": 7}, {"table": "x" * 200, "rows": None}]
    assert shown == [{"text": "a line\n"}, {"table": "Where it is", "rows": rows}, {"table": "", "rows": []}]
    assert summary["job"] == "land"


@pytest.mark.thorough
@pytest.mark.long
def test_nothing_but_output_writes_to_stdout() -> None:
    lib = ROOT / "lib" / "halfop"
    for file in set(lib.rglob("*.py")) - {lib / "frame" / "output.py"}:
        for node in ast.walk(ast.parse(file.read_text())):
            assert ast.unparse(node) not in ("print", "sys.stdout"), f"{file} writes to stdout by itself"


# ---- types of arguments ----

INSTANT = datetime(2025, 6, 15, 15, 6, 40, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2025-06-15T15:06:40Z", INSTANT),
        ("2025-06-15t15:06:40z", INSTANT),
        ("2025-06-15 15:06:40", INSTANT),
        ("2025-06-15T17:06:40+02:00", INSTANT),
        ("2025-06-15T10:36:40-0430", INSTANT),
        ("2025-06-15T15:06:40.25Z", INSTANT + timedelta(milliseconds=250)),
        ("2025-06-15T15:06:40,000001", INSTANT + timedelta(microseconds=1)),
        ("2025-06-15T15:06", INSTANT.replace(second=0)),
        ("2025-06-15", INSTANT.replace(hour=0, minute=0, second=0)),
        ("1750000000000", INSTANT),
        ("1750000000001", INSTANT + timedelta(milliseconds=1)),
        ("0", datetime(1970, 1, 1, tzinfo=timezone.utc)),
    ],
)
def test_instant(text: str, expected: datetime) -> None:
    assert instant(text) == expected
    assert instant(text).utcoffset() == timedelta(0)


def test_known_until_takes_now() -> None:
    before = datetime.now(timezone.utc)
    found = at_call(instant_or_now("now"))
    assert found is not None
    assert before <= found <= datetime.now(timezone.utc)
    assert instant_or_now("2025-06-15T15:06:40Z") == INSTANT
    with pytest.raises(argparse.ArgumentTypeError, match="expected an instant"):
        instant_or_now("Now")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "15:06",
        "-1",
        "1750000000000.5",
        "999999999999999",
        "9999999999999999",
        "2025-06-31",
        "2025-6-15",
        "2025-06-15T25:00",
        "2025-06-15T15:06:40 Z",
        "2025-06-15T15:06:40.1234567",
        "0001-01-01T00:00+01:00",
        "٢٠٢٥-06-15",
    ],
)
def test_no_instant(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"expected an instant: ISO-8601 .* epoch milliseconds; given"):
        instant(text)


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("007", 7), ("100", 100)])
def test_positive_int(text: str, value: int) -> None:
    assert positive_int(text) == value


@pytest.mark.parametrize("text", ["0", "-1", "+1", "1.0", "", " 1", "1_0", "٣", "9" * 5000])
def test_no_positive_int(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="at least 1"):
        positive_int(text)


def test_duration_argument() -> None:
    assert duration("15m") == timedelta(minutes=15)
    with pytest.raises(argparse.ArgumentTypeError, match="given '15'"):
        duration("15")


# ---- log ----


def record(message: str, **extra: object) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"name": "halfop.land", "levelname": "INFO", "levelno": 20, "msg": message, "created": 0.5} | extra
    )


def test_a_message_cant_forge_a_line_or_drive_a_terminal() -> None:
    text = TextFormatter().format(record("half é\n12:00:00 halfop.land  forged\x1b[2J\u2028\u202e"))
    assert text.endswith(" halfop.land  half é\\n12:00:00 halfop.land  forged\\x1b[2J\\u2028\\u202e")


def test_json_line_of_a_record() -> None:
    line = JsonFormatter().format(record("landed\n", run_id=3, lag=float("nan"), path=Path("/w")))
    assert "\n" not in line
    own = {"ts": "1970-01-01T00:00:00.500Z", "level": "INFO", "logger": "halfop.land", "message": "landed\n"}
    assert json.loads(line) == own | {"run_id": 3, "lag": None, "path": "/w"}


@pytest.mark.parametrize(("verbose", "levels"), [(False, ["INFO", "WARNING"]), (True, ["DEBUG", "INFO", "WARNING"])])
def test_levels_and_configured_twice(verbose: bool, levels: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    configure(not verbose, False)
    configure(verbose, True)
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        logging.getLogger("halfop.land").log(level, "m")
    assert [json.loads(line)["level"] for line in capsys.readouterr().err.splitlines()] == levels


# ---- summary ----


def test_summary_line_is_stable_and_plain() -> None:
    summary = Summary(
        "reconcile",
        run_id=2,
        extra={
            "oldest_open_seconds": float("inf"),
            "now": INSTANT,
            "every": timedelta(seconds=1.5),
            "runs": [Path("a")],
        },
    )
    summary.decisions = {"WAIT": {"IMMUNE": 1, "FRESH": 2}, "CHECK": {"TIMEOUT": 3}}
    summary.seconds = {"plan": 0.25, "apply": 0.5}
    assert summary.to_json() == (
        '{"job": "reconcile", "run_id": 2, "status": 0, '
        '"decisions": {"CHECK": {"TIMEOUT": 3}, "WAIT": {"FRESH": 2, "IMMUNE": 1}}, '
        '"rows_read": {}, "rows_written": {}, "seconds": {"plan": 0.25, "apply": 0.5}, "notes": [], '
        '"every": 1.5, "now": "2025-06-15T15:06:40.000Z", "oldest_open_seconds": null, "runs": ["a"]}'
    )


def test_failed_parts_have_the_highest_status_and_are_transient_only_together() -> None:
    summary = Summary("land")
    assert "transient" not in summary.extra
    summary.add_failed("failed_brokers", {"a": "down"}, True)
    assert (summary.status, summary.extra) == (1, {"failed_brokers": {"a": "down"}, "transient": True})
    summary.add_failed("failed_catalog", {"t": "taken"}, False, 3)
    summary.add_failed("failed_sinks", {"s": "full"}, True)
    assert (summary.status, summary.extra["transient"]) == (3, False)


def test_an_extra_field_cant_hide_a_summarys_own() -> None:
    assert not get_type_hints(JobFields).keys() & get_type_hints(Summary).keys()


def test_phases_add_up_and_count_when_they_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1.0, 1.25, 2.0, 4.0004])
    monkeypatch.setattr("halfop.frame.summary.time.perf_counter", lambda: next(clock))
    summary = Summary("x")
    with summary.phase("plan"):
        pass
    with pytest.raises(KeyError), summary.phase("plan"):
        raise KeyError
    assert summary.seconds == {"plan": 2.25}
