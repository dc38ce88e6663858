"""Lineage by OpenLineage's own Spark listener, through configuration alone, as docs/observability.md describes it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from support.crash import ended, job

pytestmark = pytest.mark.lineage

_ROOT = Path(__file__).parents[3]
_SOURCE = Path(__file__).parent
_JARS = _ROOT / ".halfop" / "openlineage" / "jars"
_DATA = Path(__file__).parents[2] / "data" / "oracle" / "10000-5-24"


def jar() -> Path:
    """Fetched on first use, as Delta's jars are."""
    _JARS.parent.mkdir(parents=True, exist_ok=True)
    lock = _SOURCE / "jars.lock"
    with (_JARS.parent / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        copy = _JARS / lock.name
        if not (copy.is_file() and copy.read_bytes() == lock.read_bytes()):
            fetch = [sys.executable, str(_ROOT / "tools/fetch_jars.py"), os.environ["HALFOP_JAVA"]]
            subprocess.run([*fetch, str(lock), str(_JARS)], check=True)
    (found,) = _JARS.glob("*.jar")
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
    status, said = ended(job(*options, *command, LOG4J_CONFIGURATION_FILE=str(_SOURCE / "log4j2.properties")))
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
