"""All targets by name."""

from __future__ import annotations

from support.fuzzed import files, log, rows, store, wire

TARGETS = {each.name: each for module in (wire, log, store, rows, files) for each in module.TARGETS}
