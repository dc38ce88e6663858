"""deploy/dbt: its models are built by dbt-duckdb from a warehouse that runs have written."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.fetched import environment
from support.lived import lived
from support.places import ROOT

_ASKED = """
import duckdb, sys
tables = duckdb.connect(sys.argv[1])
print(tables.sql("SELECT decision, sum(messages)::INT FROM ends_by_day GROUP BY ALL ORDER BY ALL").fetchall())
print(tables.sql("SELECT sum(messages)::INT FROM open_messages").fetchall())
"""


@pytest.mark.deploy
def test_the_models_are_built(spark: SparkSession, tmp_path: Path) -> None:
    project, programs = shutil.copytree(ROOT / "deploy" / "dbt", tmp_path / "dbt"), environment("dbt")
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environ |= {"HALFOP_WAREHOUSE": lived(spark).root, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
    build = [str(programs / "dbt"), "build", "--profiles-dir", "."]
    told = subprocess.run(build, cwd=project, env=environ, capture_output=True, text=True, check=False, timeout=300)
    assert told.returncode == 0, told.stdout
    ask = [str(programs / "python"), "-c", _ASKED, "halfop.duckdb"]
    rows = subprocess.run(ask, cwd=project, env=environ, capture_output=True, text=True, check=True).stdout
    assert rows.splitlines() == ["[('COMMIT', 4), ('DISCARD', 2), ('ROLLBACK', 1)]", "[(5,)]"]
