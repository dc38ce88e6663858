"""A backlog on a standalone cluster of one and of two one-core workers: how much quicker are two?

bench/run cluster [--rows 50000000] [--rounds 1] [--share 0.4]

Each worker, with its executor and its Python, has a share of one core by a control group of Linux (needs root): so two
workers and the driver do not wait for each other on two cores. All read and write one disk. Status 1 if two workers are
not 1.7 times as quick as one. `in_jobs` is the time in which Spark runs a job; the rest is the driver's own, and no
worker shortens it. Each worker's JVM compiles for itself: hence so many rows.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backlog import NOW
from command import Called, call, copy_of
from grow import built
from halfop.start import FIRST_COMPILER
from systems.cluster.clusters import Cluster

_BOUND = 1.7
_PERIOD = 100_000  # microseconds
_SECONDS = 30.0


def run(folder: Path, workers: int, share: float) -> Called:
    work = copy_of(folder / "warehouse", folder / "work")
    with tempfile.TemporaryDirectory(prefix="halfop-cluster-") as daemons, limits(workers, share) as groups:
        cluster = Cluster(Path(daemons), workers, "3g", groups)
        try:
            options = ["--master", cluster.url, "--conf", "spark.executor.memory=2g"]
            # the executors' Python does the work: the second compiler would cost each worker more than it gives
            options += ["--conf", f"spark.executor.extraJavaOptions={' '.join(FIRST_COMPILER)}"]
            return call("reconcile", "--now", NOW.isoformat(), "--warehouse", str(work), options=options)
        finally:
            cluster.close()
            shutil.rmtree(work)


@contextmanager
def limits(number: int, share: float) -> Iterator[list[Path]]:
    """Control groups whose processes together get a share of one core."""
    older = Path("/sys/fs/cgroup/cpu")
    groups = [(older if older.exists() else older.parent) / f"halfop-bench-{n}" for n in range(number)]
    for group in groups:
        group.mkdir(exist_ok=True)
        quota = round(share * _PERIOD)
        if older.exists():
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
            (group / "cpu.shares").write_text("10240")  # before all others
        else:
            (group / "cpu.max").write_text(f"{quota} {_PERIOD}")
            (group / "cpu.weight").write_text("1000")
    try:
        yield groups
    finally:
        for group in groups:
            waited(group)
            group.rmdir()


def waited(group: Path) -> None:
    """Waits until the last process of a group has ended."""
    deadline = time.monotonic() + _SECONDS
    while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
        time.sleep(0.1)


def in_jobs(called: Called) -> float:
    """Seconds in which at least one of Spark's jobs ran."""
    total, until = 0.0, 0.0
    for job in called.jobs:
        end = job["at"] + job["s"]
        total += max(0.0, end - max(until, job["at"]))
        until = max(until, end)
    return round(total, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.4)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "halfop-grow")
    parser.add_argument("--keep", action="store_true", help="leave what was built for another call")
    args = parser.parse_args()
    folder = args.folder / str(args.rows)
    built(folder, args.rows, inputs=False)
    found: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    for _ in range(args.rounds):
        for workers, spent in found.items():
            called = run(folder, workers, args.share)
            spent.append((called.seconds, in_jobs(called)))
            told = {"rows": args.rows, "workers": workers, "s": called.seconds, "in_jobs": spent[-1][1]}
            print(json.dumps(told | {"phases": called.summary["seconds"]}), flush=True)
    if not args.keep:
        shutil.rmtree(folder)
    one, two = ([statistics.median(each) for each in zip(*found[workers], strict=True)] for workers in (1, 2))
    times = {"whole": round(one[0] / two[0], 2), "in_jobs": round(one[1] / two[1], 2)}
    print(json.dumps({"times": times, "bound": _BOUND}))
    raise SystemExit(1 if times["whole"] < _BOUND else 0)


if __name__ == "__main__":
    main()
