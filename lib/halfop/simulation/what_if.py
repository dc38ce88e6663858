"""A simulation from its request to its result: variants of the settings, played, compared, and written as a page."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from halfop.frame.errors import UsageError
from halfop.frame.summary import Summary
from halfop.frame.units import instant as instant_text
from halfop.html import page
from halfop.planning.run import asks
from halfop.settings.load import changed
from halfop.settings.model import RuleSettings, Settings
from halfop.settings.values import duration_text
from halfop.simulation.play import Outcome
from halfop.simulation.replay import Schedule
from halfop.simulation.simulate import Period, html, in_summary, scheduled, simulate
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import progress_rows

NOW = "now"
MOST = 12
_ALWAYS = "rules.ask"


@dataclass(frozen=True)
class Simulated:
    """The end of a simulation: the summary, and an outcome a variant; none if nothing has landed.

    The first outcome, `now`, is that of the configured settings.
    """

    summary: Summary
    outcomes: Sequence[Outcome]


def simulated(
    warehouse: KernelWarehouse, tried: Mapping[str, RuleSettings], period: Period, out: Path | None
) -> Simulated:
    """Plays the variants, of which the first is the configured one, and writes the page if it has a place."""
    summary, rules = Summary("simulate"), tried[NOW]
    schedule = scheduled(warehouse, period, rules)
    if schedule is None:
        summary.notes.append(f"nothing has landed in {warehouse.root} yet")
        return Simulated(summary, [])
    with summary.phase("simulate"):
        outcomes = simulate(warehouse, tried, period, schedule)
    summary.extra = {"runs": len(schedule.instants), "every": schedule.every, "outcomes": in_summary(outcomes)}
    watched = [broker for broker, asked in asks(rules.ask, progress_rows(warehouse)).items() if not asked]
    summary.notes += _notes(schedule, period, rules, watched)
    if out:
        page.write(out, html(outcomes, _about(warehouse.root, schedule)))
    return Simulated(summary, outcomes)


def _notes(schedule: Schedule, period: Period, rules: RuleSettings, watched: Collection[str]) -> Iterator[str]:
    if schedule.every and schedule.every > period.wanted(rules):
        yield (
            f"runs are {duration_text(schedule.every)} apart, so that there are no more than {period.most_steps}, and "
            "nobody is asked more often; a shorter time by --from and --to, or more --max-steps, brings them closer"
        )
    if watched:
        yield f"halfop only watches {', '.join(watched)} (rules.ask). Here it asks in the brokers' place"


def _about(root: str, schedule: Schedule) -> list[tuple[str, str]]:
    first, last = instant_text(schedule.instants[0]), instant_text(schedule.instants[-1])
    every = duration_text(schedule.every) if schedule.every else ""
    return [("warehouse", root), ("first run", first), ("last run", last), ("every", every)]


def checked(settings: Settings, what_if: Mapping[str, Sequence[object]], out: Path | None) -> dict[str, RuleSettings]:
    """Returns the variants. Raises UsageError if one is none, or if the page has no folder."""
    if out:
        page.refuse_no_folder(out)
    return variants(settings, what_if)


# ---- variants ----


def variants(settings: Settings, what_if: Mapping[str, Sequence[object]]) -> dict[str, RuleSettings]:
    """The configured rules, then each combination of the values that settings of the rules are given, by name."""
    each_with_values = [[f"{key}={value}" for value in values] for key, values in what_if.items()]
    tried = [list(chosen) for chosen in product(*each_with_values)] if what_if else []
    if len(tried) > MOST:
        raise UsageError(f"these are {len(tried)} variants; at most {MOST} are played")
    found = {NOW: settings.rules}
    for chosen in tried:
        found[", ".join(chosen)] = changed(settings, [_override(each) for each in chosen]).rules
    return found


def _override(given: str) -> str:
    """RULE=VALUE as any job's --set takes it: names of rules may go without the prefix."""
    key = given.partition("=")[0]
    first = key.partition(".")[0]
    if first in Settings.model_fields and first != "rules" and first not in RuleSettings.model_fields:
        raise UsageError(f"--set {key}: a simulation plays other settings of the rules, as transaction_timeout=30s")
    override = given if first == "rules" else f"rules.{given}"
    if override.startswith(f"{_ALWAYS}="):
        raise UsageError(f"--set {key}: in a simulation halfop always asks")
    return override
