"""Trials of one call that fails, each kind of life in processes of its own: of jobs, and of a gateway's log."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from halfop.gateway.log.flusher import DISK_FAILED
from support.gateway.gateway_kept import acknowledged, check
from support.gateway.gateway_log import SMALL
from support.places import IMPORTS, ROOT

from systems.lying_disk.choice import chosen
from systems.lying_disk.producer import MISSED
from systems.lying_disk.shim import NO_FAULT, Fault, environment, listed

GOOD = ("passed", "said", "missed")
_HERE = Path(__file__).parent
_SENTENCE = re.compile(r"^(?:OSError: \[Errno \d+\] .*'/|halfop\.frame\.errors\.)", re.M)
Trial = dict[str, Any]


def trials(folder: Path, name: str, of_each: int, seed: int, calls: Sequence[str]) -> Generator[Trial, None, None]:
    """The trials of a history, or of `gateway`, in a random order; none come after it is closed. Raises NoCompiler."""
    folder.mkdir(parents=True)
    yield from (
        _of_gateway(folder, of_each, seed, calls) if name == "gateway" else _of_jobs(folder, name, of_each, seed, calls)
    )


def _given(folder: Path) -> dict[str, str]:
    return os.environ | environment(folder / "control") | IMPORTS


def _of_jobs(folder: Path, name: str, of_each: int, seed: int, calls: Sequence[str]) -> Iterator[Trial]:
    words = map(str, (_HERE / "faults.py", folder, name, of_each, seed, *calls))
    command = ["./spark-submit.sh", "exec", "python", *words]
    with (
        (folder / "log").open("w+") as log,
        subprocess.Popen(
            command, cwd=ROOT, env=_given(folder), stdout=subprocess.PIPE, stderr=log, text=True
        ) as played,
    ):
        try:
            for line in played.stdout or ():
                yield json.loads(line)
        except GeneratorExit:
            played.terminate()
            raise
    assert played.returncode == 0, (folder / "log").read_text()[-5000:]


# ---- a gateway's log ----


def _of_gateway(folder: Path, of_each: int, seed: int, calls: Sequence[str]) -> Iterator[Trial]:
    assert _produced(folder / "first", NO_FAULT).returncode == MISSED
    for trial, (_, fault) in enumerate(chosen([listed(folder / "control")], of_each, seed, calls)):
        kind, detail = _tried(folder / str(trial), fault)
        yield {**fault._asdict(), "kind": kind, "detail": detail}


def _produced(folder: Path, fault: Fault) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, str(_HERE / "producer.py"), str(folder), *map(str, fault)]
    return subprocess.run(command, env=_given(folder.parent), capture_output=True, check=False, timeout=300)


def _tried(folder: Path, fault: Fault) -> tuple[str, str]:
    done = _produced(folder, fault)
    try:
        if done.stdout or any(folder.glob("commitlog/*")):
            check(folder, acknowledged(done.stdout), SMALL)
    except Exception as problem:
        return "wrong", f"{type(problem).__name__}: {problem}"
    if done.returncode in (0, MISSED):
        return ("missed" if done.returncode else "passed"), ""
    said = done.stderr.decode()
    clear = done.returncode == DISK_FAILED and "Traceback" not in said
    plain = _SENTENCE.search(said) is not None  # the frame of the job shows no traceback of these
    return ("said" if clear or plain else "raw"), f"{done.returncode}: {said[-700:]}"
