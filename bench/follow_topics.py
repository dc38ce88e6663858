"""Cycles of follow that bring a new topic each, so a new table: does a cycle stay as quick, and the process as small?

bench/run follow_topics [--cycles 300] [--every 25]

Each cycle lands a few half messages of a topic of its own, and their ops. The status is 1 if the last measure exceeds
the one after a quarter of the cycles by more than _MORE. Python's memory may grow by the 64 MiB of small files that a
warehouse keeps of those that it has read, and by what their columns take.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from follow import ROWS, Feeder, follow, op
from support.json_lines import half

_MORE = {
    "cycle_cpu_s": 0.5,
    "python_mib": 96,
    "jvm_mib": 256,
    "heap_mib": 64,
    "threads": 8,
    "open_files": 8,
    "blocks": 0,
}


class NewTopics(Feeder):
    """Half messages of a new topic, and their ops, in each cycle."""

    def feed(self) -> None:
        offsets = range(self.number * ROWS, (self.number + 1) * ROWS)
        self.replace("half", partial(_half, f"Topic{self.number}"), offsets)
        self.replace("op", op, offsets)


def _half(topic: str, offset: int, **changed: Any) -> dict[str, Any]:
    return half(offset, real_topic=topic, **changed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument("--minutes", type=float, default=24 * 60)
    raise SystemExit(follow(partial(NewTopics, idle=0), parser.parse_args(), _MORE))


if __name__ == "__main__":
    main()
