"""The counts and measurements of a gateway, as Prometheus reads them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 3.0, 10.0)
Gauge = tuple[str, str, Callable[[], float]]


class Tallies(Collector):
    """Counters that only rise, and the time that answers waited for the disk."""

    def __init__(self) -> None:
        self.sent = self.connections_refused = self.bad_frames = self.given_up = 0
        self.ended: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()
        self.questions: Counter[str] = Counter()
        self._gauges: list[Gauge] = []
        self._within = [0] * (len(_BOUNDS) + 1)
        self._waited = 0.0

    def waited(self, seconds: float) -> None:
        """Counts an answer that waited so long for the disk."""
        self._within[bisect_left(_BOUNDS, seconds)] += 1
        self._waited += seconds

    def show(self, gauges: Iterable[Gauge]) -> None:
        """Adds gauges: name, help, and what gives the value."""
        self._gauges += gauges

    def page(self) -> bytes:
        """The page /metrics."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        yield _counter("sends", "Half messages that were stored.", self.sent)
        yield _labelled("ends", "END_TRANSACTION by what became of it.", "end", self.ended)
        yield _labelled("refusals", "Requests that were answered with an error, by its code.", "code", self.refused)
        yield _labelled("questions", "Questions to producers by outcome.", "outcome", self.questions)
        yield _counter("connections_refused", "Connections above gateway.max_connections.", self.connections_refused)
        yield _counter("bad_frames", "Connections closed for bytes that no client sends.", self.bad_frames)
        yield _counter("flush_timeouts", "Answers given up because the disk was too slow.", self.given_up)
        yield self._latency()
        for name, about, value in self._gauges:
            yield GaugeMetricFamily(f"halfop_gateway_{name}", about, value())

    def _latency(self) -> Metric:
        family = HistogramMetricFamily("halfop_gateway_flush_seconds", "How long answers waited for the disk.")
        total, buckets = 0, []
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), self._within, strict=True):
            total += count
            buckets.append((bound, float(total)))
        family.add_metric([], buckets, self._waited)
        return family


def _counter(name: str, about: str, value: int) -> Metric:
    return CounterMetricFamily(f"halfop_gateway_{name}", about, value)


def _labelled(name: str, about: str, label: str, counted: Counter[str] | Counter[int]) -> Metric:
    family = CounterMetricFamily(f"halfop_gateway_{name}", about, labels=[label])
    for key, value in sorted(counted.items(), key=str):
        family.add_metric([str(key)], value)
    return family
