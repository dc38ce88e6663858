"""The seed of what tests draw beside Hypothesis: another one at every start, in CI always the same.

TEST_SEED gives one. conftest.py adds to a failed test how to draw the same again.
"""

from __future__ import annotations

import os
import random

_IN_CI = 20_251_124


def _seed() -> int:
    given = os.environ.get("TEST_SEED")
    if given:
        return int(given)
    return _IN_CI if os.environ.get("CI") else random.SystemRandom().randrange(2**32)


SEED = _seed()


def the_same_again(test: str) -> str:
    """Returns the command that runs a test with what it has drawn."""
    return f"TEST_SEED={SEED} tests/run '{test}' -m 'slow or not slow'"
