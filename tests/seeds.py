"""The seed of what tests draw beside Hypothesis: another one at every start, or the one that HALFOP_TEST_SEED gives."""

from __future__ import annotations

import os
import random

SEED = int(os.environ.get("HALFOP_TEST_SEED") or random.SystemRandom().randrange(2**32))


def show_seed() -> None:
    """pytest shows it with a test that fails."""
    print(f"HALFOP_TEST_SEED={SEED} draws the same again")
