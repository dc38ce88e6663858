"""Makes the class archive: a small cycle of jobs in one Java, which writes at its end what classes it has loaded."""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from halfop.demo import store_upto
from halfop.frame.cli import Job, main
from halfop.frame.errors import HalfopError
from halfop.jobs import explain, land, reconcile, report
from halfop.settings.home import sample
from halfop.settings.keys import RESERVED_VARIABLES
from halfop.start import FIRST_COMPILER, Archive, quoted

_LONGER_CLASS_PATH = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
_BORN = 1_750_000_000_000
_NOW = "2025-06-15T15:10:00Z"


def train(archive: Archive) -> None:
    """Makes the archive; the environment must be one in which PySpark starts a job's Java."""
    archive.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.folder) as name:
        folder, part = Path(name), Path(name, "classes.jsa")
        _as_shipped([*archive.options_to_make(part), *FIRST_COMPILER])
        os.chdir(folder)
        (folder / "halfop.yaml").touch()
        common = ["--config", str(folder / "halfop.yaml"), "--warehouse", str(folder / "warehouse")]
        for job, arguments in _calls(folder):
            if status := main(job, [*arguments, *common]):
                raise HalfopError(f"{job.name} ended with status {status}")
        archive.keep(part, _end_java())


def _as_shipped(options: Iterable[str]) -> None:
    """No settings of the user: nothing is registered or measured, and the class path is the plain one."""
    for name in list(os.environ):
        if (name.startswith("HALFOP_") and name not in RESERVED_VARIABLES) or name in _LONGER_CLASS_PATH:
            del os.environ[name]
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(map(quoted, options))
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--master local[*] " + os.environ["PYSPARK_SUBMIT_ARGS"]


def _calls(folder: Path) -> Iterator[tuple[Job, list[str]]]:
    """Calls as a user makes them, on rows of each fate; on the demo's store, too."""
    for first in (0, 20):
        half = _written(folder / f"half-{first}.jsonl", _halves(first))
        op = _written(folder / f"op-{first}.jsonl", _ops(first))
        yield land.JOB, ["files", "--half", half, "--op", op]
        yield reconcile.JOB, ["--now", _NOW]
    if found := sample(os.environ):
        yield land.JOB, ["store", "--path", str(store_upto(found, folder / "store", None))]
    yield reconcile.JOB, []
    yield report.JOB, ["--out", str(folder / "report.html")]
    yield explain.JOB, ["trained/0/1"]


def _written(path: Path, rows: Iterator[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def _halves(first: int) -> Iterator[dict[str, Any]]:
    for offset in range(first, first + 20):
        yield {
            "broker_name": "trained",
            "queue_id": 0,
            "queue_offset": offset,
            "commit_log_offset": offset * 512,
            "born_timestamp": _BORN,
            "store_timestamp": _BORN + 1,
            "body": base64.b64encode(b"body").decode(),
            "properties": {"UNIQ_KEY": f"k{offset}", "PGROUP": "g", "REAL_TOPIC": f"T{offset % 3}", "REAL_QID": "0"},
        }


def _ops(first: int) -> Iterator[dict[str, Any]]:
    """Some half messages get none; the last op names a half message that comes later."""
    for offset in (*range(first, first + 14), first + 21):
        yield {
            "broker_name": "trained",
            "queue_id": 0,
            "queue_offset": offset,
            "tag": "d",
            "body": str(offset),
            "outcome": "ROLLBACK" if offset % 7 == 0 else "COMMIT",
            "born_timestamp": _BORN + 5,
            "store_timestamp": _BORN + 5,
        }


def _end_java() -> str:
    """Ends the Java that PySpark started, waits until it has written, and returns what its class path was."""
    context = SparkContext._active_spark_context
    if context is None:
        raise HalfopError("no Java was started")
    gateway: Any = context._gateway
    class_path: str = gateway.jvm.java.lang.System.getProperty("java.class.path")
    context.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    return class_path


if __name__ == "__main__":
    train(Archive.at(*sys.argv[1:]))
