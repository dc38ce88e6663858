"""A run with nothing new over N open messages: what it costs that they are open.

bench/run open [--open 10000000] [--rounds 1] [--profile]

All were asked about half a minute ago, so every one waits. The bound holds for the median of a cold `reconcile` over
10 million. A second one, half a minute later, asks about all of them again, each with its body: without a bound.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from backlog import NOW, quiet_session
from command import Called, call, copy_of
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.load import load_settings
from halfop.warehouse.kernel import KernelWarehouse
from millions import Stretch, land

_BOUND, _BOUND_FROM = 60.0, 10_000_000


def build(folder: str, number: int) -> None:
    """Lands the messages, and asks about all of them."""
    warehouse = KernelWarehouse(quiet_session(), folder)
    land(warehouse, Stretch(0, number, open=100))
    summary = reconcile(warehouse, Request(load_settings(None, ("rules.checks_a_run=null",), {}), NOW))
    if summary.status or list(summary.decisions) != ["CHECK"]:
        raise SystemExit(summary.to_json())


def run(warehouse: Path, seconds: int, limit: str) -> Called:
    now = (NOW + timedelta(seconds=seconds)).isoformat()
    return call("reconcile", "--now", now, "--warehouse", str(warehouse), "--set", f"rules.checks_a_run={limit}")


def measured(built: Path, seconds: int, number: int, decision: str, profile: bool) -> float:
    """Prints what a run costs so many seconds after the messages were asked about; returns its seconds."""
    work = copy_of(built, built.with_name("work"))
    called = run(work, seconds, "null" if decision == "CHECK" else "1000")
    shutil.rmtree(work)
    decided = {name: sum(reasons.values()) for name, reasons in called.summary["decisions"].items()}
    if decided != {decision: number}:
        sys.exit(f"decided {decided}, not {decision} of {number}")
    print(json.dumps({"open": number, "decided": decision} | called.shown()), flush=True)
    for job in called.jobs if profile else ():
        print(json.dumps(job), flush=True)
    return called.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--open", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--profile", action="store_true", help="print each Spark job")
    parser.add_argument("--asked", action="store_true", help="time also the run that asks about all of them again")
    parser.add_argument("--keep", action="store_true", help="leave what was built for another call")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "halfop-open")
    parser.add_argument("--build", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.build:
        build(str(args.folder), args.open)
        return
    built = args.folder / str(args.open) / "built"
    if not built.exists():
        shutil.rmtree(built.parent, ignore_errors=True)
        building = built.with_name("building")
        command = [sys.executable, __file__, "--build", "--open", str(args.open), "--folder", str(building)]
        subprocess.run(command, check=True)
        building.rename(built)
    spent = [measured(built, 30, args.open, "WAIT", args.profile) for _ in range(args.rounds)]
    if args.asked:
        measured(built, 60, args.open, "CHECK", args.profile)
    if not args.keep:
        shutil.rmtree(built.parent)
    if args.open >= _BOUND_FROM and statistics.median(spent) > _BOUND:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
