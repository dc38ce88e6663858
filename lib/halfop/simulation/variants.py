"""The variants that a command line asks for: the rules as configured, and as `--set` would have them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from halfop.frame.errors import UsageError
from halfop.settings.load import load_settings
from halfop.settings.model import RuleSettings, Settings

NOW = "now"
MOST = 12
_ALWAYS = "rules.ask"


def variants(settings: Settings, config: Path | None, given: Sequence[str]) -> dict[str, RuleSettings]:
    """The configured rules, then each combination of the values given as RULE=VALUE[,VALUE…], by name."""
    keys = [each.partition("=")[0].strip() for each in given]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise UsageError(f"--set {min(twice)} is given twice; several values of one setting: KEY=VALUE,VALUE")
    each_with_values = [_values(each) for each in given]
    tried = [list(chosen) for chosen in product(*each_with_values)] if given else []
    if len(tried) > MOST:
        raise UsageError(f"these are {len(tried)} variants; at most {MOST} are played")
    found = {NOW: settings.rules}
    for chosen in tried:
        found[", ".join(chosen)] = load_settings(config, [_override(each) for each in chosen]).rules
    return found


def _values(given: str) -> list[str]:
    key, equals, text = given.partition("=")
    return [f"{key.strip()}{equals}{value.strip()}" for value in text.split(",")]


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
