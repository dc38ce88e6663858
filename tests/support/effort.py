"""How hard property tests try: a Hypothesis profile for each suite, chosen by --hypothesis-profile."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# How many examples: `quick` while typing, `run` and `ci` for the plain suite, the others for a night.
_EXAMPLES = {"quick": 8, "run": 100, "ci": 100, "slow": 400, "nightly": 5_000}


def choose() -> None:
    """Makes the profiles known and takes that of the plain suite; in CI the same examples at every run.

    An example that fails is printed with the decorator that plays it again.
    """
    for name, examples in _EXAMPLES.items():
        settings.register_profile(
            name,
            max_examples=examples,
            deadline=None,
            derandomize=name == "ci",
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile("ci" if os.environ.get("CI") else "run")


def part(of_the_profile: float) -> settings:
    """Returns settings for a test whose examples are dear: part of the profile's number of them."""
    return settings(max_examples=max(1, round(settings().max_examples * of_the_profile)))
