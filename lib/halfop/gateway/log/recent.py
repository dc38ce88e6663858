"""Records of half messages that came lately: nearly each commit follows its half message at once, and needs no read."""

from __future__ import annotations

from collections import OrderedDict


class Recent:
    """The newest records by physical offset, at most `most_bytes` of them. For one thread at a time."""

    def __init__(self, most_bytes: int) -> None:
        self._most, self._bytes = most_bytes, 0
        self._records: OrderedDict[int, bytes] = OrderedDict()

    def add(self, physical_offset: int, record: bytes) -> None:
        """Keeps a record, and drops the oldest ones if there are too many bytes."""
        self._records[physical_offset] = record
        self._bytes += len(record)
        while self._bytes > self._most:
            self._bytes -= len(self._records.popitem(last=False)[1])

    def take(self, physical_offset: int) -> bytes | None:
        """The record, which is dropped; None if it is not kept any more."""
        record = self._records.pop(physical_offset, None)
        if record is not None:
            self._bytes -= len(record)
        return record
