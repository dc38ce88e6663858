"""Whatever happens to a store's bytes: no wrong row, no silent loss, no other error, and no landing without end."""

from __future__ import annotations

import shutil
import tempfile
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from halfop.frame.errors import InputRefused
from halfop.rocketmq.store import commitlog
from hypothesis import given, settings
from hypothesis import strategies as st
from support.brokers.store_reader import Read, filled, read_all
from support.brokers.store_writer import Store, final, half, op
from support.effort import part

MEMORY = 64 << 20


@dataclass(frozen=True)
class Harm:
    """A change to one of the store's files; places and lengths as parts of what there is."""

    file: float
    what: str
    at: float
    other: float
    length: int
    noise: bytes

    def to(self, content: bytes) -> bytes:
        used = max(len(content.rstrip(b"\0")), 1)  # mostly where something is
        at, other = int(self.at * used), int(self.other * used)
        low, high = sorted((at, other))
        part = content[at : at + self.length]
        behind, flipped = content[at + len(part) :], bytes(b ^ n for b, n in zip(part, self.noise, strict=False))
        changed = {
            "flip": content[:at] + flipped + content[at + len(flipped) :],
            "noise": content[:at] + self.noise + content[at + len(self.noise) :],
            "zero": content[:at] + bytes(len(part)) + behind,
            "zero tail": content[:at] + bytes(len(content) - at),
            "truncate": content[:at],
            "delete": content[:at] + behind,
            "delete, same size": (content[:at] + behind).ljust(len(content), b"\0"),
            "duplicate": content[:at] + part + part + behind,
            "overwrite": content[:other] + part + content[other + len(part) :],
            "swap": content[:low]
            + content[high:][:20]
            + content[low + 20 : high]
            + content[low:][:20]
            + content[high + 20 :],
        }
        return changed[self.what]


KINDS = ["flip", "noise", "zero", "zero tail", "truncate", "delete", "delete, same size", "duplicate", "overwrite"]
PARTS = st.floats(0, 1, exclude_max=True)
NOISE = st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from([bytes([1 << n]) for n in range(8)]))
HARM = st.builds(
    Harm, PARTS, st.sampled_from([*KINDS, "swap"]), PARTS, PARTS, st.sampled_from([1, 4, 20, 100, 240, 1000]), NOISE
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    made = filled(tmp_path_factory.mktemp("fuzz") / "store", 25, queue_file_units=20)
    for n in range(25, 40):
        place = made.append(half(n, property_crc=n % 2 == 0, version=2, born_host=("::1", 5), body=bytes(range(n))))
        made.append(final(n, place, property_crc=n % 3 == 0, store_host=("fe80::1", 9)))
    made.append(op("30,31,"))
    return made


@pytest.fixture(autouse=True, scope="module")
def _small_windows() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commitlog, "WINDOW", 3000)
        yield


def harmed(store: Store, harms: list[Harm], root: Path) -> None:
    shutil.copytree(store.root, root)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    for harm in harms:
        path = files[int(harm.file * len(files))] if harm.file < 0.5 else files[int((harm.file - 0.5) * 6)]
        path.write_bytes(harm.to(path.read_bytes()))


def rows_are_the_originals(store: Store, found: Read) -> None:
    originals = {
        place: (record.queue_id, record.queue_offset, len(record.at(0)), record.body) for place, record in store.records
    }
    for kind, rows in found.rows.items():
        assert len({(row["queue_id"], row["queue_offset"], row.get("topic")) for row in rows}) == len(rows)
        for row, place in zip(rows, found.places(kind), strict=True):
            queue_id, queue_offset, size, body = originals[place]
            assert (row["queue_id"], row["queue_offset"]) == (queue_id, queue_offset)
            assert row.get("record_size", size) == size
            assert row["body"] == (body if kind == "half" else body.decode()) if "body" in row else True


def losses_are_told(store: Store, found: Read) -> None:
    """Losses of topics that land as a whole are reported. (Nothing protects a final's sysFlag, by which it is one.)"""
    for kind in ("half", "op", "discard"):
        for place in set(store.places(kind)) - set(found.places(kind)):
            told = any(fault.physical <= place < fault.lost_until for fault in found.faults)
            assert told or place >= found.plan.end


def read_harmed(store: Store, harms: list[Harm], skip: bool, size: int) -> Read | None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        harmed(store, harms, root)
        try:
            return read_all(root, skip, size)
        except InputRefused:
            return None


@settings(deadline=timedelta(seconds=20))
@given(st.lists(HARM, min_size=1, max_size=3), st.booleans(), st.sampled_from([3000, 1 << 20]))
def test_whatever_happens_to_a_store(store: Store, harms: list[Harm], skip: bool, size: int) -> None:
    found = read_harmed(store, harms, skip, size)
    if found:
        rows_are_the_originals(store, found)
        if skip and len(harms) == 1:
            losses_are_told(store, found)


@settings(part(0.08), deadline=timedelta(seconds=20))
@given(st.lists(HARM, min_size=1, max_size=3))
def test_memory_is_bounded(store: Store, harms: list[Harm]) -> None:
    tracemalloc.start()
    read_harmed(store, harms, True, 3000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak + pa.default_memory_pool().max_memory() < MEMORY
