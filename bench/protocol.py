"""The run protocol's model in larger bounds than the suite's: every state of each search, in pure Python, on one core.

bench/run protocol [--only NAME …] [--most STATES]

A line a search: its states, how many of them differ in the tables, the longest way, and seconds. The status is 1 if
something went wrong somewhere, and the shortest way to it is printed.
"""

from __future__ import annotations

import argparse
import json
import time

from model.protocol.bounds import LARGE, SMALL
from model.protocol.explorer import Explorer

_SEARCHES = {**SMALL, **LARGE}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=_SEARCHES, default=list(LARGE), metavar="NAME")
    parser.add_argument("--most", type=int, help="end each search after about so many states")
    given = parser.parse_args()
    wrong = [name for name in given.only if _explored(name, given.most)]
    raise SystemExit(1 if wrong else 0)


def _explored(name: str, most: int | None) -> bool:
    """Returns whether something is wrong; prints a search's line."""
    start = time.perf_counter()
    found = Explorer(*_SEARCHES[name]).explore(most)
    about = {"states": found.states, "tables": found.disks, "depth": found.depth}
    print(json.dumps({"search": name, **about, "seconds": round(time.perf_counter() - start, 1)}), flush=True)
    if found.wrong:
        print(found)
    return found.wrong is not None


if __name__ == "__main__":
    main()
