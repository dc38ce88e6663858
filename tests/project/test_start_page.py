"""docs/start.md: each of its steps does what the page says, in their order, in one warehouse."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

import pytest
from halfop.frame.cli import main
from pyspark.sql import SparkSession
from support.entry_points import job_of
from support.places import ROOT

pytestmark = pytest.mark.usefixtures("spark", "logging_as_before")

PAGE = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
JOB = "./spark-submit.sh "
_BLOCK = re.compile(r"^```sh\n(.*?)^```$|^((?: {4}\S[^\n]*\n)+)", re.DOTALL | re.MULTILINE)


@dataclass
class Step:
    """A section of the page: its blocks of commands, and what their calls have shown."""

    title: str
    text: str
    said: list[str] = field(default_factory=list)

    @property
    def blocks(self) -> list[str]:
        return [
            re.sub(r"^ {4}", "", fenced or plain, flags=re.MULTILINE) for fenced, plain in _BLOCK.findall(self.text)
        ]


STEPS = [
    Step(title, text) for title, text in re.findall(r"^## (\d\. .+?)\n(.*?)(?=^## )", PAGE, re.DOTALL | re.MULTILINE)
]


def played(block: str) -> Iterator[tuple[str, str]]:
    """Runs the block's jobs in this process and all else by bash; gives each job's call and all that it has shown.

    Java does not follow this process into another folder, so it gets whole paths.
    """
    shell: list[str] = []
    calls: list[str] = []
    for line in block.splitlines():
        (calls if line.startswith(JOB) else shell).append(line)
    subprocess.run(["bash", "-euc", "\n".join(shell)], check=True)  # noqa: S607
    for call in calls:
        name, *options = shlex.split(call.removeprefix(JOB), comments=True)
        options = [str(Path(word).absolute()) if word.startswith("hello/") else word for word in options]
        shown = StringIO()
        with redirect_stdout(shown), redirect_stderr(shown):
            status = main(job_of(name), options)
        assert status == 0, f"{call}\n{shown.getvalue()}"
        yield call, shown.getvalue()


@pytest.fixture(scope="module")
def upto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Step]]:
    """Returns a step of the page once it has been done, and all before it."""
    done: list[Step] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("start"))
        patch.setenv("HALFOP_WAREHOUSE", str(Path.cwd() / "warehouse"))

        def do(number: int) -> Step:
            for step in STEPS[len(done) : number]:
                for block in step.blocks:
                    if JOB in block:
                        for call, shown in played(block):
                            expected = call.partition("# ")[2]
                            assert expected in shown, f"{call}\n{shown}"
                            step.said.append(shown)
                done.append(step)
            return STEPS[number - 1]

        yield do


def test_it_has_these_steps() -> None:
    assert [step.title.partition(". ")[0] for step in STEPS] == [str(n + 1) for n in range(len(STEPS))]
    assert all(JOB in step.text for step in STEPS)


def test_two_lines_land(upto: Callable[[int], Step]) -> None:
    (landed,) = upto(1).said
    assert '"half_messages": 1' in landed
    assert '"op_messages": 1' in landed


def test_the_topic_has_the_order(upto: Callable[[int], Step]) -> None:
    assert re.search(r"K0 +1 +9\.5", upto(2).said[1]), upto(2).said[1]


def test_a_silent_producers_message_hangs(upto: Callable[[int], Step]) -> None:
    assert '"open_messages": 1' in upto(3).said[1]


def test_the_report_and_sql_find_it(upto: Callable[[int], Step]) -> None:
    assert re.search(r"K1 +CHECK +TIMEOUT", upto(4).said[1]), upto(4).said[1]
    assert "broker-a/0/1" in Path("report.html").read_text()


def test_explain_says_what_the_page_shows(upto: Callable[[int], Step]) -> None:
    step = upto(5)
    (shown,) = step.blocks[1:]
    assert [line for line in shown.splitlines() if line not in step.said[0]] == []


def test_it_is_ended_and_delivered(upto: Callable[[int], Step], spark: SparkSession) -> None:
    assert len(upto(6).said) == 3
    rows = spark.read.format("delta").load(str(Path("warehouse/topics/orders").absolute())).collect()
    assert {row["transaction_id"]: (bytes(row["body"]), tuple(row["value"])) for row in rows} == {
        "K0": (b'{"order":1,"total":9.5}', (1, 9.5)),
        "K1": (b'{"order":2,"total":4}', (2, 4.0)),
    }
