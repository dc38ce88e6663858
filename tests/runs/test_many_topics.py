"""A run that brings many new topics reports their cost before it makes the first table."""

from __future__ import annotations

import logging

import pytest
from halfop.planning.digest import Digest
from halfop.planning.run import INPUTS, Run
from halfop.settings.load import load_settings
from halfop.sinks.targets import index_topics, targets
from halfop.warehouse.tables import NO_TABLE, Warehouse
from support import rows as r
from support.messages import NOW


@pytest.mark.parametrize(
    ("layout", "number", "warned"), [("per_topic", 199, 0), ("per_topic", 200, 1), ("single", 200, 0)]
)
def test_many_new_topics_are_announced(
    warehouse: Warehouse, caplog: pytest.LogCaptureFixture, layout: str, number: int, warned: int
) -> None:
    warehouse.make("topics_index")
    for _ in range(2):  # the second time they are known
        with caplog.at_level(logging.WARNING, "halfop.reconcile"):
            found = targets(warehouse, run(layout), committed(number))
            index_topics(warehouse, run(layout), [target for target in found if target.is_new])
        assert len(found) == (number if layout == "per_topic" else 1)
    assert len(caplog.messages) == warned
    for said in caplog.messages:
        assert said.startswith("200 new topics: this run makes a table for each, which takes about 6 s and 600 files")
        assert "topics.layout: single" in said
    assert warehouse.version("topics/T0") == NO_TABLE, "no table has been made yet"


def run(layout: str) -> Run:
    none = dict.fromkeys(INPUTS, NO_TABLE)
    return Run(1, r.instant(NOW), none, none, load_settings(None, [f"topics.layout={layout}"], {}))


def committed(topics: int) -> Digest:
    """One message of each topic."""
    about = {"decision": "COMMIT", "reason": "PRODUCER", "rows": 1}
    return Digest([about | {"topic": f"T{n}"} for n in range(topics)])
