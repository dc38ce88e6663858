"""Large input files by Spark's Python workers and by Spark: the same rows, and the same faults, as in this process."""

from __future__ import annotations

import gzip
import json
import logging
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from halfop.frame.errors import InputRefused
from halfop.landing.files import pieces, sources
from halfop.landing.files.land import FilesRequest, land_files
from halfop.landing.files.pieces import Piece, PieceFound, read
from halfop.warehouse.disk import Listed, LocalDisk
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.maps import entries
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.splits import Split, splits_of
from halfop.warehouse.tables import NO_TABLE
from pyspark.sql import SparkSession
from support.json_lines import ABSENT, T0, half, lines, op
from support.seeds import SEED

LOG = logging.getLogger("halfop.test")
TABLES = ("half_messages", "op_messages", "rejected", "landed_files")
WAYS = ("here", "workers", "connector")


@pytest.fixture
def by(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes landings take one of the ways."""

    def choose(way: str) -> None:
        monkeypatch.setattr(sources, "_FEW_BYTES", 8 * 1024 * 1024 if way == "here" else -1)
        if way == "connector":
            monkeypatch.setattr(KernelWarehouse, "takes_files", lambda *_: False)

    return choose


# ---- input ----

_ODD: dict[str, list[Any]] = {
    "queue_id": [0, 1, "2", "+3", 2**31, 1.0, None, True],
    "queue_offset": [7, "9", 2**63 - 1, -1, "x", 2**63, [1]],
    "born_timestamp": [
        T0,
        str(T0),
        "2025-06-15T15:06:40.002Z",
        "2025-06-15 17:06+0200",
        "2025-02-30T00:00Z",
        2**62,
        1.5,
    ],
    "properties": [
        {},
        {"UNIQ_KEY": "k", "TAGS": "t", "REAL_QID": "x"},
        {"A": 1},
        [],
        {"CHECK_IMMUNITY_TIME_IN_SECONDS": "é"},
    ],
    "body": ["", "aGFsZg==", "aGFsZg", "?", 7, None, ABSENT],
    "flag": [None, ABSENT, -1, "4", "1.0"],
    "tags": ["", "t", None, 7, "\ud83d\ude00 \u0007"],
    "colour": ["blue"],
}
_ODD_OPS: dict[str, list[Any]] = {
    "body": ["1,2,", ",,5,, 6,x,", "", None, "+5", "9" * 30, 7],
    "tag": ["d", "x", None],
    "item": [0, 3, ABSENT, None, -1, "x"],
    "half_offset": [4, -4, None, "9"],
    "outcome": ["COMMIT", "ROLLBACK", "odd", None],
    "outcomes": [{"1": "ROLLBACK", "x": "COMMIT"}, {}, None, {"1": 2}],
    "from_check": [True, None, "yes"],
    "queue_offset": [1, -1, "2"],
}


def some(chance: random.Random, row: dict[str, Any], odd: dict[str, list[Any]]) -> dict[str, Any]:
    changed = {name: chance.choice(values) for name, values in odd.items() if chance.random() < 0.15}
    return {name: value for name, value in (row | changed).items() if value is not ABSENT}


def json_input(folder: Path, sound: bool) -> dict[str, list[str]]:
    """Lines of which a third has something odd; `sound`: those alone that are good."""
    chance = random.Random(SEED)
    halves: list[Any] = [some(chance, half(n), _ODD if n % 3 == 0 else {}) for n in range(300)]
    ops: list[Any] = [some(chance, op(n, f"{n},{n + 1}"), _ODD_OPS if n % 3 == 0 else {}) for n in range(300)]
    halves += ["", "  ", "no JSON", json.dumps(half(1)) + "]", '{"queue_id": 0, "queue_id": 1}', "null"]
    if sound:
        halves, ops = (
            [each for each in rows if is_sound(kind, each)] for kind, rows in (("half", halves), ("op", ops))
        )
    first = lines(folder / "a b [1].jsonl", *halves[:150])
    content = "\r\n".join(each if isinstance(each, str) else json.dumps(each) for each in halves[150:]).encode()
    (folder / "2.json.gz").write_bytes(gzip.compress(content[:5_000]) + gzip.compress(content[5_000:]))
    return {"halves": [first, str(folder / "2.json.gz")], "ops": [lines(folder / "o" / "1.ndjson", *ops)]}


def is_sound(kind: str, row: Any) -> bool:
    text = row if isinstance(row, str) else json.dumps(row)
    piece = Piece(kind, "json", "x", "x", Split("x", 0, 2**63 - 1), False)
    return not any(typed.problems for typed in read(piece, InMemory(text.encode()), PieceFound(kind, "json", "x")))


class InMemory(LocalDisk):
    def __init__(self, content: bytes) -> None:
        self._content = content

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self._content)


def parquet_input(folder: Path, sound: bool) -> dict[str, list[str]]:
    """Files of several types of columns, with several row groups."""
    chance, texts = random.Random(SEED), pa.map_(pa.string(), pa.string())
    for number, (whole, instant) in enumerate(
        [(pa.int64(), pa.int64()), (pa.int32(), pa.timestamp("ms")), (pa.int64(), pa.timestamp("us", "CET"))]
    ):
        size = 90
        times = pa.array([T0 + n for n in range(size)])
        properties = [[("UNIQ_KEY", f"k{n}"), ("REAL_QID", "+3"), ("KEYS", "é")][: n % 4] for n in range(size)]
        columns = {
            "broker_name": pa.array([f"b{n % 2}" for n in range(size)]).dictionary_encode(),
            "queue_id": pa.array([n % 3 for n in range(size)], whole),
            "queue_offset": pa.array([2**53 + n for n in range(size)]),
            "commit_log_offset": pa.array(range(size), pa.int16()),
            "born_timestamp": times if instant == pa.int64() else times.cast(pa.timestamp("ms")).cast(instant),
            "store_timestamp": times.cast(pa.timestamp("ms")),
            "body": pa.array([bytes([n]) * n for n in range(size)], pa.large_binary()),
            "properties": pa.array(properties, texts),
            "uniq_key": pa.array([None if n % 2 else f"given{n}" for n in range(size)], pa.large_string()),
            "real_queue_id": pa.nulls(size),
        }
        if not sound:
            columns["queue_offset"] = pa.array([-n if n % 10 == 0 else n for n in range(size)])
            columns["queue_id"] = pa.array([2**31 if n == 77 else n % 2 for n in range(size)], pa.int64())
            columns["body"] = pa.array([None if n == 5 else b"x" for n in range(size)], pa.binary())
            columns["properties"] = pa.array([[("A", None if n == 33 else "a")] for n in range(size)], texts)
            columns["odd"] = pa.array(range(size))
        pq.write_table(pa.table(columns), folder / f"h{number}.parquet", row_group_size=chance.choice([20, 100]))
    given = {
        "broker_name": ["b0"] * 60,
        "queue_id": [0] * 60,
        "queue_offset": list(range(60)),
        "item": [None if n % 2 else n for n in range(60)],
        "tag": ["d"] * 60,
        "body": [f"{n},{n + 1}," for n in range(60)],
        "half_offset": [None if n % 3 else n for n in range(60)],
        "outcome": ["COMMIT"] * 60,
        "born_timestamp": [T0] * 60,
        "store_timestamp": [T0 + n for n in range(60)],
    }
    outcomes = pa.array([[(n, "ROLLBACK")] if n % 4 else None for n in range(60)], pa.map_(pa.int64(), pa.string()))
    pq.write_table(pa.table(given).append_column("outcomes", outcomes), folder / "o.parquet", row_group_size=25)
    return {"halves": [str(folder / "h*.parquet")], "ops": [str(folder / "o.parquet")]}


# ---- the same by all ways ----


def content(warehouse: KernelWarehouse) -> dict[str, Counter[str]]:
    """All rows but for when they landed."""
    found = {name: Counter(map(_shown, warehouse.rows(name))) for name in TABLES}
    return found | {"progress": Counter(map(_shown, progress_rows(warehouse)))}


def _shown(row: dict[str, Any]) -> str:
    cells = {k: sorted(v.items()) if isinstance(v, dict) else v for k, v in row.items()}
    return str({k: v for k, v in cells.items() if k not in ("landed_at", "rejected_at")})


@pytest.mark.parametrize("make", [json_input, parquet_input])
def test_rows_and_bad_rows_are_the_same(spark: SparkSession, tmp_path: Path, by: Any, make: Any) -> None:
    files = make(tmp_path, sound=False)
    found, summaries = [], []
    for way in WAYS:
        by(way)
        warehouse = KernelWarehouse(spark, str(tmp_path / way))
        summaries.append(land_files(warehouse, FilesRequest(**files, skip_bad=True), LOG))
        found.append(content(warehouse))
        assert not warehouse.files.folders(warehouse.path("_staging"))
    for other in found[1:]:
        for name in found[0]:
            assert other[name] == found[0][name], name
    assert found[0]["rejected"].total() > 20
    assert found[0]["half_messages"].total() > 150
    assert found[0]["op_messages"].total() > 60
    assert [each.rows_written for each in summaries] == [summaries[0].rows_written] * 3
    assert [each.notes for each in summaries] == [summaries[0].notes] * 3


@pytest.mark.parametrize("make", [json_input, parquet_input])
def test_the_first_bad_rows_are_named_the_same(spark: SparkSession, tmp_path: Path, by: Any, make: Any) -> None:
    files, texts = make(tmp_path, sound=False), []
    for way in WAYS:
        by(way)
        warehouse = KernelWarehouse(spark, str(tmp_path / way))
        with pytest.raises(InputRefused) as refused:
            land_files(warehouse, FilesRequest(**files), LOG)
        texts.append(str(refused.value))
        assert warehouse.files.folders(warehouse.root) in ([], ["_staging"])
        assert not warehouse.files.folders(warehouse.path("_staging"))
    assert texts == [texts[0]] * 3


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["h.parquet", "empty.parquet", "h.jsonl.gz"])
def test_files_that_cannot_be_read_to_their_end_are_refused(
    spark: SparkSession, tmp_path: Path, by: Any, way: str, name: str
) -> None:
    by(way)
    path = tmp_path / name
    if name.startswith("empty"):
        path.touch()
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(json.dumps([half(n) for n in range(999)]).encode())[:-40])
    else:
        parquet_input(tmp_path, sound=True)
        content = bytearray((tmp_path / "h0.parquet").read_bytes())
        content[4:400] = b"\xff" * 396
        path.write_bytes(content)
    warehouse = KernelWarehouse(spark, str(tmp_path / "warehouse"))
    with pytest.raises(InputRefused) as refused:
        land_files(warehouse, FilesRequest([str(path)], skip_bad=True), LOG)
    assert refused.value.path == str(path)
    assert warehouse.version("half_messages") == NO_TABLE


def test_what_a_dead_landing_left_is_removed(spark: SparkSession, tmp_path: Path, by: Any) -> None:
    by("workers")
    warehouse = KernelWarehouse(spark, str(tmp_path / "warehouse"))
    (tmp_path / "warehouse" / "_staging" / "landing-dead").mkdir(parents=True)
    (tmp_path / "warehouse" / "_staging" / "run-1-0").mkdir()
    land_files(warehouse, FilesRequest([lines(tmp_path / "h.jsonl", half())]), LOG)
    assert warehouse.files.folders(warehouse.path("_staging")) == ["run-1-0"]


# ---- parts ----


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_pieces_of_a_file_share_every_line_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    chance = random.Random(SEED)
    texts = ["x" * chance.randint(0, 30) for _ in range(60)]
    path = tmp_path / "lines.json"
    path.write_bytes(("".join(text + chance.choice(["\n", "\r\n", "\r"]) for text in texts) + "last" + end).encode())
    whole, file = pieces.split(path.read_bytes()), Listed(str(path), path.stat().st_size, {})
    for block in (1, 7, 1_000_000):
        monkeypatch.setattr(pieces, "_BLOCK", block)
        for tasks in (1, 2, 5, 40):
            splits = sorted(split for part in splits_of([file], tasks) for split in part)  # the largest begins first
            found = [line for split in splits for line in lines_between(path, split.start, split.end)]
            assert found == whole


def lines_between(path: Path, start: int, end: int) -> list[bytes]:
    with LocalDisk().open(str(path)) as file:
        return [line for block in pieces._blocks(file, start, end) for line in pieces.split(block)]


def test_entries_of_maps() -> None:
    maps = [[("a", "1"), ("b", "2")], None, [], [("b", "3"), ("b", "4")], [("c", "5")]]
    given = pa.array(maps, pa.map_(pa.string(), pa.string()))
    for cut in (slice(0, 5), slice(1, 4), slice(3, 3)):
        found = entries(given[cut.start : cut.stop], ["b", "a"])
        wanted = [dict(reversed(each or [])) for each in maps[cut]]
        assert {name: column.to_pylist() for name, column in found.items()} == {
            name: [each.get(name) for each in wanted] for name in ("b", "a")
        }
