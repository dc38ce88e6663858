"""The demo's passes: each lands a store as a broker leaves it, so nothing warns of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from halfop.demo import Pass, passes, store_upto
from halfop.frame.cli import main
from halfop.jobs import demo
from halfop.rocketmq.store.layout import layout

SAMPLE = Path(__file__).parents[1] / "demo"


@pytest.mark.parametrize("each", passes(SAMPLE), ids=lambda each: f"{each.now:%H:%M:%S}")
def test_a_passs_store_is_whole(each: Pass, tmp_path: Path) -> None:
    found = layout(store_upto(SAMPLE, tmp_path, each.log_to))
    assert each.log_to in (None, found.end)
    assert (found.queue_ahead, found.torn, found.cross_checked) == (0, 0, True)


def test_without_a_checkout_it_names_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "checkout", lambda environ: None)
    assert main(demo.JOB, []) == 2
    assert "the demo needs a checkout of halfop" in capsys.readouterr().err
