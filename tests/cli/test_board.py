"""deploy/grafana/halfop.json: its panels do not overlap, and each of its queries finds what jobs leave."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from halfop.follow import own
from halfop.frame.metrics import Call, families, report
from halfop.frame.summary import Summary
from halfop.planning.digest import LATENCIES, Latency
from halfop.settings.model import MetricsSettings
from support.places import ROOT
from support.prometheus import serving

BOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "halfop.json").read_text(encoding="utf-8"))
QUERIES = [(panel["title"], each["expr"]) for panel in BOARD["panels"] for each in panel["targets"]]
ALERTS = ROOT / "docs" / "examples" / "halfop-alerts.yml"
CALLS = (
    Call(
        "reconcile",
        9.0,
        0,
        Summary(
            "reconcile",
            run_id=7,
            decisions={"COMMIT": {"PRODUCER": 5}, "CHECK": {"TIMEOUT": 3}, "DISCARD": {"EXPIRED": 1}},
            rows_written={"topics": 5},
            seconds={"plan": 1.5, "apply": 0.25},
            extra={"open_messages": 3, "queues_behind": {"a/0": "never"}, "rejected": {"OP.CONFLICT": 2}},
        ),
    ),
    Call("land_broker", 2.0, 1, Summary("land", extra={"lost_ranges": 0})),
    Call("land_files", 2.0, 0, Summary("land", extra={"bad_rows": 2})),
    Call("audit", 2.0, 0, Summary("audit", extra={"findings": {"TWINS": 1}})),
)


def test_panels_have_places_of_their_own() -> None:
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    assert all(each["x"] + each["w"] <= 24 for each in places)
    axes = (("x", "w"), ("y", "h"))
    over = [
        (a, b)
        for a, b in combinations(places, 2)
        if all(a[at] < b[at] + b[size] and b[at] < a[at] + a[size] for at, size in axes)
    ]
    assert over == []
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(places)


def test_it_asks_only_for_metrics_that_are_documented() -> None:
    page = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    asked = {name.removesuffix("_bucket") for _, query in QUERIES for name in re.findall(r"halfop_\w+", query)}
    assert {name for name in asked if f"`{name}`" not in page} == set()
    assert len(asked) > 15


def test_what_stands_in_for_a_metric_is_left_by_a_cycle_without_a_run_too() -> None:
    left = {family.name for family in families(Call("reconcile", 1.0, 0, Summary("reconcile")), ended=0)}
    others = [name for _, query in QUERIES for name in re.findall(r"or 0 \* sum by \(name\) \((\w+)", query)]
    assert others
    assert left.issuperset(others)


@contextmanager
def exposing(folder: Path) -> Iterator[str]:
    """The files that jobs left, at /metrics, as node_exporter gives them."""

    class Files(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = "".join(re.sub(r"(?m)^#.*\n", "", file.read_text()) for file in sorted(folder.glob("*.prom")))
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def asked(url: str, query: str) -> list[dict[str, Any]]:
    words = urllib.parse.urlencode({"query": query.replace("$name", ".*")})
    with urllib.request.urlopen(f"{url}/api/v1/query?{words}", timeout=10) as answer:  # noqa: S310
        rows: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return rows


@pytest.mark.slow
def test_each_query_finds_what_jobs_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (metrics := tmp_path / "metrics").mkdir()
    for call in CALLS:
        report(MetricsSettings(folder=str(metrics)), call)
    more = own(3, Latency((0, 1, *(2 for _ in LATENCIES[2:])), 2, 1.5))
    report(MetricsSettings(folder=str(metrics)), Call("follow", 3.0, 0, None, more))
    with exposing(metrics) as target:
        jobs = f"[{{job_name: halfop, honor_labels: true, static_configs: [{{targets: ['{target}']}}]}}]"
        text = f"global: {{scrape_interval: 1s}}\nrule_files: ['{ALERTS}']\nscrape_configs: {jobs}\n"
        (tmp_path / "prometheus.yml").write_text(text)
        files = (f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data")
        with serving("prometheus", *files) as url:
            until = time.monotonic() + 30
            while not asked(url, "halfop_run_id") and time.monotonic() < until:
                time.sleep(0.2)
            assert [(title, query) for title, query in QUERIES if not asked(url, query)] == []
            (look,) = asked(url, dict(QUERIES)["Need a look"])
            assert float(look["value"][1]) == 4, "a late queue, two ops that say otherwise, a discard"
            assert asked(url, "halfop_nobody_leaves_this") == []
