"""Appends transactions to a gateway's log, and writes a line for each that is durable. Killed by tests."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from halfop.gateway.core.messages import OUTCOMES
from support.gateway.gateway_log import MIDDLE, Waiting, end_of, uniq


def failing(after: int) -> None:
    """Makes the disk fail after so many syncs; the first that fails writes a line."""
    sync, calls = os.fdatasync, count()

    def fdatasync(fd: Any) -> None:
        if next(calls) >= after:
            tell(["failed"])
            raise OSError(5, "Input/output error")
        sync(fd)

    os.fdatasync = fdatasync


def main(folder: Path, seed: int, *fail_after: int) -> None:
    logging.basicConfig(level=logging.CRITICAL)
    for after in fail_after:
        failing(after)
    random, gateway, number = Random(seed), Waiting(folder, form=MIDDLE), seed * 1_000_000
    open_halves = list(gateway.log.open_halves.values())
    while True:
        some = random.randint(1, 40)
        halves = gateway.halves(range(number, number + some))
        tell(f"half {uniq(n)}" for n in range(number, number + some))
        number += some
        open_halves += halves
        random.shuffle(open_halves)
        ended, open_halves = open_halves[5:], open_halves[:5]
        said = [random.choice(OUTCOMES) for _ in ended]
        for half, outcome in zip(ended, said, strict=True):
            last = gateway.log.append_end(half, end_of(outcome)._replace(transaction_id=half.uniq_key))
        gateway.until(last.end)
        tell(f"end {half.uniq_key} {outcome}" for half, outcome in zip(ended, said, strict=True))
        if random.random() < 0.1:
            gateway.log.checkpoint()


def tell(lines: Iterable[str]) -> None:
    os.write(1, "".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
