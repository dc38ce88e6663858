"""The screen of a terminal while a job works: through a real pseudo-terminal, as a small screen shows it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys

import pytest
from support.places import ROOT

pytestmark = pytest.mark.process

_LIB = ROOT / "lib"
_JOB = """
import sys, time
from halfop.frame.cli import Job, run_job
from halfop.frame.log import watched
from halfop.frame.summary import Summary

def run(context, args):
    {work}
    context.output.text("a table for people\\n")
    return Summary("land", extra={{"watched": watched()}})

run_job(Job("land", "", run), sys.argv[1:])
"""
# As Spark draws it: a row without an end.
_BAR = r"""sys.stderr.write("\r[Stage 7:=====>    (2 + 2) / 16]"); sys.stderr.flush()
    context.log.info("a line of the log")
    context.log.warning("with a trace", exc_info=ValueError("of lines\nthat are\nshort"))"""
_SPARK = """from halfop.warehouse.session import spark_session
    spark = spark_session("test", **{"spark.master": "local[2]", "spark.log.level": "ERROR"})
    spark.range(0, 8, 1, 8).selectExpr("java_method('java.lang.Thread', 'sleep', 400L)").collect()
    context.log.info("a line of the log")"""
_LOGGED = [
    "halfop.land  a line of the log",
    "halfop.land  WARNING with a trace",
    "ValueError: of lines",
    "that are",
    "short",
]


def on_terminal(work: str, *options: str, term: str = "xterm", status: int = 0) -> tuple[str, list[str]]:
    """All that came, and the screen's rows in the end. stderr is the terminal, stdout too."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(_LIB), "TERM": term}
    command = [sys.executable, "-c", _JOB.format(work=work), *options]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment) as process:
        os.close(theirs)
        seen = b""
        try:
            while part := os.read(ours, 65536):
                seen += part
        except OSError:  # Linux says so when the terminal has no other end
            pass
        assert process.wait() == status, seen
    os.close(ours)
    return seen.decode(), screen(seen.decode())


def screen(text: str) -> list[str]:
    """The screen of a terminal in the end, with just the one escape that we send."""
    rows, column = [""], 0
    for part in re.findall(r"\x1b\[K|\r|\n|[^\x1b\r\n]+|\x1b", text):
        if part == "\x1b[K":
            rows[-1] = rows[-1][:column]
        elif part == "\r":
            column = 0
        elif part == "\n":
            rows.append("")
        else:
            assert part != "\x1b", "an escape that is not ours"
            rows[-1] = rows[-1][:column].ljust(column) + part + rows[-1][column + len(part) :]
            column += len(part)
    return [each.rstrip() for each in rows if each.strip()]


def without_clock(row: str) -> str:
    return re.sub(r"^\d\d:\d\d:\d\d ", "", row)


def test_the_log_clears_the_row_of_the_progress_bar() -> None:
    seen, rows = on_terminal(_BAR, "--output", "json")
    assert "[Stage 7:" in seen
    *others, summary = map(without_clock, rows)
    assert others == [*_LOGGED, "a table for people"]
    assert '"watched": true' in summary


@pytest.mark.parametrize(("options", "term"), [(("--log", "json"), "xterm"), (("--output=json",), "dumb")])
def test_no_escapes_for_machines_and_dumb_terminals(options: tuple[str, ...], term: str) -> None:
    seen, rows = on_terminal(_BAR, *options, term=term)
    assert "\x1b" not in seen
    assert '"watched": false' in rows[-1]


def test_no_escapes_where_stderr_is_no_terminal() -> None:
    command = [sys.executable, "-c", _JOB.format(work=_BAR.partition("\n    ")[2])]
    environment = {"PYTHONPATH": str(_LIB), "TERM": "xterm"}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert [without_clock(line) for line in told.stderr.splitlines()] == _LOGGED
    assert '"watched": false' in told.stdout


_RUN = """return Summary("reconcile", run_id=7, decisions={"COMMIT": {"PRODUCER": 2}}, rows_written={"topics": 2})"""
_TOLD = ["reconcile, run 7: done", "  decided    2 COMMIT", "  delivered  2 messages"]
_FAILS = """from halfop.frame.errors import UsageError
    raise UsageError("wrong")"""


@pytest.mark.parametrize("options", [(), ("--output", "text"), ("--output=text", "--log", "json")])
def test_a_call_ends_with_lines_for_people(options: tuple[str, ...]) -> None:
    assert on_terminal(_RUN, *options)[1] == _TOLD


@pytest.mark.parametrize("options", [("--output", "json"), ("--log", "json")])
def test_a_call_ends_with_json_where_that_is_asked_for(options: tuple[str, ...]) -> None:
    (row,) = on_terminal(_RUN, *options)[1]
    assert json.loads(row)["run_id"] == 7


def test_an_error_is_a_sentence_on_a_terminal_and_no_json() -> None:
    assert on_terminal(_FAILS, status=2)[1] == ["halfop land: wrong"]
    assert on_terminal("", "--nonsense", status=2)[1][0].startswith("halfop land: unrecognized arguments")
    *_, row = on_terminal("", "--nonsense", "--output", "json", status=2)[1]
    assert json.loads(row)["status"] == 2


@pytest.mark.parametrize(("options", "last"), [((), "}"), (("--output", "text"), "delivered  2 messages")])
def test_where_stdout_is_no_terminal(options: tuple[str, ...], last: str) -> None:
    command = [sys.executable, "-c", _JOB.format(work=_RUN), *options]
    told = subprocess.run(command, env={"PYTHONPATH": str(_LIB)}, capture_output=True, text=True, check=True)
    assert told.stdout.endswith(f"{last}\n")


@pytest.mark.slow
def test_spark_shows_its_bar_on_a_terminal_alone() -> None:
    seen, rows = on_terminal(_SPARK)
    assert re.search(r"\[Stage \d+:.*\(\d \+ 2\) / 8\]", seen)
    assert [without_clock(row) for row in rows[-3:-1]] == [_LOGGED[0], "a table for people"]
    assert "[Stage" not in on_terminal(_SPARK, "--log", "json")[0]
