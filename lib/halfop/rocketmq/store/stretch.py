"""A stretch of a broker's commit log, read by one worker as checked Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from halfop.rocketmq.batches import BATCH, OP, Build, has_rocksdb_alone, kinds_of, wrong_times
from halfop.rocketmq.buffers import Longs
from halfop.rocketmq.record import Chain, Records
from halfop.rocketmq.store.commitlog import Fault, StoreFile, closes, windows
from halfop.rocketmq.store.consumequeue import ConsumeQueues, next_sound
from halfop.rocketmq.store.crosscheck import CrossCheck

_CLOCK_STEP_MS = 3_600_000


@dataclass(frozen=True)
class Stretch:
    """A part of one log file, from a record's beginning to another's, or to the file's end, or the log's.

    `dispatched`: the end of what consume queues named when the stretch was cut. `fault`: the corrupt place at its end.
    `sound`: it has been checked, and nothing was wrong. `back`: a few MiB of the log right before it.
    """

    root: str
    file: StoreFile
    start: int
    end: int
    dispatched: int
    fault: Fault | None = None
    sound: bool = False
    back: Stretch | None = None


@dataclass(frozen=True)
class LogPiece:
    """A few MiB of the log. The newest store time is that of all records, not only of those in batches.

    `kept` are the records of the batches. `rocksdb`: there are messages of a broker with transactions in RocksDB alone.
    """

    start: int
    end: int
    records: int = 0
    newest_store_ms: int | None = None
    batches: Mapping[str, pa.RecordBatch] = field(default_factory=dict)
    faults: Sequence[Fault] = ()
    kept: Mapping[str, Records] = field(default_factory=dict)
    rocksdb: bool = False


def read(stretch: Stretch, build: Mapping[str, Build] = BATCH, skip_corrupt: bool = False) -> Iterator[LogPiece]:
    """The stretch's pieces in order, with batches of the kinds that are to be built, none of them empty.

    The first fault ends the reading, after the good rows before it; with `skip_corrupt` reading goes on after the bytes
    that each fault loses. Rows have passed all checks: inner lengths, physical offset, and, unless the stretch is known
    to be sound, consume queue and CRCs.
    """
    reader, at = _Reader(stretch, build, skip_corrupt), stretch.start
    while at < stretch.end:
        for piece in reader.pieces(at):
            yield piece
            if piece.faults and not skip_corrupt:
                return
            at = piece.end
    if stretch.fault:
        yield LogPiece(stretch.end, stretch.fault.lost_until, faults=(stretch.fault,))


class _Reader:
    def __init__(self, stretch: Stretch, build: Mapping[str, Build], skip_corrupt: bool) -> None:
        self._stretch, self._build, self._skip = stretch, build, skip_corrupt
        self._queues = ConsumeQueues(stretch.root)

    def pieces(self, start: int) -> Iterator[LogPiece]:
        """The pieces from a record's beginning to the stretch's end, or to the first thing that is no record."""
        check = CrossCheck(self._queues, start, self._stretch.dispatched)
        for at, found in windows(self._stretch.file, start, self._stretch.end):
            piece = self._piece(at, found, check)
            stop = self._stop(at, found)
            if stop and (self._skip or not piece.faults):
                piece = replace(piece, end=stop.lost_until, faults=(*piece.faults, stop))
            yield replace(piece, end=self._stretch.end) if found.stop and not stop else piece

    def _piece(self, at: int, found: Chain, check: CrossCheck) -> LogPiece:
        records, topics = found.records, found.records.topics()
        rows = {kind: np.flatnonzero(mask) for kind, mask in kinds_of(records, topics).items()}
        wanted = {kind: records.select(rows[kind]) for kind in self._build if len(rows[kind])}
        faults: dict[int, Fault] = {}
        if not self._stretch.sound:
            in_batches = np.isin(np.arange(len(records)), np.concatenate(list(rows.values())))
            for fault in (*check.check(records, topics, in_batches), *self._by_content(wanted)):
                faults.setdefault(fault.physical, fault)
        shown = sorted(faults.values(), key=lambda fault: fault.physical)
        end, before = at + found.end, records
        if shown and not self._skip:
            shown, end = shown[:1], shown[0].physical
            before = records.select(records.longs("physical_offset") < end)
        good = {kind: _without(some, faults, end) for kind, some in wanted.items()}
        kept = {kind: some for kind, some in good.items() if len(some)}
        batches = {kind: self._build[kind](some) for kind, some in kept.items()}
        of_rocksdb = has_rocksdb_alone(topics, kept.get(OP))
        return LogPiece(at, end, len(before), _newest(before.store_ms), batches, tuple(shown), kept, of_rocksdb)

    def _by_content(self, wanted: Mapping[str, Records]) -> Iterator[Fault]:
        for records in wanted.values():
            for code, wrong, text in (
                ("crc", records.wrong_body_crc(), "the body does not match its CRC"),
                ("crc", records.wrong_property_crc(), "the record does not match the CRC in its properties"),
                ("time", wrong_times(records.store_ms), "the store time is not in the years 1 to 9999"),
            ):
                for row in np.flatnonzero(wrong):
                    place = int(records.head["physical_offset"][row])
                    yield self._in_log(code, place, place + int(records.head["size"][row]), text)

    def _stop(self, at: int, found: Chain) -> Fault | None:
        """The fault that ends the chain before the stretch's end; None if none does."""
        stop, file = found.stop, self._stretch.file
        if stop is None or (closes(stop, at + stop.position, file) and self._stretch.end == file.end):
            return None
        place = at + stop.position
        sound = next_sound(self._queues.all(), file, place, self._stretch.end)
        return self._in_log(stop.code, place, self._stretch.end if sound is None else sound, stop.text)

    def _in_log(self, code: str, physical: int, lost_until: int, text: str) -> Fault:
        file = self._stretch.file
        return Fault(code, file.path, physical - file.first, physical, lost_until, text)


def _without(records: Records, faults: Mapping[int, Fault], end: int) -> Records:
    places = records.longs("physical_offset")
    if not faults:
        return records
    return records.select((places < end) & ~np.isin(places, list(faults)))


def _newest(store_ms: Longs) -> int | None:
    """The newest store time. No checksum covers it: a time much later than the following record's is passed over."""
    likely = np.append(store_ms[:-1] <= store_ms[1:] + _CLOCK_STEP_MS, True)[: len(store_ms)] & ~wrong_times(store_ms)
    return int(store_ms[likely].max()) if likely.any() else None
