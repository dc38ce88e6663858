"""A job's report to Prometheus: the metrics, their text, the textfile collector's file, and a push gateway."""

from __future__ import annotations

import argparse
import math
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from halfop.command import job_names, job_of
from halfop.follow import own
from halfop.frame.cli import Context, Job, main
from halfop.frame.errors import HalfopError
from halfop.frame.metrics import Call, Family, Histogram, Sample, exposed, families, report
from halfop.frame.summary import JobFields, Summary
from halfop.planning.digest import Latency
from halfop.settings.model import MetricsSettings
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.places import DATA, ROOT
from support.prometheus import scraped, serving

LABELS = {"name": "halfop", "command": "reconcile"}
DOCS = ROOT / "docs"
ALERTS = DOCS / "examples" / "halfop-alerts.yml"
NOW = datetime(2025, 6, 15, 15, 6, 40, tzinfo=timezone.utc)


def a_run() -> Summary:
    return Summary(
        "reconcile",
        run_id=7,
        decisions={"CHECK": {"TIMEOUT": 3, "CLOCK_SKEW": 1}, "COMMIT": {"PRODUCER": 5}},
        rows_read={"half_messages": 9},
        rows_written={"topics": 5},
        seconds={"plan": 1.5, "apply": 0.25},
        extra={
            "now": NOW,
            "open_messages": 4,
            "oldest_open_seconds": 61.5,
            "queues_behind": {"a/b/0": "2025-06-15T15:00:00+00:00", 'b"\\\n/1': "never"},
            "rejected": {"OP.CONFLICT": 2, "HALF.BAD_REAL_TOPIC": 1},
            "owed": ["topics/x of run 6"],
        },
    )


Told = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Told:
    """Metrics as Prometheus' own client reads them, without the labels that every sample has."""
    told: Told = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            own = {name: value for name, value in sample.labels.items() if name not in LABELS}
            assert len(own) + len(LABELS) == len(sample.labels)
            told[sample.name, tuple(own.items())] = sample.value
    return told


def text_of(found: Iterable[Family | Histogram]) -> str:
    return generate_latest(exposed(found, LABELS)).decode()


def told_by(call: Call, ended: float = 1000.0) -> Told:
    return parsed(text_of(families(call, ended)))


def value(told: Told, name: str, **labels: str) -> float:
    return told[f"halfop_{name}", tuple(labels.items())]


def test_a_run_that_is_done() -> None:
    assert told_by(Call("reconcile", 12.3456, 0, a_run())) == {
        ("halfop_last_success_timestamp_seconds", ()): 1000,
        ("halfop_exit_status", ()): 0,
        ("halfop_duration_seconds", ()): 12.346,
        ("halfop_run_id", ()): 7,
        ("halfop_phase_duration_seconds", (("phase", "plan"),)): 1.5,
        ("halfop_phase_duration_seconds", (("phase", "apply"),)): 0.25,
        ("halfop_rows_read", (("table", "half_messages"),)): 9,
        ("halfop_rows_written", (("table", "topics"),)): 5,
        ("halfop_decisions", (("decision", "CHECK"), ("reason", "TIMEOUT"))): 3,
        ("halfop_decisions", (("decision", "CHECK"), ("reason", "CLOCK_SKEW"))): 1,
        ("halfop_decisions", (("decision", "COMMIT"), ("reason", "PRODUCER"))): 5,
        ("halfop_checks_sent", ()): 4,
        ("halfop_open_messages", ()): 4,
        ("halfop_oldest_open_message_age_seconds", ()): 61.5,
        ("halfop_queues_behind", ()): 2,
        ("halfop_queue_behind_seconds", (("broker_name", "a/b"), ("queue_id", "0"))): 400,
        ("halfop_queue_behind_seconds", (("broker_name", 'b"\\\n'), ("queue_id", "1"))): math.inf,
        ("halfop_rejected", (("kind", "OP"), ("reason", "CONFLICT"))): 2,
        ("halfop_rejected", (("kind", "HALF"), ("reason", "BAD_REAL_TOPIC"))): 1,
        ("halfop_conflicts", ()): 2,
        ("halfop_failed_sinks", ()): 0,
        ("halfop_owed_sinks", ()): 1,
    }


@pytest.mark.parametrize(("status", "end"), [(5, "success"), (1, "failure"), (4, "failure"), (130, "failure")])
def test_what_counts_as_success(status: int, end: str) -> None:
    told = told_by(Call("reconcile", 1, status, None))
    names = (f"last_{end}_timestamp_seconds", "exit_status", "duration_seconds")
    assert told.keys() == {(f"halfop_{name}", ()) for name in names}


@pytest.mark.parametrize(("failed", "end"), [({}, "success"), ({"topics/T": "full"}, "failure")])
def test_a_catalog_that_fails_leaves_the_run_done(failed: dict[str, str], end: str) -> None:
    summary = a_run()
    summary.extra |= {"failed_catalog": {"halfop": "gone"}, "failed_sinks": failed}
    told = told_by(Call("reconcile", 1, 1, summary))
    assert (f"halfop_last_{end}_timestamp_seconds", ()) in told


@pytest.mark.parametrize(
    ("command", "extra", "metric", "expected"),
    [
        ("land_broker", {"failed_brokers": {"a": "gone", "b": "gone"}, "lost_ranges": 0}, "failed_brokers", 2),
        ("land_broker", {"lost_ranges": 4}, "failed_brokers", 0),
        ("land_broker", {"lost_ranges": 4}, "lost_ranges", 4),
        ("land_store", {"lost_ranges": 3}, "lost_ranges", 3),
        ("land_files", {"bad_rows": 2}, "bad_rows", 2),
    ],
)
def test_landings(command: str, extra: JobFields, metric: str, expected: int) -> None:
    assert value(told_by(Call(command, 1, 0, Summary("land", extra=extra))), metric) == expected


def test_an_audit_tells_its_findings() -> None:
    summary = Summary("audit", extra={"findings": {"DELIVERED_TWICE": 2, "LOST": 0}})
    told = told_by(Call("audit", 1, 0, summary))
    assert value(told, "audit_findings", finding="DELIVERED_TWICE") == 2
    assert value(told, "audit_findings", finding="LOST") == 0


def test_what_comes_from_outside_is_bounded() -> None:
    many = Family("halfop_x", "x", tuple(Sample(n, {"broker_name": f"{n}" + "b" * 999}) for n in range(500)))
    told = parsed(text_of([many]))
    assert sorted(told.values()) == list(range(400, 500))
    assert {len(label) for _, ((_, label),) in told} == {200}


# ---- what people read of them ----

CALLS = [
    Call("reconcile", 1, 0, a_run()),
    Call("reconcile", 1, 1, None),
    Call("land_broker", 1, 0, Summary("land", extra={"lost_ranges": 0})),
    Call("land_store", 1, 0, Summary("land", extra={"lost_ranges": 0})),
    Call("land_files", 1, 0, Summary("land", extra={"bad_rows": 0})),
    Call("audit", 1, 0, Summary("audit", extra={"findings": {}})),
    Call("follow", 1, 0, Summary("follow"), own(1, Latency())),
]
NAMES = {family.name for call in CALLS for family in families(call, 0)}


def named_in(text: str) -> set[str]:
    return set(re.findall(r"halfop_[a-z_]+", text))


def test_alerts_ask_for_what_there_is() -> None:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert all(named_in(rule["expr"]) for rule in rules)
    assert named_in(" ".join(rule["expr"] for rule in rules)) <= NAMES


def test_the_page_has_every_metric() -> None:
    page = (DOCS / "observability.md").read_text().partition("## Metrics")[2].partition("## Logs")[0]
    rows = "".join(line for line in page.splitlines() if line.startswith("|"))
    assert named_in(rows) == NAMES


# ---- the file ----

DONE, FAILED = Call("reconcile", 1, 0, a_run()), Call("reconcile", 2, 1, None)


def file_of(settings: MetricsSettings, command: str = "reconcile") -> Path:
    return Path(settings.folder or "") / f"{settings.name}_{command}.prom"


def test_a_file_a_command(tmp_path: Path) -> None:
    settings = MetricsSettings(folder=str(tmp_path), name="orders")
    report(settings, DONE)
    report(settings, Call("land_files", 1, 0, Summary("land", extra={"bad_rows": 0})))
    assert {path.name for path in tmp_path.iterdir()} == {"orders_reconcile.prom", "orders_land_files.prom"}
    assert 'halfop_run_id{command="reconcile",name="orders"} 7.0\n' in file_of(settings).read_text()
    assert file_of(settings).stat().st_mode & 0o044, "the collector is another user"


def test_a_failure_leaves_what_the_last_success_told(tmp_path: Path) -> None:
    settings = MetricsSettings(folder=str(tmp_path))
    report(settings, DONE)
    before = parsed(file_of(settings).read_text())
    report(settings, FAILED)
    after = parsed(file_of(settings).read_text())
    assert (value(after, "exit_status"), value(after, "duration_seconds")) == (1, 2)
    assert value(after, "last_failure_timestamp_seconds") >= value(before, "last_success_timestamp_seconds")
    kept = before.keys() - {("halfop_exit_status", ()), ("halfop_duration_seconds", ())}
    assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
    report(settings, DONE)
    assert parsed(file_of(settings).read_text()).keys() == before.keys()


def test_a_failing_sink_is_told_with_all_else(tmp_path: Path) -> None:
    settings, summary = MetricsSettings(folder=str(tmp_path)), a_run()
    report(settings, DONE)
    summary.extra["failed_sinks"] = {"topics/T": "broken"}
    summary.extra["queues_behind"] = {}
    summary.decisions = {"WAIT": {"FRESH": 1}}
    report(settings, Call("reconcile", 1, 1, summary))
    told = parsed(file_of(settings).read_text())
    assert value(told, "failed_sinks") == 1
    assert [key for key in told if key[0] == "halfop_queue_behind_seconds"] == []
    assert [key for key in told if key[0] == "halfop_decisions"] == [
        ("halfop_decisions", (("decision", "WAIT"), ("reason", "FRESH")))
    ]


@pytest.mark.long
def test_nobody_sees_half_a_file(tmp_path: Path) -> None:
    """A reader that looks all the time finds whole files only, and no other name that the collector reads."""
    settings = MetricsSettings(folder=str(tmp_path))
    report(settings, DONE)
    whole, ended = len(file_of(settings).read_text().splitlines()), threading.Event()
    seen: set[tuple[str, int]] = set()

    def look() -> None:
        while not ended.is_set():
            seen.update((path.name, len(path.read_text().splitlines())) for path in tmp_path.glob("*.prom"))

    reader = threading.Thread(target=look)
    reader.start()
    for _ in range(300):
        report(settings, DONE)
    ended.set()
    reader.join()
    assert seen == {("halfop_reconcile.prom", whole)}
    assert [path.name for path in tmp_path.iterdir()] == ["halfop_reconcile.prom"]


# ---- the gateway ----


class Pushed(NamedTuple):
    method: str
    path: str
    text: str


@contextmanager
def gateway(status: int = 200) -> Iterator[tuple[str, list[Pushed]]]:
    seen: list[Pushed] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            seen.append(Pushed(self.command, self.path, text))
            self.send_response(status)
            self.end_headers()

        do_POST = do_PUT

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


def test_push(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with gateway() as (url, seen):
        report(MetricsSettings(push_gateway=url), DONE)
        report(MetricsSettings(push_gateway=f"{url}/", name="x"), FAILED)
    group = "command/reconcile"
    assert [each[:2] for each in seen] == [("PUT", f"/metrics/job/halfop/{group}"), ("POST", f"/metrics/job/x/{group}")]
    assert value(parsed(seen[0].text), "run_id") == 7
    assert parsed(seen[1].text).keys() == told_by(FAILED).keys()


def silent() -> Iterator[str]:
    """A gateway that takes the call and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.long
def test_a_target_that_fails_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("halfop.frame.metrics._PUSH_SECONDS", 0.2)
    nowhere = str(tmp_path / "nowhere")
    with gateway(status=500) as (failing, _):
        report(MetricsSettings(folder=nowhere, push_gateway=failing), DONE)
    report(MetricsSettings(push_gateway=failing), DONE)
    for url in silent():
        report(MetricsSettings(push_gateway=url), DONE)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 4
    for record, what in zip(caplog.records, ["No such file", "HTTP Error 500", "refused", "timed out"], strict=True):
        assert what in record.getMessage()


# ---- through a job ----


def a_job(error: Exception | None) -> Job:
    def run(context: Context, args: argparse.Namespace) -> Summary:
        if error:
            raise error
        return a_run()

    return Job("reconcile", "", run, measured=lambda args: "reconcile")


def test_a_job_reports_however_it_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    option = f"--set=metrics.folder={tmp_path}"
    assert main(a_job(None), [option]) == 0
    assert main(a_job(HalfopError("odd")), [option]) == 1
    told = parsed((tmp_path / "halfop_reconcile.prom").read_text())
    assert (value(told, "exit_status"), value(told, "run_id")) == (1, 7)
    assert capsys.readouterr().err == "halfop reconcile: odd\n"


def test_a_job_that_is_not_measured_reports_nothing(tmp_path: Path) -> None:
    assert main(Job("demo", "", lambda context, args: Summary("demo")), [f"--set=metrics.folder={tmp_path}"]) == 0
    assert not list(tmp_path.iterdir())


def test_the_page_names_the_jobs_that_leave_nothing() -> None:
    nothing = {field.name: field.default for field in fields(Job)}["measured"]
    page = (ROOT / "docs/observability.md").read_text()
    named = set(re.findall(r"`(\w+)`", page[: page.index(" leave nothing")].rpartition("overwrite each other.")[2]))
    assert {name for name in job_names() if job_of(name).measured is nothing} == named - {"end", "erase"} | {"follow"}


# ---- the real ones ----


@pytest.mark.slow
def test_a_real_push_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving("prometheus-pushgateway") as url:
        assert scraped(url) == []
        report(MetricsSettings(push_gateway=url), DONE)
        done = scraped(url)
        assert 'halfop_run_id{command="reconcile",instance="",job="halfop",name="halfop"} 7' in done
        report(MetricsSettings(push_gateway=url), FAILED)
        assert len(scraped(url)) == len(done) + 1, "the last failure"
        report(MetricsSettings(push_gateway=url), DONE)
        assert len(scraped(url)) == len(done)


@pytest.mark.slow
def test_a_real_textfile_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for call in (DONE, FAILED, Call("land_files", 1, 0, Summary("land", extra={"bad_rows": 0}))):
        report(MetricsSettings(folder=str(tmp_path)), call)
    options = ("--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={tmp_path}")
    with serving("prometheus-node-exporter", *options) as url:
        text = scraped(url)
    assert 'halfop_run_id{command="reconcile",name="halfop"} 7' in text
    assert 'halfop_bad_rows{command="land_files",name="halfop"} 0' in text
    assert sum(line.startswith("halfop_exit_status") for line in text) == 2


@pytest.fixture
def promtool() -> str:
    return shutil.which("promtool") or pytest.skip("needs promtool on PATH")


@pytest.mark.slow
def test_promtool_finds_nothing_wrong(promtool: str) -> None:
    text = text_of([*families(DONE, 1000.0), *families(FAILED, 1000.0)[:1]])
    told = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
    rules = subprocess.run([promtool, "check", "rules", str(ALERTS)], text=True, capture_output=True, check=False)
    assert rules.returncode == 0, rules.stdout + rules.stderr


@pytest.mark.slow
def test_every_alert_fires_where_it_should_and_nowhere_else(promtool: str, tmp_path: Path) -> None:
    for file in (ALERTS, DATA / "alerts.yml"):
        shutil.copy(file, tmp_path)
    told = subprocess.run(
        [promtool, "test", "rules", "alerts.yml"], cwd=tmp_path, text=True, capture_output=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
