"""The pages /metrics and /healthz, for Prometheus and for what restarts processes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from halfop.gateway.core.effects import BOUNDS, Counts

_SECONDS, _LONGEST = 5.0, 8192
MOST_CONNECTIONS = 16  # and as many that wait to be accepted: of the files that are kept for all but producers
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
Page = Callable[[], tuple[HTTPStatus, bytes]]


async def serve_pages(host: str, number: int, metrics: Page, health: Page) -> asyncio.Server:
    """Returns the server of the pages, which is at its address, but has yet to start.

    A connection too many ends the oldest, so that none holds up all.
    """
    pages, there = {b"/metrics": metrics, b"/healthz": health}, dict[asyncio.StreamWriter, None]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while len(there) >= MOST_CONNECTIONS:
            oldest = next(iter(there))
            del there[oldest]
            oldest.transport.abort()
        there[writer] = None
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _SECONDS)
            status, body = _page(head, pages)
            line = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {_TEXT}\r\n"
            writer.write(f"{line}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            await asyncio.wait_for(writer.drain(), _SECONDS)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            there.pop(writer, None)
            writer.close()

    return await asyncio.start_server(
        serve, host, number, limit=_LONGEST, backlog=MOST_CONNECTIONS, start_serving=False
    )


def _page(head: bytes, pages: dict[bytes, Page]) -> tuple[HTTPStatus, bytes]:
    method, _, rest = head.partition(b" ")
    page = pages.get(rest.partition(b" ")[0].partition(b"?")[0])
    if method != b"GET":
        return HTTPStatus.METHOD_NOT_ALLOWED, b"GET alone\n"
    return page() if page else (HTTPStatus.NOT_FOUND, b"there are /metrics and /healthz\n")


# ---- metrics ----


Gauge = tuple[str, str, Callable[[], float]]


class Metrics(Collector):
    """A gateway's counts and measures, as Prometheus reads them; a gauge has a name, a help, and a function."""

    def __init__(self, counts: Counts, gauges: Sequence[Gauge]) -> None:
        self._counts, self._gauges = counts, gauges

    def page(self) -> bytes:
        """The page /metrics."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        counts = self._counts
        yield _counter("sends", "Half messages that were stored.", counts.sent)
        yield _labelled("ends", "END_TRANSACTION by what became of it.", "end", counts.ended)
        yield self._refusals()
        yield _counter("traces", "Batches of message traces that were dropped.", counts.traces)
        yield _labelled("questions", "Questions to producers by outcome.", "outcome", counts.questions)
        yield _counter("connections_refused", "Connections above gateway.max_connections.", counts.connections_refused)
        yield _counter("bad_frames", "Connections closed for bytes that no client sends.", counts.bad_frames)
        yield _counter("flush_timeouts", "Answers given up because the disk was too slow.", counts.given_up)
        yield self._latency()
        for name, about, value in self._gauges:
            yield GaugeMetricFamily(f"halfop_gateway_{name}", about, value())

    def _refusals(self) -> Metric:
        about = "Requests that were answered with an error, by request and code."
        family = CounterMetricFamily("halfop_gateway_refusals", about, labels=["request", "code"])
        for (request, code), count in sorted(self._counts.refused.items(), key=str):
            family.add_metric(["other" if request is None else str(request), str(code)], count)
        return family

    def _latency(self) -> Metric:
        family = HistogramMetricFamily("halfop_gateway_flush_seconds", "How long answers waited for the disk.")
        total, buckets = 0, []
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self._counts.within, strict=True):
            total += count
            buckets.append((bound, float(total)))
        family.add_metric([], buckets, self._counts.seconds)
        return family


def _counter(name: str, about: str, value: int) -> Metric:
    return CounterMetricFamily(f"halfop_gateway_{name}", about, value)


def _labelled(name: str, about: str, label: str, counted: Counter[str]) -> Metric:
    family = CounterMetricFamily(f"halfop_gateway_{name}", about, labels=[label])
    for key, value in sorted(counted.items()):
        family.add_metric([key], value)
    return family
