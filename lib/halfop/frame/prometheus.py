"""Sends metrics by Prometheus' own client: to a file for node_exporter's textfile collector, and to a push gateway."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prometheus_client import Metric, push_to_gateway, pushadd_to_gateway, write_to_textfile
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

_PUSH_SECONDS = 5.0
# Names come from what has landed: a label may have so many values, of so many characters.
_MOST_SAMPLES, _LONGEST = 100, 200


class Sample(NamedTuple):
    value: float
    labels: Mapping[str, str] = {}


class Family(NamedTuple):
    """A gauge. One without samples is named all the same, so that it takes the place of the one before."""

    name: str
    help: str
    samples: tuple[Sample, ...]


class Histogram(NamedTuple):
    """A histogram: how many values are at most each bound, how many there are, and their sum. It only grows."""

    name: str
    help: str
    within: Mapping[float, int]
    number: int
    total: float


@dataclass
class Exposed(Collector):
    """Metrics as Prometheus' client takes them."""

    metrics: list[Metric]

    def collect(self) -> list[Metric]:
        return self.metrics


def exposed(families: Iterable[Family | Histogram], labels: Mapping[str, str]) -> Exposed:
    """Returns metrics of which every sample has `labels` too; of a family with too many samples the largest stay."""
    return Exposed([_metric(f, labels) if isinstance(f, Family) else _histogram(f, labels) for f in families])


def _histogram(found: Histogram, labels: Mapping[str, str]) -> Metric:
    metric = HistogramMetricFamily(found.name, found.help, labels=list(labels))
    buckets = [(str(float(bound)), number) for bound, number in found.within.items()]
    metric.add_metric(list(labels.values()), [*buckets, ("+Inf", found.number)], found.total)
    return metric


def _metric(family: Family, labels: Mapping[str, str]) -> Metric:
    metric = Metric(family.name, family.help, "gauge")
    for sample in sorted(family.samples, key=lambda sample: sample.value, reverse=True)[:_MOST_SAMPLES]:
        shown = {name: _valid(text[:_LONGEST]) for name, text in {**labels, **sample.labels}.items()}
        metric.add_sample(family.name, shown, sample.value)
    return metric


def _valid(text: str) -> str:
    """Half a surrogate pair is no UTF-8."""
    return text.encode("utf-8", "replace").decode()


def write_file(folder: Path, file: str, found: Exposed, keep: bool) -> None:
    """Puts a whole file in place of the one before. `keep`: metrics that only that one has stay."""
    path = folder / f"{file}.prom"
    if keep and path.exists():
        known = {metric.name for metric in found.metrics}
        old = text_string_to_metric_families(path.read_text(encoding="utf-8"))
        found = Exposed([*found.metrics, *(metric for metric in old if metric.name not in known)])
    write_to_textfile(str(path), found)


def push(gateway: str, grouping: Mapping[str, str], found: Exposed, keep: bool) -> None:
    """Pushes to a gateway, as a group of metrics of its own. `keep`: metrics that only the group before has stay."""
    send = pushadd_to_gateway if keep else push_to_gateway
    others = {name: value for name, value in grouping.items() if name != "job"}
    send(gateway, grouping["job"], found, others, _PUSH_SECONDS)
