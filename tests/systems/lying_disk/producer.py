"""Appends transactions to a gateway's log while one call fails: producer.py FOLDER CALL FILES NUMBER ERROR

Writes a line for each transaction that is durable, as gateway_appender.py does. The status is MISSED if no call failed.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from programs.gateway_appender import tell
from support.gateway.gateway_log import SMALL, Waiting

from systems.lying_disk.shim import Fault, Shim

MISSED = 3


def main(folder: Path, fault: Fault) -> int:
    logging.basicConfig(level=logging.CRITICAL)
    shim = Shim()
    shim.watch(folder)
    with shim.failing(fault) as found:
        gateway = Waiting(folder, form=SMALL)
        for n in range(0, 30, 3):
            halves = gateway.halves(range(n, n + 3))
            tell(f"half {half.uniq_key}" for half in halves)
            for half, outcome in zip(halves, ("COMMIT", "ROLLBACK"), strict=False):
                gateway.end(half, outcome)  # type: ignore[arg-type]
                tell([f"end {half.uniq_key} {outcome}"])
        gateway.log.checkpoint()
        gateway.close()
    return 0 if found.fired else MISSED


if __name__ == "__main__":
    _, top, name, of_files, nth, failure = sys.argv
    sys.exit(main(Path(top), Fault(name, of_files, int(nth), failure)))
