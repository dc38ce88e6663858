"""Faults: corrupt places in a store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A corrupt place. `file` and `offset` (in that file) are in the log or, if that disagrees, in a consume queue.

    Skipping it loses the log's bytes from `physical` to `lost_until`.
    """

    code: str
    file: str
    offset: int
    physical: int
    lost_until: int
    text: str

    def __str__(self) -> str:
        return f"{self.file} at {self.offset}: {self.text} (physical offset {self.physical})"
