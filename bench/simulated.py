"""The gateway, or runs and landings, under simulation, seed by seed: a virtual clock, and everything fails.

bench/run simulated [--runs] [--seeds N] [--first SEED] [--steps N] [--planted [NAME …]]. The bounds: nothing fails, and
one core plays a million simulated seconds of the gateway an hour. --runs plays those over tables in memory. --planted:
each mistake of planted.py is found within a thousand seeds.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cycle import cpu_seconds
from halfop.warehouse.session import spark_session
from support.simulated import planted as in_gateway
from support.simulated import world as gateway
from support.simulated.shortest import Failed
from support.simulated_runs import planted as in_runs
from support.simulated_runs import world as runs

_AN_HOUR, _WITHIN = 1_000_000, 1000


class Simulation(NamedTuple):
    """A world's module, the place where it plays, mistakes to plant there, and what a history of it is counted in."""

    world: Any
    place: Any
    mistakes: Any
    unit: str


@contextmanager
def of_gateway() -> Iterator[Simulation]:
    shared = Path("/dev/shm")  # noqa: S108 - memory: no disk is measured
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        yield Simulation(gateway, Path(folder) / "store", in_gateway.PLANTED, "simulated_s")


@contextmanager
def of_runs() -> Iterator[Simulation]:
    spark = spark_session("bench", **{"spark.master": "local[1]", "spark.sql.shuffle.partitions": "1"})
    yield Simulation(runs, runs.Sessions(spark), in_runs.PLANTED, "runs")
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", action="store_true")
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--planted", nargs="*", metavar="NAME")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with of_runs() if args.runs else of_gateway() as simulation:
        steps, seeds = args.steps or simulation.world.STEPS, range(args.first, args.first + args.seeds)
        if args.planted is None:
            missed = played(simulation, seeds, steps)
        else:
            missed = planted(simulation, args.planted or [*simulation.mistakes], args.first, steps)
    raise SystemExit(1 if missed else 0)


def played(of: Simulation, seeds: range, steps: int) -> bool:
    """Plays seeds; returns whether a bound is missed."""
    before, number, failed = cpu_seconds(), 0.0, 0
    for seed in seeds:
        try:
            number += of.world.play(of.place, seed, of.world.history(seed, steps))
        except Failed as error:  # noqa: PERF203 - each seed may fail
            failed += 1
            print(error, flush=True)
    cpu = cpu_seconds() - before
    an_hour = round(3600 * number / cpu)
    found = {"seeds": len(seeds), "failed": failed, of.unit: round(number), "cpu_s": round(cpu, 1)}
    print(json.dumps(found | {f"{of.unit}_an_hour": an_hour}))
    return failed > 0 or (of.world is gateway and an_hour < _AN_HOUR)


def planted(of: Simulation, names: Sequence[str], first: int, steps: int) -> bool:
    """Plants each mistake; returns whether one is not found."""
    missed = False
    for name in names:
        with of.mistakes[name]():
            seeds = range(first, first + _WITHIN)
            found = next((n for n in seeds if of.world.fails(of.place, n, of.world.history(n, steps))), None)
        print(json.dumps({"planted": name, "found_by_seed": found}, ensure_ascii=False), flush=True)
        missed |= found is None
    return missed


if __name__ == "__main__":
    main()
