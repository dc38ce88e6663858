"""What is corrupt in a store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """What is corrupt. `file` and `offset` (in that file) are in the log or, if that disagrees, in a consume queue.

    To skip it loses the log's bytes from `physical` to `lost_until`.
    """

    code: str
    file: str
    offset: int
    physical: int
    lost_until: int
    text: str

    def __str__(self) -> str:
        return f"{self.file} at {self.offset}: {self.text} (physical offset {self.physical})"
