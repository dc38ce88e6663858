"""Metrics as Prometheus takes them from jobs: a file for node_exporter's textfile collector, a push gateway, or both.

The format is twenty lines, and no client library writes it without a registry and threads of its own.
"""

from __future__ import annotations

import math
import os
import re
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

_PUSH_SECONDS = 5.0
# Names come from what has landed: a label may have so many values, of so many characters.
_MOST_SAMPLES, _LONGEST = 100, 200
_FAMILY = re.compile(r"(?m)^# HELP (\S+) ")


class Sample(NamedTuple):
    value: float
    labels: Mapping[str, str] = {}


class Family(NamedTuple):
    """A gauge."""

    name: str
    help: str
    samples: tuple[Sample, ...]


def exposition(families: Iterable[Family], labels: Mapping[str, str]) -> str:
    """The text format; every sample gets `labels` too. Of a family with too many samples the largest stay, and one
    without any is named, so that it takes the place of what there was.
    """
    return "".join(_family(family, labels) for family in families)


def _family(family: Family, labels: Mapping[str, str]) -> str:
    shown = sorted(family.samples, key=lambda sample: sample.value, reverse=True)[:_MOST_SAMPLES]
    lines = [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} gauge"]
    lines += [f"{family.name}{{{_labels({**labels, **sample.labels})}}} {_number(sample.value)}" for sample in shown]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value[:_LONGEST])}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")


# ---- where it goes ----


def write_file(folder: Path, file: str, text: str, keep: bool) -> None:
    """A whole file in place of the one before. `keep`: what only that one tells stays."""
    path, fresh = folder / f"{file}.prom", folder / f".{file}.{os.getpid()}"
    kept = _without(path.read_text(encoding="utf-8"), text) if keep and path.exists() else ""
    try:
        fresh.write_bytes((text + kept).encode("utf-8", "replace"))
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _without(old: str, new: str) -> str:
    """The families of `old` that `new` has not."""
    told = set(_FAMILY.findall(new))
    starts = [match.start() for match in _FAMILY.finditer(old)]
    blocks = [old[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    return "".join(block for block in blocks if _FAMILY.findall(block)[0] not in told)


def push(gateway: str, grouping: Mapping[str, str], text: str, keep: bool) -> None:
    """To a push gateway, as a group of metrics of its own. `keep`: what only the group before tells stays."""
    group = "".join(f"/{name}/{quote(value, safe='')}" for name, value in grouping.items())
    request = urllib.request.Request(  # noqa: S310 - http or https, by the settings
        f"{gateway.rstrip('/')}/metrics{group}",
        data=text.encode("utf-8", "replace"),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        method="POST" if keep else "PUT",
    )
    urllib.request.urlopen(request, timeout=_PUSH_SECONDS).close()  # noqa: S310
