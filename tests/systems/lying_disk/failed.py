"""Trials of one call that fails, each kind of life in processes of its own: of jobs, and of a gateway's log."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from halfop.gateway.log.flusher import DISK_FAILED
from support.gateway.gateway_kept import acknowledged, check
from support.gateway.gateway_log import SMALL
from support.places import IMPORTS, ROOT
from support.seeds import SEED

from systems.lying_disk.shim import ERRORS, environment

GOOD = ("passed", "said")
_HERE = Path(__file__).parent
_SENTENCE = re.compile(r"^(?:OSError: \[Errno \d+\] .*'/|halfop\.frame\.errors\.)", re.M)
Trial = dict[str, Any]


def trials(folder: Path, name: str, every: int, calls: Sequence[str]) -> Iterator[Trial]:
    """The trials of a history, or of `gateway`. Raises NoCompiler."""
    folder.mkdir(parents=True)
    yield from (_of_gateway(folder, every, calls) if name == "gateway" else _of_jobs(folder, name, every, calls))


def _given(folder: Path) -> dict[str, str]:
    return os.environ | environment(folder / "control") | IMPORTS


def _of_jobs(folder: Path, name: str, every: int, calls: Sequence[str]) -> Iterator[Trial]:
    command = ["./spark-submit.sh", "exec", "python", str(_HERE / "faults.py"), str(folder), name, str(every), *calls]
    with (
        (folder / "log").open("w+") as log,
        subprocess.Popen(
            command, cwd=ROOT, env=_given(folder), stdout=subprocess.PIPE, stderr=log, text=True
        ) as played,
    ):
        for line in played.stdout or ():
            yield json.loads(line)
    assert played.returncode == 0, (folder / "log").read_text()[-5000:]


# ---- a gateway's log ----


def _of_gateway(folder: Path, every: int, calls: Sequence[str]) -> Iterator[Trial]:
    counted = acknowledged(_produced(folder, "counted", "open", 0, "none").stdout)[-1]
    counts, chance = json.loads(counted[1]), Random(SEED)
    for call in calls:
        for number in range(chance.randint(1, every), counts[call] + 1, every):
            for error in ERRORS:
                kind, detail = _tried(folder, call, number, error)
                yield {"call": call, "number": number, "error": error, "kind": kind, "detail": detail}


def _produced(folder: Path, name: str, call: str, number: int, error: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, str(_HERE / "producer.py"), str(folder / name), call, str(number), error]
    return subprocess.run(command, env=_given(folder), capture_output=True, check=False, timeout=300)


def _tried(folder: Path, call: str, number: int, error: str) -> tuple[str, str]:
    name = f"{call}-{number}-{error}"
    done = _produced(folder, name, call, number, error)
    try:
        if done.stdout or any((folder / name).glob("commitlog/*")):
            check(folder / name, acknowledged(done.stdout), SMALL)
    except Exception as problem:
        return "wrong", f"{type(problem).__name__}: {problem}"
    if done.returncode == 0:
        return "passed", ""
    said = done.stderr.decode()
    clear = done.returncode == DISK_FAILED and "Traceback" not in said
    plain = _SENTENCE.search(said) is not None  # the frame of the job shows no traceback of these
    return ("said" if clear or plain else "raw"), f"{done.returncode}: {said[-700:]}"
