"""Every call for a disk fails once: in landings, runs, maintain and a gateway's transactions.

bench/run faults [--every N] [--only NAME …] [--calls NAME …]

The n-th open, read, write, sync, rename and link below the warehouse, or the gateway's store, fails with EIO, and
another time with ENOSPC, for every n (--every N: every Nth), in Python, Java, Arrow and Rust. The job must say so in a
sentence or not need the call, and the next start must be right. The last line has the counts. Status 1 if one is raw or
wrong.
"""

from __future__ import annotations

import argparse
import json
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
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=(*PLAYED, _GATEWAY), default=[_GATEWAY, *PLAYED])
    parser.add_argument("--calls", nargs="+", choices=FAILED, default=list(FAILED))
    given = parser.parse_args()
    folder, found = Path(tempfile.mkdtemp(prefix="halfop-faults-")), Counter[str]()
    try:
        for name in given.only:
            for trial in trials(folder / name, name, given.every, given.calls):
                found[trial["kind"]] += 1
                print(json.dumps({"of": name} | trial), flush=True)
    finally:
        shutil.rmtree(folder)
    print(json.dumps({"faults": found.total()} | found))
    sys.exit(0 if found.total() == sum(found[kind] for kind in GOOD) else 1)


if __name__ == "__main__":
    main()
