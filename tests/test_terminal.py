"""The line that tells on a terminal what a job is at: through a real pseudo-terminal, as a small screen shows it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

_LIB = Path(__file__).parents[1] / "lib"
# A job without Spark: two phases, a log line in the midst of one, and Java's word that goes past the log.
_PROGRAM = """
import os, sys, time
from halfop.frame import terminal
from halfop.frame.cli import Job, run_job
from halfop.frame.summary import Summary

def run(context, args):
    summary = Summary("land")
    time.sleep(0.1)
    terminal.started(lambda: "3 of 16 tasks")
    with summary.phase("survey"):
        time.sleep(0.1)
        context.log.info("a line of the log")
        time.sleep(0.1)
        context.log.warning("with a trace", exc_info=ValueError("of lines\\nthat are\\nshort"))
        time.sleep(0.1)
        os.write(2, b"WARN of Java\\n")
        time.sleep(0.1)
    print("a table for people")
    with summary.phase(chr(27) + "[2J" + "x" * 500):
        time.sleep(0.1)
    return summary

terminal._EVERY_SECONDS = 0.01
run_job(Job("land", "", run), sys.argv[1:])
"""

_LOGGED = [
    "halfop.land  a line of the log",
    "halfop.land  WARNING with a trace",
    "ValueError: of lines",
    "that are",
    "short",
    "WARN of Java",
]


def on_terminal(*options: str, term: str = "xterm") -> tuple[bytes, list[str]]:
    """All that came, and the screen's rows in the end. stderr is the terminal, stdout too."""
    ours, theirs = pty.openpty()
    environment = {"PYTHONPATH": str(_LIB), "TERM": term, "PATH": os.environ["PATH"]}
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *options], stdout=theirs, stderr=theirs, stdin=theirs, env=environment
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while part := os.read(ours, 65536):
                seen += part
        except OSError:  # Linux' word for the terminal's end
            pass
        assert process.wait() == 0, seen
    os.close(ours)
    return seen, screen(seen.decode())


def screen(text: str) -> list[str]:
    """What a terminal shows in the end: of escapes just those that we send."""
    rows, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[J|\x1b\[1A|\r|\n|[^\x1b\r\n]+|\x1b", text):
        if part == "\x1b[J":
            rows = [*rows[:row], rows[row][:column]]
        elif part == "\x1b[1A":
            row -= 1
        elif part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        else:
            assert part != "\x1b", "an escape that is not ours"
            rows[row] = rows[row][:column].ljust(column) + part + rows[row][column + len(part) :]
            column += len(part)
    return [each for each in rows if each]


def without_clock(row: str) -> str:
    return re.sub(r"^\d\d:\d\d:\d\d ", "", row)


def test_the_line_comes_and_goes() -> None:
    seen, rows = on_terminal()
    shown = set(re.findall(r"land  [^\r\x1b]+", seen.decode()))
    assert {"land  starting Spark  0:00", "land  survey  0:00  3 of 16 tasks"} <= shown
    assert all(len(line) < 80 for line in shown), "a line that wraps could not be erased"
    *others, summary = map(without_clock, rows)
    assert others == [*_LOGGED, "a table for people"]
    assert summary.startswith('{"job": "land"')


@pytest.mark.parametrize(("options", "term"), [(("--log", "json"), "xterm"), ((), "dumb")])
def test_quiet(options: tuple[str, ...], term: str) -> None:
    seen, _ = on_terminal(*options, term=term)
    assert b"survey  " not in seen
    assert b"\x1b" not in seen


def test_nothing_where_stderr_is_no_terminal() -> None:
    environment = {"PYTHONPATH": str(_LIB), "TERM": "xterm"}
    told = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert [without_clock(line) for line in told.stderr.splitlines()] == _LOGGED
