"""Shows how time and memory grow from one to ten times the half messages, and more.

bench/run grow [--rows 1000000 10000000 50000000] [--rounds 1] [--land] [--beside] [--oracle JAR]

Each `reconcile` is a new process over a backlog of N half messages and their ops. Status 1 if a step to ten times the
rows takes more than 11 times as long, or Python's memory grows by more than a quarter above 10 million: with fewer rows
tasks are smaller than a task may be. The heap bounds the JVM's. 50 million need 45 GB of disk.
--land lands the rows by `land files`, and watches that, too. --beside runs DuckDB on the same files; --oracle is a jar
that runs RocketMQ's own check() over messages that it makes in memory.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from backlog import NOW, quiet_session
from command import HOME, Spent, call, copy_of, watch
from halfop.warehouse.kernel import KernelWarehouse
from millions import Stretch, land, write_inputs

_TIMES, _MEMORY, _MEMORY_FROM = 1.1, 1.25, 10_000_000
_HERE = Path(__file__).parent
_OPEN_OF, _PER_OP = 50, 500  # every so many messages is open; so many offsets are in an op message


def build(folder: Path, rows: int, inputs: bool) -> None:
    warehouse = KernelWarehouse(quiet_session(), str(folder / "warehouse"))
    if inputs:
        write_inputs(warehouse, Stretch(0, rows), str(folder / "half"), str(folder / "op"))
    else:
        land(warehouse, Stretch(0, rows))


def sizes(warehouse: Path) -> dict[str, list[int]]:
    """The files of each table and their MiB; topics in one."""
    found: dict[str, list[int]] = {}
    for path in warehouse.rglob("*.parquet"):
        name = path.relative_to(warehouse).parts[0]
        if "_delta_log" not in path.parts:
            files = found.setdefault(name, [0, 0])
            files[0] += 1
            files[1] += path.stat().st_size
    return {name: [number, size >> 20] for name, (number, size) in sorted(found.items())}


# ---- what is measured ----


def landed(folder: Path) -> dict[str, Any]:
    shutil.rmtree(folder / "warehouse", ignore_errors=True)
    given = ["--half", str(folder / "half"), "--op", str(folder / "op"), "--warehouse", str(folder / "warehouse")]
    return call("land", "files", *given).shown()


def reconciled(folder: Path) -> dict[str, Any]:
    work = copy_of(folder / "warehouse", folder / "work")
    before = sizes(work)
    called = call("reconcile", "--now", NOW.isoformat(), "--warehouse", str(work))
    written = {name: size for name, size in sizes(work).items() if size != before.get(name)}
    shutil.rmtree(work)
    shown = called.shown() | {"read": before, "written": written}
    return shown | {"decisions": _totals(called.summary["decisions"])}


def _totals(decisions: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return {name: sum(reasons.values()) for name, reasons in sorted(decisions.items())}


def by_duck(folder: Path) -> dict[str, Any]:
    where = ["--warehouse", str(folder / "warehouse"), "--out", str(folder / "duck"), "--now", NOW.isoformat()]
    spent = watch([str(HOME / "spark-submit.sh"), "exec", "python", str(_HERE / "duck.py"), *where])
    shutil.rmtree(folder / "duck")
    return _shown(spent) | json.loads(spent.line)


def by_check(jar: Path, rows: int) -> dict[str, Any]:
    """The JVM's start is not in its own figures, its store's making of messages is."""
    java = ["java", "-Xms4g", "-Xmx4g", "-XX:+UseParallelGC", "-jar", str(jar)]
    spent = watch([*java, "--bench", str(rows), str(_OPEN_OF), str(_PER_OP), "1"])
    own = {name: float(value) for name, value in re.findall(r"(?<![/\w])(seconds|store_s|cpu_s)=([0-9.]+)", spent.line)}
    return _shown(spent) | {"own": own}


def _shown(spent: Spent) -> dict[str, Any]:
    return {"s": spent.seconds, "cpu_s": spent.cpu_s, "mib": spent.mib}


# ---- the bounds ----


def grown(step: Sequence[int], found: Mapping[int, Sequence[Mapping[str, Any]]]) -> bool:
    """Prints how a step to more rows grew; returns whether it missed a bound."""
    less, more = ({what: _median(found[rows], of) for what, of in _LOOKED_AT.items()} for rows in step)
    growth = {what: round(more[what] / less[what], 2) for what in _LOOKED_AT}
    slower = growth["s"] > _TIMES * step[1] / step[0]
    missed = slower or (step[0] >= _MEMORY_FROM and growth["python_mib"] > _MEMORY)
    print(json.dumps({"from": step[0], "to": step[1], "times": growth, "missed": missed}), flush=True)
    return missed


_LOOKED_AT: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "s": lambda line: line["s"],
    "cpu_s": lambda line: line["cpu_s"],
    "python_mib": lambda line: line["mib"]["driver"] + line["mib"]["workers"],
    "all_mib": lambda line: line["mib"]["all"],
}


def _median(lines: Sequence[Mapping[str, Any]], of: Callable[[Mapping[str, Any]], float]) -> float:
    return statistics.median(map(of, lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000, 50_000_000])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--land", action="store_true")
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--oracle", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "halfop-grow")
    parser.add_argument("--keep", action="store_true", help="leave what was built for another call")
    parser.add_argument("--build", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.build:
        build(args.folder, args.build, args.land)
        return
    found = {rows: measured(args, rows, args.folder / str(rows)) for rows in args.rows}
    missed = [grown(step, found) for step in pairwise(args.rows)]
    raise SystemExit(1 if any(missed) else 0)


def measured(args: argparse.Namespace, rows: int, folder: Path) -> list[dict[str, Any]]:
    """Prints all that is measured of so many rows; returns what `reconcile` took, by rounds."""
    built(folder, rows, args.land)
    runs = []
    for number in range(args.rounds):
        if args.land:
            show(rows, "land files", number, landed(folder))
        runs.append(show(rows, "reconcile", number, reconciled(folder)))
        if args.beside:
            show(rows, "DuckDB", number, by_duck(folder))
        if args.oracle:
            show(rows, "check()", number, by_check(args.oracle, rows))
    if not args.keep:
        shutil.rmtree(folder)
    return runs


def built(folder: Path, rows: int, inputs: bool) -> None:
    if not folder.exists():
        building = folder.with_name(f"{rows}.building")
        shutil.rmtree(building, ignore_errors=True)
        command = [sys.executable, __file__, "--build", str(rows), "--folder", str(building)]
        subprocess.run([*command, *(["--land"] if inputs else [])], check=True)
        building.rename(folder)


def show(rows: int, what: str, number: int, found: dict[str, Any]) -> dict[str, Any]:
    a_second = {"a_second": round(rows / found["s"]), "a_cpu_second": round(rows / found["cpu_s"])}
    print(json.dumps({"rows": rows, "what": what, "round": number} | a_second | found), flush=True)
    return found


if __name__ == "__main__":
    main()
