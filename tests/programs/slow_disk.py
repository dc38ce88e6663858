"""The gateway's job on a disk whose syncs take two seconds while the file SLOW_DISK is there, or fail if it says so."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any

from halfop.frame.cli import run_job
from halfop.jobs.gateway import JOB

SYNC_SECONDS = 2.0


def main() -> None:
    sync, switch = os.fdatasync, os.environ["SLOW_DISK"]

    def fdatasync(fd: Any) -> None:
        with suppress(FileNotFoundError):  # one look: a test may remove the file at any time
            if os.path.getsize(switch):
                raise OSError(5, "Input/output error")
            time.sleep(SYNC_SECONDS)
        sync(fd)

    os.fdatasync = fdatasync
    run_job(JOB)


if __name__ == "__main__":
    main()
