"""Outcomes that follow from a stretch of the log alone: never another one than the whole log gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from halfop.landing.fields import items
from halfop.landing.op_outcomes import StretchOutcomes
from halfop.rocketmq.batches import FINAL, HALF, HEADS, OP
from halfop.rocketmq.store import commitlog
from halfop.rocketmq.store import layout as store_module
from halfop.rocketmq.store.layout import layout
from halfop.rocketmq.store.stretch import Stretch, read
from hypothesis import given
from hypothesis import strategies as st
from support.brokers.op_bodies import BODIES, NUMBERS
from support.brokers.store_writer import Record, Store, final, gateway_op, half, op

Items = list[tuple[int, int, str | None]]  # op's queue offset, half offset, outcome


def bodies(rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    body, tag = zip(*rows, strict=True)
    columns = {"at": pa.array(range(len(rows))), "body": pa.array(body, pa.string()), "tag": pa.array(tag, pa.string())}
    return pa.RecordBatch.from_pydict(columns)


def test_bodies_are_split_as_those_of_files_are() -> None:
    whole = [(given[:2], rows) for given, rows in BODIES if given[2] is None and given[3] is None]
    made = items(bodies([given for given, _ in whole])).to_pylist()
    found = [(row["at"], row["item"], row["body"], row["half_offset"]) for row in made]
    assert found == [(at, *row[:3]) for at, (_, rows) in enumerate(whole) for row in rows]


def test_offsets_are_read_as_those_of_files_are() -> None:
    texts = {text: number for text, number in NUMBERS.items() if text}
    made = items(bodies([(text, "d") for text in texts]))
    assert dict(zip(made["body"].to_pylist(), made["half_offset"].to_pylist(), strict=True)) == texts


def test_no_op_has_no_items() -> None:
    assert len(items(bodies([("5", "d")]).slice(0, 0))) == 0


# ---- outcomes ----

HALVES, OTHER_KEY = 12, "other"
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("half"), st.integers(0, 1)),
        st.tuples(st.sampled_from(["final", OTHER_KEY, "op"]), st.integers(0, HALVES - 1)),
        st.tuples(st.just("ops"), st.integers(2, HALVES)),
    ),
    min_size=1,
    max_size=40,
)


def written(store: Store, steps: list[tuple[str, int]]) -> tuple[dict[tuple[int, int], int], set[int]]:
    """Half messages by queue and offset, and those that the log says were committed."""
    places: dict[tuple[int, int], int] = {}
    keys: dict[int, int] = {}
    committed: set[int] = set()
    for step, n in steps:
        if step == "half":
            place = store.append(half(len(places), queue_id=n))
            keys[place] = len(places)
            places[n, store.next_offsets["RMQ_SYS_TRANS_HALF_TOPIC", n] - 1] = place
        elif step == "op":
            store.append(op(f"{n},", queue_id=n % 2))
        elif step == "ops":
            store.append(op("".join(f"{each}," for each in range(n)), queue_id=n % 2))
        else:
            place = sorted(keys)[n % len(keys)] if keys else 0
            store.append(final(keys.get(place, 0) + (100 if step == OTHER_KEY else 0), place))
            committed |= {place} if keys and step == "final" else set()
    return places, committed


def ended(stretch: Stretch, far: set[int], gap: bool = False) -> tuple[set[int], list[dict[str, object]]]:
    found = StretchOutcomes(stretch.start, np.array(sorted(far), np.int64))
    found.look_back(stretch)
    for piece in read(stretch, {kind: HEADS[kind] for kind in (HALF, FINAL, OP)}):
        found.see(piece.batches, gap)
    return set(found.reaching_back.tolist()), [row for items in found.items() for row in items.to_pylist()]


@pytest.mark.long
@given(
    steps=STEPS,
    size=st.sampled_from([1, 700, 2000, 1 << 20]),
    back=st.sampled_from([0, 500, 3000, 1 << 20]),
    gap=st.booleans(),
)
def test_a_stretch_tells_what_the_whole_log_tells(
    steps: list[tuple[str, int]], size: int, back: int, gap: bool
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "BACK", back)
        store = Store(Path(folder) / "store", file_size=8192)
        places, committed = written(store, steps)
        stretches = layout(store.root, size=size).stretches
        far = set().union(*(ended(stretch, set())[0] for stretch in stretches)) if stretches else set()
        for stretch in stretches:
            _, rows = ended(stretch, far, gap)
            for row in rows:
                place = places.get((int(str(row["queue_id"])), int(str(row["half_offset"]))))
                begin = stretch.back.start if stretch.back else stretch.start
                here = place is not None and begin <= place < stretch.end
                if row["outcome"] is not None:
                    assert here
                    assert row["outcome"] == ("COMMIT" if place in committed else "ROLLBACK")
                    assert not gap or row["outcome"] == "COMMIT"
                elif here and not gap:
                    unlike = any(step == OTHER_KEY for step, _ in steps)
                    assert place in {0, *far} or unlike, "settled where it can be"


def test_one_stretch_settles_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commitlog, "WINDOW", 1500)
    store = Store(tmp_path / "store")
    store.append(Record())
    place = store.append(half(0))
    store.append(half(1))
    store.append(final(0, place))
    store.append(op("0,1,"))
    (stretch,) = layout(store.root).stretches
    assert [(row["half_offset"], row["outcome"]) for row in ended(stretch, set())[1]] == [
        (0, "COMMIT"),
        (1, "ROLLBACK"),
    ]
    back = replace(stretch, start=place + store.size(place))
    assert ended(back, set())[0] == {place}


def test_what_a_gateways_op_says_needs_no_final_message(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.append(half(0))
    store.append(final(1, store.append(half(1))))
    for each in (gateway_op(0, "COMMIT"), gateway_op(1, "ROLLBACK"), gateway_op(7, "COMMIT"), op("0,1,")):
        store.append(each)
    (stretch,) = layout(store.root).stretches
    assert [(row["half_offset"], row["outcome"], row["from_check"]) for row in ended(stretch, set())[1]] == [
        (0, "COMMIT", True),
        (1, "ROLLBACK", True),
        (7, "COMMIT", True),
        (0, "ROLLBACK", None),
        (1, "COMMIT", None),
    ]


def test_a_retry_s_copy_names_no_one(tmp_path: Path) -> None:
    """Copies of final messages that a broker makes for a retry name place 0, where another half message may be."""
    store = Store(tmp_path / "store")
    store.append(half(0))
    place = store.append(replace(half(1), body=b"body 0"))
    store.append(final(0, place))
    store.append(final(0, 0))
    store.append(op("0,1,"))
    (stretch,) = layout(store.root).stretches
    assert {row["half_offset"]: row["outcome"] for row in ended(stretch, set())[1]} == {0: None, 1: "COMMIT"}


def test_a_final_message_of_no_place_names_no_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.append(Record())
    store.append(final(0, -1))
    store.append(op("-1,5,"))
    (stretch,) = layout(store.root).stretches
    assert [row["outcome"] for row in ended(stretch, set())[1]] == [None, None]


def test_final_messages_looked_back_at_are_their_own_stretch_s(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", file_size=2048)
    store.append(Record())
    store.append(final(0, store.append(half(0))))
    while store.end < 2048:
        store.append(Record())
    store.append(op("0,"))
    _, later = layout(store.root).stretches
    far, rows = ended(later, set())
    assert (far, [row["outcome"] for row in rows]) == (set(), ["COMMIT"])


def test_what_cannot_be_looked_back_at_settles_nothing(tmp_path: Path) -> None:
    """The broker has deleted the file meanwhile."""
    store = Store(tmp_path / "store", file_size=1024)
    store.append(half(0))
    store.append(half(1))
    while store.end < 1024:
        store.append(Record())
    store.append(op("0,1,"))
    first, later = layout(store.root).stretches
    assert [row["outcome"] for row in ended(later, set())[1]] == ["ROLLBACK"] * 2
    Path(first.file.path).unlink()
    assert [row["outcome"] for row in ended(later, set())[1]] == [None] * 2


def test_too_many_far_ones_leave_rollbacks_open(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.append(half(0))
    store.append(op("0,"))
    (stretch,) = layout(store.root).stretches
    found = StretchOutcomes(stretch.start, None)
    for piece in read(stretch, {kind: HEADS[kind] for kind in (HALF, FINAL, OP)}):
        found.see(piece.batches, False)
    assert [items["outcome"].to_pylist() for items in found.items()] == [[None]]


def test_a_final_message_in_a_later_stretch_is_no_rollback(tmp_path: Path) -> None:
    """The op came first: ended, it seems, without a final message."""
    store = Store(tmp_path / "store")
    store.append(Record())
    place = store.append(half(0))
    end = store.append(op("0,"))
    store.append(final(0, place))
    (whole,) = layout(store.root).stretches
    first = replace(whole, end=end + store.size(end))
    later = replace(whole, start=first.end)
    far, _ = ended(later, set())
    assert far == {place}
    assert [row["outcome"] for row in ended(first, far)[1]] == [None]
    assert [row["outcome"] for row in ended(first, set())[1]] == ["ROLLBACK"], "what it would say without that word"
