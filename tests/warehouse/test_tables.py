"""Small tables without a Spark job: what is appended comes back, by run and by version, and once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from halfop.frame.errors import HalfopError, LostRows
from halfop.warehouse.delta_log import DeltaLog
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.schema import delta_table
from halfop.warehouse.session import session_settings
from halfop.warehouse.tables import Marker
from support.reader_version import VECTORS, needs_more
from support.rows import instant

APP = "tests"


def row(run_id: int, **columns: object) -> dict[str, object]:
    return {"run_id": run_id, "event": "OPENED", "now": instant(run_id)} | columns


@pytest.fixture
def runs(warehouse: KernelWarehouse) -> KernelWarehouse:
    warehouse.make("runs")
    return warehouse


def found(runs: KernelWarehouse, version: int | None = None, run_id: int | None = None) -> list[tuple[object, ...]]:
    return sorted((row["run_id"], row["event"], row["now"]) for row in runs.rows("runs", version, run_id))


def test_what_takes_a_newer_reader_than_ours_is_seen(warehouse: KernelWarehouse) -> None:
    """By the tests that look into every log: else they could not fail."""
    with session_settings(warehouse.spark, VECTORS):
        warehouse.spark.sql(f"CREATE TABLE {delta_table(warehouse.path('others'))} (n INT) USING delta")
    assert needs_more(warehouse.root) == {"others"}


def test_rows_come_back_with_their_types(runs: KernelWarehouse) -> None:
    owed = [{"run_id": 7, "sink": "topics/a"}]
    told = row(
        1,
        inputs={"resumes": -1},
        slice={"number": 1, "bounds": [5], "ops_repeat": False, "copies": False},
        seconds={"plan": 0.5},
        owed=owed,
    )
    runs.commit("runs", [told], Marker(APP, 1))
    (read,) = runs.rows("runs")
    assert {name: read[name] for name in told} == told
    assert read["settings"] is None, "a column that was not given"
    assert runs.read("runs").select("inputs", "now").collect()[0]["inputs"] == {"resumes": -1}, "as Spark reads it"


@pytest.mark.parametrize(("rival", "events"), [(APP, ["RIVAL"]), ("other", ["OPENED", "RIVAL"])])
def test_a_table_that_another_driver_makes_meanwhile(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch, rival: str, events: list[str]
) -> None:
    begun = DeltaLog._begun

    def late(log: DeltaLog, *given: Any) -> Any:
        monkeypatch.setattr(DeltaLog, "_begun", begun)
        commit = begun(log, *given)
        warehouse.commit("runs", [row(1, event="RIVAL")], Marker(rival, 1))
        return commit

    monkeypatch.setattr(DeltaLog, "_begun", late)
    warehouse.commit("runs", [row(1)], Marker(APP, 1))
    assert [each[1] for each in found(warehouse)] == events


def test_rows_of_one_run_and_of_an_older_version(runs: KernelWarehouse) -> None:
    for run_id in range(1, 26):  # beyond Delta's checkpoint interval
        runs.commit("runs", [row(run_id)], Marker(APP, run_id))
    assert list(Path(runs.path("runs"), "_delta_log").glob("*.checkpoint*.parquet"))
    assert found(runs, run_id=24) == [(24, "OPENED", instant(24))]
    assert [each[0] for each in found(runs, version=2)] == [1, 2]
    assert len(found(runs)) == 25


def test_a_table_of_a_newer_protocol_is_read_by_spark(runs: KernelWarehouse) -> None:
    runs.commit("runs", [row(1), row(1, event="CLOSED")], Marker(APP, 1))
    before = found(runs)
    change = "ALTER TABLE delta.`{}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    runs.spark.sql(change.format(runs.path("runs")))
    assert runs.log.data_files(runs.path("runs"), None, None) is None
    assert found(runs) == before


@pytest.mark.parametrize("feature", ["'delta.columnMapping.mode' = 'name'", "'delta.enableDeletionVectors' = 'true'"])
def test_rows_that_a_restore_removed_are_missed_in_a_table_of_a_newer_protocol(
    runs: KernelWarehouse, feature: str
) -> None:
    """Its files alone do not show whose rows are left."""
    runs.commit("runs", [row(1)], Marker(APP, 1))
    of_runs = delta_table(runs.path("runs"))
    runs.spark.sql(f"ALTER TABLE {of_runs} SET TBLPROPERTIES ('delta.appendOnly' = 'false', {feature})")
    before = runs.version("runs")
    runs.commit("runs", [row(2)], Marker(APP, 2))
    runs.refuse_lost("runs", 2)
    runs.spark.sql(f"RESTORE TABLE {of_runs} TO VERSION AS OF {before}")
    runs.refuse_lost("runs", 1)
    with pytest.raises(LostRows, match="has lost what run 2 wrote"):
        runs.refuse_lost("runs", 2)


def test_a_table_that_forgets_what_was_written_is_refused(runs: KernelWarehouse) -> None:
    property_of = (
        "ALTER TABLE delta.`{}` SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 day')"
    )
    runs.spark.sql(property_of.format(runs.path("runs")))
    with pytest.raises(HalfopError, match="UNSET TBLPROPERTIES"):
        runs.marker("runs", APP)
