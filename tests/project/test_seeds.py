"""Seeds of tests: others at each start, the same in CI, and a failed test says how to draw the same again."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import pytest
from support.places import TESTS
from support.seeds import SEED, the_same_again


def drawn(**variables: str) -> int:
    """The seed of another process."""
    known = {name: value for name, value in os.environ.items() if name not in ("CI", "TEST_SEED")}
    command = [sys.executable, "-c", "from support.seeds import SEED; print(SEED)"]
    said = subprocess.run(command, cwd=TESTS, env=known | variables, capture_output=True, text=True, check=True)
    return int(said.stdout)


@pytest.mark.process
def test_seeds() -> None:
    assert drawn() != drawn()
    assert drawn(CI="true") == drawn(CI="true")
    assert drawn(CI="true", TEST_SEED="7") == drawn(TEST_SEED="7") == 7


def test_a_failed_test_says_how_to_draw_the_same_again(request: pytest.FixtureRequest) -> None:
    hook = request.config.hook.pytest_runtest_makereport
    for wrong, shown in ((ValueError, [("the same again", the_same_again(request.node.nodeid))]), (None, [])):
        call = pytest.CallInfo.from_call(partial(_end, wrong), "call", reraise=None)
        report = hook(item=request.node, call=call)
        assert [each for each in report.sections if each[0] == "the same again"] == shown
    assert f"TEST_SEED={SEED} tests/run" in the_same_again("x")


def _end(wrong: type[Exception] | None) -> None:
    if wrong:
        raise wrong
