"""The gateway under simulation, seed by seed: a virtual clock, network and disk, which all fail (support/simulated).

bench/run simulated [--seeds N] [--first SEED] [--steps N] [--planted]. The bounds: nothing fails, and one core plays a
million simulated seconds an hour. --planted: each mistake of planted.py is found within a thousand seeds.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from pathlib import Path

from support.simulated.planted import PLANTED
from support.simulated.shortest import Failed
from support.simulated.world import fails, history, play

_AN_HOUR, _WITHIN = 1_000_000, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--planted", action="store_true")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    shared = Path("/dev/shm")  # noqa: S108 - memory: no disk is measured
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        store = Path(folder) / "store"
        missed = (
            planted(store) if args.planted else played(store, range(args.first, args.first + args.seeds), args.steps)
        )
    raise SystemExit(1 if missed else 0)


def played(store: Path, seeds: range, steps: int) -> bool:
    """Plays seeds; returns whether a bound is missed."""
    start, seconds, failed = time.process_time(), 0.0, 0
    for seed in seeds:
        try:
            seconds += play(store, seed, history(seed, steps))
        except Failed as error:  # noqa: PERF203 - each seed may fail
            failed += 1
            print(error, flush=True)
    cpu = time.process_time() - start
    an_hour = round(3600 * seconds / cpu)
    found = {"seeds": len(seeds), "failed": failed, "simulated_s": round(seconds), "cpu_s": round(cpu, 1)}
    print(json.dumps(found | {"simulated_s_an_hour": an_hour}))
    return failed > 0 or an_hour < _AN_HOUR


def planted(store: Path) -> bool:
    """Plants each mistake; returns whether one is not found."""
    missed = False
    for name, mistake in PLANTED.items():
        with mistake():
            found = next((seed for seed in range(_WITHIN) if fails(store, seed, history(seed))), None)
        print(json.dumps({"planted": name, "found_by_seed": found}, ensure_ascii=False), flush=True)
        missed |= found is None
    return missed


if __name__ == "__main__":
    main()
