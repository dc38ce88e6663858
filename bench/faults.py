"""A call of each kind for a disk fails once: in landings, runs, maintain and a gateway's transactions.

bench/run faults [--of-each N] [--only NAME …] [--calls NAME …] [--seed N]

An open, read, write, sync, rename or link below the warehouse, or the gateway's store, fails with EIO, and another time
with ENOSPC, in Python, Java, Arrow and Rust: one of each kind (--of-each N: N of each; a large N: every call). Kinds
are in tests/systems/lying_disk/choice.py. The job must say so in a sentence or not need the call, and the next start
must be right. The last line has the counts; `missed`: the call did not come again. Status 1 if one is raw or wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from systems.lying_disk.failed import GOOD, trials
from systems.lying_disk.faults import FAILED, PLAYED

_GATEWAY = "gateway"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--of-each", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=(*PLAYED, _GATEWAY), default=[_GATEWAY, *PLAYED])
    parser.add_argument("--calls", nargs="+", choices=FAILED, default=list(FAILED))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    given = parser.parse_args()
    print(f"--seed {given.seed}", flush=True)
    folder, found = Path(tempfile.mkdtemp(prefix="halfop-faults-")), Counter[str]()
    try:
        for name in given.only:
            for trial in trials(folder / name, name, given.of_each, given.seed, given.calls):
                found[trial["kind"]] += 1
                print(json.dumps({"of": name} | trial), flush=True)
    finally:
        shutil.rmtree(folder)
    print(json.dumps({"faults": found.total()} | found))
    sys.exit(0 if found.total() == sum(found[kind] for kind in GOOD) else 1)


if __name__ == "__main__":
    main()
