"""What a job is at, in one line on a terminal: redrawn in place while it works, gone when it has ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from threading import Event, RLock, Thread
from typing import TextIO

_EVERY_SECONDS = 0.5
_WIDTH = 80
# The line is drawn one row below the cursor, which goes back: what others write meanwhile, as Java its warnings,
# begins on an empty row.
_CLEAR, _DOWN, _BACK = "\r\x1b[J", "\n", "\x1b[1A\r"

Phase = tuple[str, float]


class Line:
    """The line of one job. Phases may go on side by side; the one that began last is shown."""

    def __init__(self, title: str, stream: TextIO) -> None:
        self._title, self._stream = title, stream
        self._start: Phase = ("starting Spark", time.monotonic())
        self._phases: list[Phase] = [self._start]
        self._count: Callable[[], str] = str
        self._lock, self._ended, self._drawn = RLock(), Event(), False
        self._thread = Thread(target=self._redraw, name="halfop-terminal", daemon=True)

    def __enter__(self) -> Line:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(timeout=5)  # it may be asking a JVM that has died
        with self._lock:
            self._erase()

    def started(self, count: Callable[[], str]) -> None:
        """Spark is there; `count` tells how far it is with what it does."""
        with self._lock:
            self._count = count
            self._leave(self._start)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        phase = (name, time.monotonic())
        with self._lock:
            self._phases.append(phase)
        try:
            yield
        finally:
            with self._lock:
                self._leave(phase)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """The line is away while the block writes."""
        with self._lock:
            self._erase()
            yield

    def _leave(self, phase: Phase) -> None:
        if phase in self._phases:
            self._phases.remove(phase)
        if not self._phases:
            self._erase()

    def _redraw(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            done = self._done()
            with self._lock:
                if self._phases and not self._ended.is_set():
                    self._draw(*self._phases[-1], done)

    def _done(self) -> str:
        with suppress(Exception):  # nothing that a line on a terminal is worth
            return self._count()
        return ""

    def _draw(self, name: str, since: float, done: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - since), 60)
        text = f"{self._title}  {name}  {minutes}:{seconds:02}  {done}".rstrip()
        shown = "".join(c if c.isprintable() else "?" for c in text)[: self._width() - 1]
        self._write(_CLEAR + _DOWN + shown + _BACK)
        self._drawn = True

    def _erase(self) -> None:
        if self._drawn:
            self._write(_CLEAR)
            self._drawn = False

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that has gone ends no job
            self._stream.write(text)
            self._stream.flush()

    def _width(self) -> int:
        with suppress(OSError, ValueError):
            return os.get_terminal_size(self._stream.fileno()).columns or _WIDTH
        return _WIDTH


_shown: list[Line] = []
"""The process's line, if it has one."""


@contextmanager
def showing(title: str, stream: TextIO) -> Iterator[None]:
    """A line while the block works, where `stream` is a terminal that can redraw one."""
    if not (stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"):
        yield
        return
    with Line(title, stream) as line:
        _shown.append(line)
        try:
            yield
        finally:
            _shown.remove(line)


def started(count: Callable[[], str]) -> None:
    """Spark is there; `count` tells how far it is with what it does."""
    for line in _shown:
        line.started(count)


def phase(name: str) -> AbstractContextManager[None]:
    """What the job is at during the block."""
    return _shown[-1].phase(name) if _shown else nullcontext()


def aside() -> AbstractContextManager[None]:
    """For what is written to the terminal meanwhile."""
    return _shown[-1].aside() if _shown else nullcontext()
