"""The line of the log that says what a landing has done."""

from __future__ import annotations

import logging

from halfop.frame.summary import Summary
from halfop.frame.units import instant, plural


def log_landed(summary: Summary, log: logging.Logger) -> None:
    """Logs the rows by table in a line."""
    rows = ", ".join(f"{n:,} {table}" for table, n in sorted(summary.rows_written.items()) if n)
    log.info("landed: %s", rows or no_rows(summary))


def no_rows(summary: Summary) -> str:
    """Returns what a landing without rows has done: files may be empty, and --known-until lets time pass."""
    files, known = summary.extra.get("files_landed", 0), summary.extra.get("known_until", {})
    done = [f"no row in {plural(files, 'new file')}"] if files else []
    if "files_landed" in summary.extra and known.get("queues"):
        done.append(f"{plural(known['queues'], 'queue')} known until {instant(known['greatest'])}")
    return "; ".join(done) or "nothing new"
