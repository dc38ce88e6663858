"""The metrics that each call of a job leaves for Prometheus when it ends, whatever its status, in its text format."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from prometheus_client import Metric, push_to_gateway, pushadd_to_gateway, write_to_textfile
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from halfop.frame.summary import Summary
from halfop.settings.model import MetricsSettings

log = logging.getLogger("halfop.metrics")

# The work is done: by 5 it has found what --fail-on asks for.
_DONE = (0, 5)
_UNDONE = ("failed_sinks", "failed_brokers")


@dataclass(frozen=True)
class Call:
    """A call of a job, or a step of one, that has ended; `summary` is None if it ended by an error.

    `more` is what the process knows of all its calls.
    """

    command: str
    seconds: float
    status: int
    summary: Summary | None
    more: tuple[Family | Histogram, ...] = ()

    @property
    def done(self) -> bool:
        return self.status in _DONE or self._only_names_are_missing

    @property
    def _only_names_are_missing(self) -> bool:
        """A catalog that failed costs no run."""
        extra = self.summary.extra if self.summary else {}
        return "failed_catalog" in extra and not any(extra.get(what) for what in _UNDONE)


def report(settings: MetricsSettings, call: Call) -> None:
    """Writes and pushes what the settings ask for. A failure there is a warning: no work is lost by it.

    A call that is done replaces all samples of the one before. A call that is not replaces those that it
    knows: the last success and its figures stay.
    """
    labels = {"name": settings.name, "command": call.command}
    found = exposed(families(call, time.time()), labels)
    for target, send in _targets(settings, call.command).items():
        _try(target, partial(send, found, not call.done))


def _try(target: str, send: Callable[[], None]) -> None:
    try:
        send()
    except (OSError, ValueError, HTTPException) as error:
        log.warning("no metrics to %s: %s", target, error)


def _targets(settings: MetricsSettings, command: str) -> dict[str, Callable[[Exposed, bool], None]]:
    targets: dict[str, Callable[[Exposed, bool], None]] = {}
    folder, gateway = settings.folder, settings.push_gateway
    if folder is not None:
        file = f"{settings.name}_{command}"
        targets[folder] = lambda found, keep: write_file(Path(folder), file, found, keep)
    if gateway is not None:
        grouping = {"job": settings.name, "command": command}
        targets[gateway] = lambda found, keep: push(gateway, grouping, found, keep)
    return targets


# ---- the samples ----


def families(call: Call, ended: float) -> list[Family | Histogram]:
    """The metrics of a call that ended at this instant (epoch seconds)."""
    end = "success" if call.done else "failure"
    meaning = "was done (exit status 0 or 5)" if call.done else "failed"
    found: list[Family | Histogram] = [
        _one(f"last_{end}_timestamp_seconds", f"When the command last {meaning}.", round(ended, 3)),
        _one("exit_status", "Exit status of the last call; 0 and 5 are done.", call.status),
        _one("duration_seconds", "What the last call took, Java's start not included.", round(call.seconds, 3)),
        *call.more,
    ]
    if call.summary is None:
        return found
    own = _OF_COMMAND.get(call.command)
    return [*found, *_of_summary(call.summary), *(own(call.summary) if own else ())]


def _of_summary(summary: Summary) -> Iterator[Family]:
    if summary.run_id is not None:
        yield _one("run_id", "Id of the last run.", summary.run_id)
    yield _many("phase_duration_seconds", "What each phase of the last call took.", "phase", summary.seconds)
    yield _many("rows_read", "Rows that the last call read, by table.", "table", summary.rows_read)
    yield _many("rows_written", "Rows that the last call wrote, by table.", "table", summary.rows_written)
    rejected: Mapping[str, int] = summary.extra.get("rejected", {})
    kinds = [Sample(n, dict(zip(("kind", "reason"), name.split(".", 1), strict=True))) for name, n in rejected.items()]
    yield Family("halfop_rejected", "What the last call rejected.", tuple(kinds))


def _of_reconcile(summary: Summary) -> Iterator[Family]:
    extra, decisions = summary.extra, summary.decisions
    decided = [
        Sample(n, {"decision": decision, "reason": reason})
        for decision, reasons in decisions.items()
        for reason, n in reasons.items()
    ]
    yield Family("halfop_decisions", "Decisions of the last call.", tuple(decided))
    yield _one(
        "checks_sent", "Questions to producers that the last call wrote.", sum(decisions.get("CHECK", {}).values())
    )
    yield from _open(extra.get("open_messages"), extra.get("oldest_open_seconds"))
    yield from _late_queues(extra.get("queues_behind", {}), extra.get("now"))
    conflicts = sum(n for name, n in extra.get("rejected", {}).items() if name.endswith(".CONFLICT"))
    yield _one("conflicts", "Transactions that the last call found ended both ways.", conflicts)
    yield _one("failed_sinks", "Tables that the last call could not write.", len(extra.get("failed_sinks", {})))
    yield _one("owed_sinks", "Writes that runs were closed without (--park-sink).", len(extra.get("owed", [])))


def _open(messages: int | None, oldest: float | None) -> Iterator[Family]:
    if messages is not None:
        yield _one("open_messages", "Half messages that are open after the last run.", messages)
        help_text = "How long ago the oldest open half message was born, as of the last run; 0 if none is open."
        yield _one("oldest_open_message_age_seconds", help_text, oldest or 0)


def _late_queues(queues: Mapping[str, str], now: datetime | None) -> Iterator[Family]:
    help_text = "Queues whose op log has not landed up to the last run's instant, so that their clock stands still."
    yield _one("queues_behind", help_text, len(queues))
    samples = [
        Sample(_seconds_late(until, now), dict(zip(("broker_name", "queue_id"), queue.rsplit("/", 1), strict=True)))
        for queue, until in queues.items()
    ]
    help_text = "How far a late queue is known before the last run's instant; +Inf: its op log has never landed."
    yield Family("halfop_queue_behind_seconds", help_text, tuple(samples))


def _seconds_late(until: str, now: datetime | None) -> float:
    return math.inf if until == "never" or now is None else (now - datetime.fromisoformat(until)).total_seconds()


def _of_land_broker(summary: Summary) -> Iterator[Family]:
    failed = len(summary.extra.get("failed_brokers", {}))
    yield _one("failed_brokers", "Brokers whose landing failed in the last call.", failed)
    yield from _of_land_store(summary)


def _of_land_store(summary: Summary) -> Iterator[Family]:
    help_text = "Ranges of brokers' logs and queues that could not land, and may hold messages."
    yield _one("lost_ranges", help_text, summary.extra["lost_ranges"])


def _of_land_files(summary: Summary) -> Iterator[Family]:
    yield _one("bad_rows", "Rows of files that the last call refused.", summary.extra["bad_rows"])


def _of_audit(summary: Summary) -> Iterator[Family]:
    yield _many("audit_findings", "What the last audit found.", "finding", summary.extra.get("findings", {}))


_OF_COMMAND = {
    "reconcile": _of_reconcile,
    "land_broker": _of_land_broker,
    "land_store": _of_land_store,
    "land_files": _of_land_files,
    "audit": _of_audit,
}


def _one(name: str, help_text: str, value: float) -> Family:
    return Family(f"halfop_{name}", help_text, (Sample(value),))


def _many(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Family:
    return Family(f"halfop_{name}", help_text, tuple(Sample(n, {label: key}) for key, n in values.items()))


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
