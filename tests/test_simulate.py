"""simulate: known figures of a history made by hand, and the same decisions as runs that really took place."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import model as m
import pytest
import rows as r
from halfop.settings import RuleSettings
from halfop.simulation.outcome import Outcome
from halfop.simulation.simulate import FOLDER, Span, simulate
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession
from strategies import op_rows

START = 1_750_000_000_000
SECOND = 1_000
QUEUE = ("b", 0)
RULES = m.Settings()


def at(seconds: float) -> int:
    return START + int(seconds * SECOND)


def half(offset: int, born: float, **columns: Any) -> m.Half:
    given: dict[str, Any] = {"commit_log_offset": offset * 100, "uniq_key": f"k{offset}", "group": "g", "real_qid": "1"}
    given |= {"real_topic": "T", "born": at(born), "store": at(born)}
    return m.Half(*QUEUE, offset, **(given | columns))


def op(names: int, stored: float, outcome: str = "COMMIT", **columns: Any) -> list[m.Op]:
    return op_rows(QUEUE, int(stored), str(names), [outcome], at(stored), **columns)


@pytest.fixture(scope="module")
def landed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """0 is ended late by its producer, 1 at once, 2 in answer to the first question, 3 to the second, 4 never.

    halfop asked at 20 s and at 80 s.
    """
    warehouse = Warehouse(spark, str(tmp_path_factory.mktemp("simulate") / "warehouse"))
    halves = [half(0, 1), half(1, 2), half(2, 2), half(3, 2), half(4, 2)]
    r.land(warehouse, halves, [*op(1, 3), *op(0, 15)], at(20), {QUEUE: at(20)})
    r.run(warehouse, RULES, at(20))
    r.land(warehouse, [], op(2, 23, from_check=True), at(80), {QUEUE: at(80)})
    r.run(warehouse, RULES, at(80))
    r.land(warehouse, [], op(3, 85, "ROLLBACK", from_check=True), at(100), {QUEUE: at(100)})
    return warehouse


def rules(**changed: Any) -> RuleSettings:
    return r.settings(RULES).rules.model_copy(update=changed)


def figures(outcome: Outcome) -> tuple[int, ...]:
    o = outcome
    return o.checks, o.needless_checks, o.discards, o.wrong_discards, o.commits, o.rollbacks, o.open_at_end


def test_every_figure_of_a_small_history_is_known(landed: Warehouse) -> None:
    variants = {
        "now": rules(),
        "patient": rules(transaction_timeout=timedelta(seconds=12)),
        "once": rules(transaction_check_max=1),
    }
    now, patient, once = simulate(landed, variants, Span(every=timedelta(seconds=10)))
    assert figures(now) == (6, 1, 0, 0, 3, 1, 1)
    assert (now.commit_p50, now.commit_p90, now.commit_p99) == (18, 18.8, 18.98)
    assert figures(patient) == (5, 0, 0, 0, 3, 1, 1)
    assert figures(once) == (4, 1, 2, 1, 3, 0, 0)
    assert [each.name for each in (now, patient, once)] == list(variants)
    assert not any(Path(landed.path(FOLDER)).iterdir()), "nothing is left of it"
