"""A warehouse in which a run is due that writes all that a run may write, and what it must leave, whatever kills it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.model import RuleSettings, Settings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession

from support import rows as r
from support.messages import NOW, QUEUE, RULES, half, one_of_each, ops

LATER = NOW + 100_000
# who did it, when, how fast, and where his warehouse was
UNLIKE_EACH_TIME = ("at", "owner", "seconds", "settings")
TABLES = ("runs", "decisions", "topics_index", "trans_check_max_time", "check_requests", "rejected")
SETTINGS = Settings(rules=RuleSettings(transaction_check_max=1))
_AT_ONCE = [part for key in ("verify", "files", "waits", "landed") for part in ("--set", f"retention.{key}=0s")]
MAINTAIN, RESUME = ["maintain", *_AT_ONCE], ["resume", "--where", "true"]


def command(warehouse: Path) -> list[str]:
    now = datetime.fromtimestamp(LATER / 1000, timezone.utc).isoformat()
    options = ["--warehouse", str(warehouse), "--now", now, "--set", "rules.transaction_check_max=1"]
    return ["reconcile", *options]


@pytest.fixture(scope="module")
def before(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse after one run and before a second one, which writes all that a run may write."""
    folder = tmp_path_factory.mktemp("kills") / "before"
    prepare(KernelWarehouse(spark, str(folder)))
    return folder


def prepare(warehouse: Warehouse) -> None:
    one_of_each(warehouse)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    late = [half(20), half(21, "V"), half(22, "no topic"), half(23, store=NOW), half(24, check_times="1")]
    both = [*ops("COMMIT", 6, 20, 21), *ops("ROLLBACK", 2, 20), *ops("COMMIT", 99)]
    r.land(warehouse, late, both, LATER, {QUEUE: LATER})


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, before: Path) -> dict[str, Counter[str]]:
    folder = before.with_name("undisturbed")
    shutil.copytree(before, folder)
    return content(finished(spark, folder))


def finished(spark: SparkSession, folder: Path) -> Warehouse:
    """The next start."""
    warehouse = KernelWarehouse(spark, str(folder))
    assert reconcile(warehouse, Request(SETTINGS, r.instant(LATER))).status == 0
    return warehouse


def content(
    warehouse: Warehouse, runs: int = 2, without: Mapping[str, Collection[str]] | None = None
) -> dict[str, Counter[str]]:
    """All rows of all that a run writes. A start that finds the run closed opens one more, which does not count.

    `without`: columns by table that are not looked at.
    """
    topics = [f"topics/{row['directory']}" for row in warehouse.rows("topics_index")]
    found = {}
    for name in (*TABLES, *topics):
        unlike = {*UNLIKE_EACH_TIME, *(without or {}).get(name, ())}
        found[name] = Counter(_text(row, unlike) for row in warehouse.rows(name) if row["run_id"] <= runs)
    return found


def _text(row: Mapping[str, Any], unlike: Collection[str]) -> str:
    """A map's entries have no order."""
    cells = {name: cell for name, cell in row.items() if name not in unlike}
    return str({name: sorted(cell.items()) if isinstance(cell, dict) else cell for name, cell in cells.items()})
