"""reconcile --verify: a run that is computed again gives the same, and changes of the record are found."""

from __future__ import annotations

from dataclasses import replace

import pytest
from halfop.frame.cli import main
from halfop.frame.errors import UsageError
from halfop.frame.trouble import failure_of
from halfop.planning.digest import Digest
from halfop.runs.record import found_run
from halfop.runs.verify import MISSING, UNEXPECTED, UNLIKE, Difference, verify
from halfop.sinks.targets import targets
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession
from support import rows as r
from support.entry_points import job_of
from support.messages import NOW, QUEUE, RULES, half, one_of_each, ops

LATER = NOW + 100_000


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Two runs, the second with ops and halves of its own and what the first left open."""
    warehouse = KernelWarehouse(spark, str(tmp_path_factory.mktemp("verify") / "warehouse"))
    one_of_each(warehouse)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    r.land(warehouse, [half(20), half(21, "U")], ops("COMMIT", 6, 20), LATER, {QUEUE: LATER})
    r.run(warehouse, RULES, LATER, layout="per_topic")
    return warehouse


def changed(warehouse: Warehouse, name: str, statement: str) -> None:
    """Changes a table by hand, as nobody should: append-only tables refuse it until that is switched off."""
    path = warehouse.path(name)
    warehouse.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    warehouse.spark.sql(statement.format(f"delta.`{path}`"))


def topic(warehouse: Warehouse) -> str:
    (directory,) = [row["directory"] for row in warehouse.rows("topics_index") if row["topic"] == "T"]
    return f"topics/{directory}"


def test_what_is_recorded_follows_from_the_inputs(ran: Warehouse) -> None:
    for run_id in (1, 2):
        summary, differences = verify(ran, run_id)
        assert (summary.status, differences, summary.extra["differences"]) == (0, [], 0)
        decided = ran.read("decisions").where(f"run_id = {run_id}").count()
        assert summary.rows_read["decisions"] == decided
        committed = ran.read(topic(ran)).where(f"run_id = {run_id}").count()
        assert committed == summary.rows_read["topics/T"] > 0


def test_a_run_that_there_is_not(ran: Warehouse) -> None:
    for run_id in (3, 99):
        with pytest.raises(UsageError, match=f"no run {run_id}") as refused:
            verify(ran, run_id)
        assert failure_of(refused.value, verbose=False).fields()["run_id"] == run_id


def test_a_reader_writes_no_directory(ran: Warehouse) -> None:
    digest, found = Digest.of(ran, 2), found_run(ran, 2)
    assert found
    version = ran.version("topics_index")
    elsewhere = Digest([row | {"topic": "new"} for row in digest.rows])
    new = targets(ran, replace(found[0], run_id=9), elsewhere)
    assert [(target.name, target.is_new) for target in new if target.decision == "COMMIT"] == [("topics/new", True)]
    assert ran.version("topics_index") == version


@pytest.mark.slow
def test_every_change_is_found(ran: Warehouse, capsys: pytest.CaptureFixture[str]) -> None:
    changed(ran, "decisions", "UPDATE {} SET reason = 'EXPIRED' WHERE run_id = 1 AND queue_offset = 3")
    changed(ran, topic(ran), "DELETE FROM {} WHERE half_queue_offset = 0")
    changed(ran, topic(ran), "INSERT INTO {0} SELECT * FROM {0} WHERE half_queue_offset = 5")
    changed(ran, "check_requests", "UPDATE {} SET check_times = 9 WHERE run_id = 1")
    changed(ran, "rejected", "DELETE FROM {} WHERE run_id = 1 AND kind = 'HALF'")
    summary, differences = verify(ran, 1)
    assert summary.status == 5
    assert Difference("decisions", UNLIKE, *QUEUE, 3, "reason") in differences
    assert Difference("topics/T", MISSING, *QUEUE, 0) in differences
    assert Difference("topics/T", UNEXPECTED, *QUEUE, 5) in differences
    assert {each.columns for each in differences if each.table == "check_requests"} == {"check_times"}
    assert {each.what for each in differences if each.table == "rejected"} == {MISSING}
    assert summary.extra["differences"] == sum(2 if each.what == UNLIKE else 1 for each in differences)
    assert verify(ran, 2)[0].status == 0, "the run after it stands by itself"
    assert ran.read("decisions").where("run_id = 2 AND decision = 'DISCARD'").count() == 0
    changed(ran, "trans_check_max_time", "INSERT INTO {0} BY NAME SELECT * EXCEPT (run_id), 2 AS run_id FROM {0}")
    assert {(each.table, each.what) for each in verify(ran, 2)[1]} == {("trans_check_max_time", UNEXPECTED)}
    job = job_of("reconcile")
    assert main(job, ["--warehouse", ran.root, "--verify", "1"]) == 5
    assert ["topics/T", MISSING, "b", "0", "0"] in [line.split() for line in capsys.readouterr().out.splitlines()]
