"""Jobs as coroutines: each works until its next call of the warehouse, and goes on when the simulation says so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Semaphore
from typing import Any

# Threads that last: each has a thread of the JVM's.
_THREADS = ThreadPoolExecutor(8, "driver")
_LONGEST = 600  # seconds between two calls


class Killed(BaseException):
    """The process of a job has ended: nothing of it goes on."""


class Driver:
    """One job in a process of its own. At most one driver works at a time."""

    def __init__(self, name: str, job: Callable[[], Any]) -> None:
        self.name, self._job = name, job
        self._go, self._back = Semaphore(0), Semaphore(0)
        self._killed = self.ended = False
        self.disturbed = False  # by a fault
        self.next_call = ""  # the verb that it does when it goes on
        self.future: Future[Any] = _THREADS.submit(self._work)

    def _work(self) -> Any:
        self._go.acquire()
        try:
            return None if self._killed else self._job()
        except Killed:
            return None
        finally:
            self.ended = True
            self._back.release()

    def goes_on(self) -> None:
        """Lets the job work until its next call, or its end."""
        self._go.release()
        if not self._back.acquire(timeout=_LONGEST):
            raise TimeoutError(f"{self.name} neither calls its warehouse nor ends")

    def waits(self, verb: str = "") -> None:
        """Called by the job's threads before a verb, and after a commit: somebody else goes on."""
        self.next_call = verb
        if not self._killed:
            self._back.release()
            self._go.acquire()
        if self._killed:
            raise Killed

    def kill(self) -> None:
        self._killed = True
        if not self.ended:
            self.goes_on()
