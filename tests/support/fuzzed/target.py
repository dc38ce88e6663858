"""What a fuzzer plays: a function of bytes, with the errors that may refuse them. Any other error is a finding."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from halfop.frame.errors import HalfopError, InputRefused

from support.places import DATA

E = TypeVar("E", bound=Exception)
SHARED = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - memory: thousands of small files


@dataclass(frozen=True)
class Target:
    """A decoder of halfop's, with promises about what it makes of any bytes, asserted as `play` goes.

    `seeds` are inputs that builders make; a folder of tests/data/fuzz has what was found.
    """

    name: str
    decodes: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    refuses: tuple[type[Exception], ...] = (HalfopError,)

    def play(self, content: bytes) -> None:
        """Decodes bytes. A refusal says what was wrong, and of input where, in a text that a log can have."""
        refusal = refused_by(self.refuses, lambda: self.decodes(content))
        assert refusal is None or str(refusal).encode().strip()
        assert not isinstance(refusal, InputRefused) or (refusal.path and refusal.problem)

    def corpus(self) -> Iterator[tuple[str, bytes]]:
        """The seeds and what was found, by name."""
        yield from ((f"seed-{n}", content) for n, content in enumerate(self.seeds()))
        folder = DATA / "fuzz" / self.name
        yield from ((path.name, path.read_bytes()) for path in sorted(folder.glob("*")))


def refused_by(kinds: tuple[type[E], ...], call: Callable[[], object]) -> E | None:
    """Returns the refusal that a call raises; None if it does not."""
    try:
        call()
    except kinds as error:
        return error
    return None


class Draws:
    """Choices drawn from bytes, one after the other; zeros once they are used up."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    @property
    def left(self) -> int:
        """The number of bytes that are not used yet."""
        return len(self._content) - self._at

    def below(self, bound: int) -> int:
        """A number from 0 on."""
        width = 1 if bound <= 1 << 8 else 2 if bound <= 1 << 16 else 4
        return int.from_bytes(self.take(width), "little") % bound

    def take(self, length: int) -> bytes:
        """So many bytes, or fewer."""
        found = self._content[self._at : self._at + length]
        self._at += len(found)
        return found

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(self.left)


@contextmanager
def as_file(content: bytes, suffix: str) -> Iterator[str]:
    """The path of a file with this content."""
    with tempfile.NamedTemporaryFile(dir=SHARED, suffix=suffix) as file:
        file.write(content)
        file.flush()
        yield file.name
