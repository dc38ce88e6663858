"""halfop on other Sparks than its environment's own: the same tests, started with their SPARK_HOME.

`-m sparks` plays recorded cases, histories, kills and a backlog on each; the plain suite a few tests on the oldest.
"""

from __future__ import annotations

import json

import pytest

from systems.sparks.installed import OTHERS, called

pytestmark = pytest.mark.timeout(7200)
each_spark = pytest.mark.parametrize("spark", OTHERS)
# What a run decides; both ways to write it; a checkpoint of Delta Kernel's; a function in Python workers.
FEW = (
    "tests/rules/test_oracle.py::test_a_run_decides_as_rocketmq_does[60000-2-1]",
    "tests/runs/test_by_workers.py::test_they_decide_and_write_what_the_columns_do",
    "tests/warehouse/test_contract.py::TestHere::test_markers_outlive_many_commits_and_the_log_s_clean_up",
    "tests/ending/test_resolve.py::test_a_field_of_the_body",
)
PLAYED = {
    "recorded cases": ("tests/rules/test_oracle.py", "tests/rules/test_rules.py", "tests/rules/test_surprises.py"),
    "histories": ("tests/rules/test_histories.py", "tests/rules/test_small_histories.py"),
    "kills": ("tests/runs/test_kills.py", "tests/landing/test_landing_kills.py"),
    "many rows": ("tests/runs/test_by_workers.py", "tests/landing/test_land_by_workers.py"),
    "tables": (
        *(f"tests/warehouse/test_{each}.py" for each in ("contract", "delta_assumptions", "hazards", "log_store")),
        *("tests/warehouse/test_few_rows.py", "tests/runs/test_verify.py", "tests/ending/test_resolve.py"),
    ),
}


# PySpark 4.0 leaves the socket that rows came by to Python's garbage collector.
PYTEST = ("python", "-m", "pytest", "-n", "0", "-W", "ignore:unclosed <socket:ResourceWarning")


def passes(spark: str, *tests: str, marked: str = "slow or not slow") -> None:
    """Runs tests in a process of their own; none may be skipped."""
    done = called(spark, "spark-submit.sh", "exec", *PYTEST, "-m", marked, *tests, TEST_FLEETS="1")
    assert (done.returncode, "skipped" in done.stdout) == (0, False), done.stdout[-5000:] + done.stderr[-2000:]
    print(done.stdout.splitlines()[-1])


def test_a_few_on_the_oldest() -> None:
    passes(OTHERS[0], *FEW, marked="not slow")


@pytest.mark.sparks
@each_spark
def test_python_is_that_spark_s_own(spark: str) -> None:
    program = "import pyspark; print(pyspark.__version__)"
    done = called(spark, "spark-submit.sh", "exec", "python", "-c", program)
    assert (done.returncode, done.stdout[: len(spark) + 1]) == (0, f"{spark}."), done.stderr


@pytest.mark.sparks
@each_spark
@pytest.mark.parametrize("what", PLAYED)
def test_what_is_played(spark: str, what: str) -> None:
    passes(spark, *PLAYED[what])


@pytest.mark.sparks
@each_spark
def test_a_backlog(spark: str) -> None:
    done = called(spark, "bench/run", "backlog", "--rows", "300000", "--rounds", "1")
    assert done.returncode == 0, done.stderr[-3000:]
    decided = json.loads(done.stdout.splitlines()[-1])["decisions"]
    assert sum(decided["COMMIT"].values()) > 250_000
