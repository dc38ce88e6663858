"""A process that ends transactions at a real broker, and kills itself with SIGKILL on the way. Nothing in the project
knows of it: what it counts is wrapped from here.

ending_process.py ADDRESS ROWS ENDINGS EVENT NUMBER [unguarded]. Events: `sent` (an answer has left), `answered`,
`recording` and `recorded` (before and after a record), `looked`; `never 0` lets it end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from halfop.columns.keys import Key
from halfop.ending.guard import Guard, Verdict
from halfop.ending.plan import PlannedPlace, Row
from halfop.ending.sender import Sender
from halfop.ending.table import Clerk, newest
from halfop.rocketmq.names import RequestCode
from halfop.rocketmq.wire.remoting import Connection
from support.ending_rows import GO_ON, QUICK, Written, part_of


class Death:
    """Kills the process when an event comes for the given time."""

    def __init__(self, event: str, number: int) -> None:
        self._event, self._left = event, number

    def at(self, event: str) -> None:
        if event == self._event:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


def wrapped(owner: Any, name: str, before: Callable[..., None], after: Callable[..., None]) -> None:
    real = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        before(*args)
        done = real(*args, **kwargs)
        after(*args)
        return done

    setattr(owner, name, call)


def rows_from(file: Path) -> list[Row]:
    """The rows of a plan as `rows_to` has written them."""
    found = []
    for line in file.read_text().splitlines():
        cells = json.loads(line)
        places = tuple(PlannedPlace(*each) for each in cells["places"])
        born = datetime.fromisoformat(cells["born_timestamp"])
        found.append(Row(**cells | {"key": Key(*cells["key"]), "places": places, "born_timestamp": born}))
    return found


def rows_to(file: Path, rows: list[Row]) -> None:
    """Writes the rows of a plan."""
    lines = [json.dumps(row._asdict() | {"born_timestamp": str(row.born_timestamp)}) for row in rows]
    file.write_text("\n".join(lines))


def main() -> None:
    address, rows, endings, event, number, *unguarded = sys.argv[1:]
    death = Death(event, int(number))

    def is_end(connection: Connection, request: Any, *_: Any) -> None:
        if request.code == RequestCode.END_TRANSACTION:
            death.at("sent")

    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    wrapped(Connection, "send", nothing, is_end)
    wrapped(Sender, "_noted", lambda *_: death.at("answered"), nothing)
    wrapped(Written, "record", lambda *_: death.at("recording"), lambda *_: death.at("recorded"))
    if unguarded:
        setattr(Guard, "look", lambda self, owner, given, doubts=(): [Verdict(row, row.places[-1]) for row in given])  # noqa: B010
    wrapped(Guard, "look", nothing, lambda *_: death.at("looked"))
    written = Written(Path(endings))
    known = newest(written.rows)
    left = [row for row in rows_from(Path(rows)) if row.key not in known or known[row.key].state in GO_ON]
    after = max((row.at for row in written.rows), default=None)
    Sender(part_of(address, QUICK, batch=100), Clerk("plan", after), written, known).end(left)


if __name__ == "__main__":
    main()
