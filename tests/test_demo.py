"""The demo's passes: each lands a store as a broker leaves it, so nothing warns of it."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from halfop.demo import OVERRIDES, Pass, passes, store_upto
from halfop.planning.clocks import Clock, late_clocks
from halfop.rocketmq.store.layout import layout
from halfop.settings.load import load_settings
from store_reader import read_all

SAMPLE = Path(__file__).parents[1] / "demo"


@pytest.mark.parametrize("each", passes(SAMPLE), ids=lambda each: f"{each.now:%H:%M:%S}")
def test_a_passs_store_is_whole(each: Pass, tmp_path: Path) -> None:
    found = layout(store_upto(SAMPLE, tmp_path, each.log_to))
    assert each.log_to in (None, found.end)
    assert (found.queue_ahead, found.torn, found.cross_checked) == (0, 0, True)


@pytest.mark.parametrize("each", passes(SAMPLE), ids=lambda each: f"{each.now:%H:%M:%S}")
def test_a_passs_clock_is_not_late(each: Pass, tmp_path: Path) -> None:
    """As a broker is that lands every few seconds: a report of the demo has no late queue to warn of."""
    settings = load_settings(None, OVERRIDES, {})
    newest = read_all(store_upto(SAMPLE, tmp_path, each.log_to), size=1 << 30).newest
    assert newest is not None
    newest_at = datetime.fromtimestamp(newest / 1000, timezone.utc)
    assert newest_at <= each.now
    clock = Clock("broker-a", 0, newest_at - settings.landing.op_lag, None, None)
    assert late_clocks([clock], each.now, settings.rules.transaction_check_interval) == []
