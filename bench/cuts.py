"""Power cuts: histories are recorded before a disk that lies, and every crash state that a cut leaves is started again.

bench/run cuts [--cuts 500] [--only NAME …] [--seed N] [--keep FOLDER]

The histories are `small`, `workers`, `store`, `maintain`, `end` and `gateway` (tests/systems/lying_disk/histories.py).
A cut is right if the next start ends as the undisturbed life did; `repaired` if it was refused, and was right after
`examine --repair` and what that lists. The last line has the counts. Status 1 if a cut is neither.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from conftest import TINY
from halfop.warehouse.session import spark_session
from systems.lying_disk.checks import GOOD, KINDS, Checker, recorded
from systems.lying_disk.crashes import cuts
from systems.lying_disk.recorder import ALL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=500)
    parser.add_argument("--only", nargs="+", choices=ALL, default=list(ALL))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--keep", type=Path, help="keeps recordings and what is wrong here")
    given = parser.parse_args()
    print(f"--seed {given.seed}", flush=True)
    folder = given.keep or Path(tempfile.mkdtemp(prefix="halfop-cuts-"))
    try:
        found = played(given, folder)
    finally:
        if not given.keep:
            shutil.rmtree(folder)
    print(json.dumps({"cuts": found.total(), **{kind: found[kind] for kind in KINDS}}))
    sys.exit(0 if found.total() == sum(found[kind] for kind in GOOD) else 1)


def played(given: argparse.Namespace, folder: Path) -> Counter[str]:
    of_all, found = recorded(folder, *given.only), Counter[str]()
    spark, begun = spark_session("cuts", **TINY), time.monotonic()
    for number, of in enumerate(of_all):
        checker, own = Checker(spark, of, folder / "work"), Counter[str]()
        share = given.cuts // len(of_all) + (number < given.cuts % len(of_all))
        for cut in cuts(of.recording, share, random.Random(given.seed)):
            outcome = checker.check(cut)
            own[outcome.kind] += 1
            print(f"{of.history.name} {cut}: {outcome.kind} {outcome.detail}", flush=True)
        of_history = {"history": of.history.name, "states": checker.states, "s": round(time.monotonic() - begun)}
        print(json.dumps(of_history | own), flush=True)
        found += own
    return found


if __name__ == "__main__":
    main()
