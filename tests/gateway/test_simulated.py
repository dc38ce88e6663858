"""The gateway's core and log under every fault at once: histories that follow from a seed, on a virtual clock and disk.

`bench/run simulated` plays ten thousand and more.
"""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

import pytest
from support.seeds import SEED
from support.simulated.planted import PLANTED
from support.simulated.shortest import Failed
from support.simulated.world import fails, history, play

_STEPS = 100  # of a history here; in bench/ three times as many
# Histories that have found a mistake, by seed and number of steps.
FOUND = {"a file of the log that ends with its blank is the last one": (83, 300)}
# Planted mistakes that a few seeds find.
QUICK = (
    "an answer does not wait for the disk",
    "a write that failed is ignored",
    "a repeated end counts",
    "a question counts that was not sent",
)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """What a gateway warns of is what a simulation does."""
    logging.getLogger("halfop.gateway").setLevel(logging.CRITICAL)


@pytest.mark.long
def test_whatever_fails(tmp_path: Path) -> None:
    first = Random(SEED).randrange(1 << 32)
    for seed in range(first, first + 200):
        play(tmp_path / "store", seed, history(seed, _STEPS))


@pytest.mark.parametrize("name", FOUND)
def test_what_simulations_have_found_is_mended(tmp_path: Path, name: str) -> None:
    seed, steps = FOUND[name]
    play(tmp_path / "store", seed, history(seed, steps))


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in PLANTED])
def test_a_planted_mistake_is_found(tmp_path: Path, name: str) -> None:
    with PLANTED[name]():
        assert any(fails(tmp_path / "store", seed, history(seed)) for seed in range(1000))


def test_a_failure_shows_its_shortest_history(tmp_path: Path) -> None:
    with PLANTED["an answer does not wait for the disk"](), pytest.raises(Failed) as failed:
        play(tmp_path / "store", 0, history(0))
    steps = failed.value.steps
    assert len(steps) < 10
    assert {"sends", "network"} <= {step.what for step in steps}
    assert "acknowledged, and neither in the log nor in the warehouse" in str(failed.value)
