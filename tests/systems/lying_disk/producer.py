"""Appends transactions to a gateway's log while one call fails: producer.py FOLDER CALL NUMBER ERROR

Writes a line for each transaction that is durable, as gateway_appender.py does, and then how many calls there were.
Without an error (`none`) the calls are only counted.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from programs.gateway_appender import tell
from support.gateway.gateway_log import SMALL, Waiting

from systems.lying_disk.shim import Shim

_NONE = "none"


def main(folder: Path, call: str, number: int, error: str) -> None:
    logging.basicConfig(level=logging.CRITICAL)
    shim = Shim()
    shim.watch(folder)
    with shim.failing(call, number, None if error == _NONE else error) as found:
        gateway = Waiting(folder, form=SMALL)
        for n in range(0, 30, 3):
            halves = gateway.halves(range(n, n + 3))
            tell(f"half {half.uniq_key}" for half in halves)
            for half, outcome in zip(halves, ("COMMIT", "ROLLBACK"), strict=False):
                gateway.end(half, outcome)  # type: ignore[arg-type]
                tell([f"end {half.uniq_key} {outcome}"])
        gateway.log.checkpoint()
        gateway.close()
    if error == _NONE:
        tell([f"counts {json.dumps(found.counts, separators=(',', ':'))}"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
