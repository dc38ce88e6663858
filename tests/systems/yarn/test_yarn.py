"""On YARN with the archive of `pack`: the host has no Python of ours, for executors or for a driver there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import SparkSession
from support.crash import ended, job
from support.json_lines import T0
from support.large_runs import everything, landed_and_decided, write_backlog
from support.places import ROOT

from systems.yarn.local_yarn import local_yarn

pytestmark = [
    pytest.mark.yarn,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        os.geteuid() != 0 or sys.base_prefix == "/usr", reason="only root can hide a Python, but not /usr"
    ),
]
_SMALL = ["--num-executors", "1", "--executor-cores", "2", "--executor-memory", "1g", "--driver-memory", "1g"]


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with local_yarn(tmp_path_factory.mktemp("yarn"), [sys.base_prefix]) as conf:
        yield conf


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The options that `pack` prints."""
    archive = tmp_path_factory.mktemp("pack") / "halfop-env.tar.gz"
    said = subprocess.run([ROOT / "spark-submit.sh", "pack", archive], check=True, capture_output=True, text=True)
    return said.stdout.split()


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_landed_and_reconciled_by_workers(
    spark: SparkSession, yarn: Path, packed: list[str], tmp_path: Path, mode: str
) -> None:
    given = write_backlog(tmp_path / "in")
    here, there = (str(tmp_path / name) for name in ("local", "yarn"))
    (way,) = landed_and_decided(here, str(given))
    assert way.startswith("by workers")
    options = ["--master", "yarn", "--deploy-mode", mode, *_SMALL, *packed]
    now = datetime.fromtimestamp(T0 / 1_000 + 100, timezone.utc).isoformat()
    land = ["land", "files", "--half", f"{given}/h.parquet", "--op", f"{given}/o.jsonl"]
    for arguments in (land, ["reconcile", "--now", now]):
        status, said = ended(job(*options, *arguments, "--warehouse", there, HADOOP_CONF_DIR=str(yarn)))
        assert status == 0, said
    assert everything(KernelWarehouse(spark, there)) == everything(KernelWarehouse(spark, here))
