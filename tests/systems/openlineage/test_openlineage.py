"""Lineage by OpenLineage's own Spark listener, through configuration alone, as docs/observability.md describes it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from support.crash import ended, job
from support.fetched import fetched_jars
from support.places import DATA

pytestmark = pytest.mark.lineage

_LOGGING = Path(__file__).with_name("log4j2.properties")
_DATA = DATA / "oracle" / "10000-5-24"


def jar() -> Path:
    """The listener's, fetched on first use, as Delta's jars are."""
    (found,) = fetched_jars("openlineage").glob("*.jar")
    return found


class Edges(NamedTuple):
    inputs: frozenset[str]
    outputs: frozenset[str]


def traced(events: Path, *command: str) -> tuple[set[Edges], str]:
    """The edges that a job's completed queries are shown with, by the names of folders and files, and what it said."""
    conf = {
        "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
        "spark.openlineage.namespace": "halfop",
        "spark.openlineage.transport.type": "file",
        "spark.openlineage.transport.location": str(events),
    }
    options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    options += ["--driver-class-path", str(jar())]
    status, said = ended(
        job(*options, *command, LOG4J_CONFIGURATION_FILE=str(Path(__file__).with_name("log4j2.properties")))
    )
    assert status == 0, said
    told = [json.loads(line) for line in events.read_text().splitlines()]
    assert {event["job"]["namespace"] for event in told} == {"halfop"}
    done = [event for event in told if event["eventType"] == "COMPLETE"]
    return {Edges(folders(event["inputs"]), folders(event["outputs"])) for event in done}, said


def folders(datasets: Iterable[dict[str, str]]) -> frozenset[str]:
    """`_staging/run-1-…` is `_staging` here."""
    names = [Path(dataset["name"]) for dataset in datasets]
    return frozenset(path.parent.name if path.name.startswith("run-") else path.name for path in names)


def test_what_the_listener_shows(tmp_path: Path) -> None:
    common = ["--warehouse", str(tmp_path / "warehouse")]
    files = ["--half", str(_DATA / "half.jsonl"), "--op", str(_DATA / "op.jsonl")]
    landed, _ = traced(tmp_path / "land.jsonl", "land", "files", *files, *common)
    assert Edges(frozenset({"half.jsonl"}), frozenset({"half_messages"})) in landed
    assert Edges(frozenset({"op.jsonl"}), frozenset({"op_messages"})) in landed
    ran, said = traced(tmp_path / "run.jsonl", "reconcile", *common)
    assert Edges(frozenset({"decisions", "half_messages"}), frozenset({"_staging"})) in ran
    assert any("op_messages" in edges.inputs and edges.outputs == {"decisions"} for edges in ran)
    assert Edges(frozenset({"decisions", "op_messages"}), frozenset({"rejected"})) in ran
    shown = frozenset[str]().union(*(edges.outputs for edges in ran))
    assert shown == {"_staging", "decisions", "rejected"}, "commits through Delta Kernel have no plan; if now, say so"
    assert "can't emit event" not in said
