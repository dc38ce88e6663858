"""deploy/databricks: the settings of its task. tests/systems/deploy runs it against a server of Spark Connect."""

from __future__ import annotations

import runpy
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import halfop
import pytest
from halfop.frame.summary import Summary
from pyspark.sql import SparkSession
from support.places import ROOT


def test_settings_are_read_as_by_the_command_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, real = list[halfop.Halfop](), halfop.open

    def seen(spark: SparkSession, root: str, settings: dict[str, object]) -> object:
        opened.append(real(spark, root, settings))
        return SimpleNamespace(audit=lambda: Summary("audit"))

    monkeypatch.setattr(halfop, "open", seen)
    run = runpy.run_path(str(ROOT / "deploy/databricks/halfop_databricks.py"))["run"]
    given = ("run.max_rows=100000", "disk.sync=false", "rules.transaction_timeout=10s", "catalog.schema=null")
    run(["--warehouse", str(tmp_path), *(word for each in given for word in ("--set", each)), "audit"])
    settings = opened[0].settings
    assert (settings.run.max_rows, settings.disk.sync) == (100_000, False)
    assert (settings.rules.transaction_timeout, settings.catalog.schema_) == (timedelta(seconds=10), None)
    with pytest.raises(halfop.UsageError, match="expected KEY=VALUE"):
        run(["--warehouse", str(tmp_path), "--set", "disk.sync", "audit"])
