"""Large runs by Spark's Python workers: they decide and write what the rules' Columns and Spark do, row for row."""

from __future__ import annotations

import json
import random
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from halfop.columns.keys import ByKey
from halfop.planning import arrivals, by_workers
from halfop.runs.reconcile import Request, reconcile
from halfop.sinks import staging
from halfop.warehouse import reading
from halfop.warehouse.disk import Listed, LocalDisk
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.maps import owners, without
from halfop.warehouse.splits import ParquetPart, PartWriter, Split, parts_of, span, splits_of
from halfop.warehouse.tables import Warehouse
from model import reference as m
from model.strategies import op_rows
from pyspark.sql import SparkSession
from support import rows as r
from support.halves import half_at
from support.seeds import SEED
from support.ways import BY_SPARK

NOW = 1_750_000_000_000
RULES = m.Settings(check_max=2, checks_a_run=7, topics={"T2": m.Override(transaction_timeout=50_000)})
FAR = 2**53
QUEUES = [("a", 0), ("a", 1), ("b", 0)]
TABLES = ("decisions", "rejected", "check_requests", "trans_check_max_time", "topics/T1", "topics/T2")


def drawn_half(chance: random.Random, queue: m.Queue, offset: int) -> m.Half:
    odd = chance.random() < 0.3
    given: dict[str, Any] = {"real_topic": chance.choice(["T1", "T2"]), "body": chance.randbytes(20)}
    if odd:
        given |= {
            "group": chance.choice(["g", "", None]),
            "uniq_key": chance.choice([f"k{offset}", "", None]),
            "real_topic": chance.choice(["T1", "", None, "a b", "%RETRY%g", "TBW102"]),
            "real_qid": chance.choice(["1", "x", None]),
            "immunity": chance.choice([None, "", "20", "x"]),
        }
    made = half_at(queue, offset, NOW - chance.choice([1_000, 10_000, 100_000]), **given)
    return replace(made, check_times=chance.choice(["1", "2"])) if odd and not made.uniq_key else made


def answer(chance: random.Random, half: m.Half, place: int) -> list[m.Op]:
    """At most one op that counts, and perhaps one that has a fault."""
    found = op_rows(half.key[:2], place, str(half.offset), [chance.choice(["COMMIT", "ROLLBACK"])], NOW - 500)
    found = [replace(op, from_check=chance.choice([True, False, None])) for op in found]
    if chance.random() < 0.1:
        group, log_offset = chance.choice(["g", "other"]), half.commit_log_offset
        header = {"group": group, "tran_state_table_offset": half.offset, "commit_log_offset": log_offset}
        found = [replace(op, **header) for op in found]  # type: ignore[arg-type]
    if chance.random() < 0.1:
        found += op_rows(half.key[:2], place + 100_000, str(half.offset), ["NEITHER"], NOW - 400)
    return found


def stays_open(half: m.Half) -> bool:
    sound = half.real_topic in ("T1", "T2") and half.real_qid == "1" and bool(half.group)
    return sound and half.check_times is None


def landings() -> list[tuple[list[m.Half], list[m.Op]]]:
    """Two: ops of the second also answer what the first left open."""
    chance, unanswered = random.Random(SEED), list[m.Half]()
    found = []
    for first in (0, FAR):
        halves = [drawn_half(chance, queue, offset) for queue in QUEUES for offset in range(first, first + 30)]
        asked = [each for each in [*unanswered, *halves] if chance.random() < 0.7]
        ops = [op for place, each in enumerate(asked, first) for op in answer(chance, each, place)]
        unanswered = [each for each in halves if each not in asked and stays_open(each)]
        found.append((halves, ops))
    return found


def played(warehouse: Warehouse, max_rows: int | None = None) -> tuple[dict[str, Counter[str]], list[str]]:
    """All rows of the tables but for their runs, and the ways that runs took."""
    ways: list[str] = []
    for number, (halves, ops) in enumerate(landings()):
        at = NOW + number * 30_000
        cut = len(halves) // 2
        r.land(warehouse, halves[:cut], ops[:cut], at - 1, dict.fromkeys(QUEUES, at))
        r.land(warehouse, halves[cut:], ops[cut:], at, dict.fromkeys(QUEUES, at))
        request = Request(r.settings(RULES, "per_topic"), r.instant(at), max_rows=max_rows)
        summary = reconcile(warehouse, request)
        assert summary.status == 0, summary.to_json()
        ways += summary.extra["ways"].values()
    found = {name: warehouse.rows(name) for name in TABLES}
    return {name: Counter(map(_shown, rows)) for name, rows in found.items()}, ways


def _shown(row: dict[str, Any]) -> str:
    cells = {k: sorted(v.items()) if isinstance(v, dict) else v for k, v in row.items()}
    return str(cells)


def test_they_decide_and_write_what_the_columns_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = played(KernelWarehouse(spark, str(tmp_path / "here")))
    monkeypatch.setattr(reading, "FEW", BY_SPARK)
    found, ways = played(KernelWarehouse(spark, str(tmp_path / "workers")))
    assert [each.split(":")[0] for each in ways] == ["by workers", "by workers"], ways
    assert found == here
    assert any("CHECK_LIMIT" in row for row in found["decisions"]), "questions go to the same messages both ways"
    committed = found["topics/T1"].total() + found["topics/T2"].total()
    assert committed > 20
    assert found["rejected"].total() > 5


@pytest.mark.slow
def test_spark_decides_and_writes_what_the_columns_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no worker takes part; histories show the same in the plain suite (test_few_rows)."""
    here, _ = played(KernelWarehouse(spark, str(tmp_path / "here")))
    monkeypatch.setattr(reading, "FEW", BY_SPARK)
    monkeypatch.setattr(arrivals, "taken_by_workers", lambda *_: None)
    monkeypatch.setattr(staging, "written_by_workers", lambda *_: None)
    by_spark, ways = played(KernelWarehouse(spark, str(tmp_path / "spark")))
    assert not any(each.startswith("by workers") for each in ways)
    assert by_spark == here


# ---- what bears on a message besides its one op ----


def disordered(chance: random.Random) -> list[tuple[list[m.Half], list[m.Op]]]:
    """Three landings: ops before their half messages, half messages late or twice, several ops, ops again."""
    halves = [drawn_half(chance, queue, offset) for queue in QUEUES for offset in range(40)]
    ops = [op for place, each in enumerate(halves) if chance.random() < 0.8 for op in answer(chance, each, place)]
    for each in chance.sample(halves, 8):
        ops += op_rows(each.key[:2], 500 + each.offset, str(each.offset), [chance.choice(["COMMIT", "ROLLBACK"])], NOW)
    landed: list[tuple[list[m.Half], list[m.Op]]] = [([], []), ([], []), ([], [])]
    odd = chance.choice([0.0, 0.02])
    for each in halves:
        due = min(each.offset // 14, 2)
        landed[chance.choice([0, 1, 2]) if chance.random() < 0.03 else due][0].append(each)
        if chance.random() < odd:
            landed[chance.choice([0, 1, 2])][0].append(each)
    for op in ops:
        due = min((op.half_offset or 0) // 14, 2)
        landed[chance.choice([0, 1, 2]) if chance.random() < 0.1 else due][1].append(op)
        if chance.random() < odd:
            landed[chance.choice([0, 1, 2])][1].append(op)
    return landed


def lived(warehouse: Warehouse, landings: list[tuple[list[m.Half], list[m.Op]]]) -> tuple[dict[str, Counter[str]], int]:
    """All rows of the tables, and how many runs workers had a part in."""
    runs = 0
    for number, (halves, ops) in enumerate(landings):
        at = NOW + number * 30_000
        for part in (slice(0, None, 2), slice(1, None, 2)):
            r.land(warehouse, halves[part], ops[part], at, dict.fromkeys(QUEUES, at))
        summary = reconcile(warehouse, Request(r.settings(RULES, "per_topic"), r.instant(at)))
        assert summary.status == 0, summary.to_json()
        runs += sum(way.startswith("by workers") for way in summary.extra["ways"].values())
    found = {name: warehouse.rows(name) for name in TABLES}
    return {name: Counter(map(_shown, rows)) for name, rows in found.items()}, runs


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(0, 1), (2, 3, 4, 5)])
def test_disorder_ends_the_same(
    numbers: tuple[int, ...], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    had_a_part = 0
    for number in numbers:
        landings = disordered(random.Random(SEED + number))
        here, none = lived(KernelWarehouse(spark, str(tmp_path / f"here{number}")), landings)
        assert none == 0
        with monkeypatch.context() as patched:
            patched.setattr(by_workers, "are_few", lambda _: False)
            found, some = lived(KernelWarehouse(spark, str(tmp_path / f"workers{number}")), landings)
        assert found == here, f"history {number}"
        had_a_part += some
    assert had_a_part >= len(numbers)


@pytest.mark.slow
def test_slices_by_workers(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (halves, ops), (later_halves, later_ops) = landings()
    ends = []
    for name, max_rows in [("whole", None), ("sliced", 100)]:
        warehouse = KernelWarehouse(spark, str(tmp_path / name))
        r.land(warehouse, [*halves, *later_halves], [*ops, *later_ops], NOW, dict.fromkeys(QUEUES, NOW))
        monkeypatch.setattr(reading, "FEW", BY_SPARK)
        summary = reconcile(warehouse, Request(r.settings(RULES), r.instant(NOW), max_rows=max_rows))
        assert all(each.startswith("by workers: ") for each in summary.extra["ways"].values())
        ends.append(Counter((d.key, d.body) for d in r.delivered(warehouse).elements()))
        monkeypatch.undo()
    assert ends[0] == ends[1]
    assert ends[0].total() > 20


@pytest.mark.thorough
def test_marks_that_only_properties_carry(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own pipeline may fill the properties alone; then the columns' rules look there. In an odd folder."""
    warehouse = KernelWarehouse(spark, str(tmp_path / "a b [c] {d,e} %20 é"))
    given = [half_at(("a", 0), n, NOW - 10_000) for n in range(4)]
    r.land(warehouse, given[:1], [], NOW - 1, {("a", 0): NOW})
    cells = [r.half_cells(each, NOW) for each in given[1:]]
    marks = [{"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"}, {"TRANSACTION_CHECK_TIMES": "7"}, {}]
    for row, mark in zip(cells, marks, strict=True):
        row["properties"] = {**(row["properties"] or {}), **mark}
    r.append(warehouse, "half_messages", cells)
    ops = [op for n in range(4) for op in op_rows(("a", 0), n, str(n), ["COMMIT"], NOW - 500)]
    r.land(warehouse, [], ops, NOW, {("a", 0): NOW})
    monkeypatch.setattr(reading, "FEW", BY_SPARK)
    reconcile(warehouse, Request(r.settings(RULES), r.instant(NOW)))
    rows = {row["queue_offset"]: row for row in warehouse.rows("decisions")}
    assert {row["decision"] for row in rows.values()} == {"COMMIT"}
    assert warehouse.read("real_topics").count() == 4
    assert (rows[1]["check_immunity"], rows[2]["check_times"], rows[3]["check_times"]) == ("3600", 7, 0)


@pytest.mark.slow
def test_bodies_that_swell_beyond_what_a_column_holds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over 2 GiB; a producer needs 130 KB for each."""
    warehouse, number, size = KernelWarehouse(spark, str(tmp_path)), 17, 127 << 20
    halves = [half_at(("a", 0), n, NOW - 10_000, real_topic="T1" if n else "T2") for n in range(number + 1)]
    swelling = {"sys_flag": 5, "body": zlib.compress(bytes(size))}
    r.land(warehouse, halves[:1], [], NOW, {("a", 0): NOW})
    r.append(warehouse, "half_messages", [r.half_cells(each, NOW) | swelling for each in halves[1:]])
    ops = [op for each in halves for op in op_rows(("a", 0), each.offset, str(each.offset), ["COMMIT"], NOW - 500)]
    r.land(warehouse, [], ops, NOW, {("a", 0): NOW})
    monkeypatch.setattr(reading, "FEW", BY_SPARK)
    monkeypatch.setattr(staging, "FEW", BY_SPARK)
    assert reconcile(warehouse, Request(r.settings(RULES, "per_topic"), r.instant(NOW))).status == 0
    sizes = [
        len(body.as_buffer())
        for file in warehouse.listed("topics/T1")
        for batch in pq.ParquetFile(file.path.removeprefix("file:")).iter_batches(1, columns=["body"])
        for body in batch["body"]
    ]
    assert sizes == [size] * number
    assert warehouse.read("topics/T2").count() == 1


# ---- parts ----


def test_rows_are_found_by_key_also_where_numbers_are_no_doubles() -> None:
    offsets = [FAR + 1, 3, None, FAR, 3]
    known = pa.table(
        {"broker_name": ["a", "a", "a", "a", "b"], "queue_id": pa.array([0] * 5, pa.int32()), "o": offsets}
    )
    found = ByKey(known, "o")
    asked = pa.RecordBatch.from_pydict(
        {
            "broker_name": ["b", None, "a", "a", "c", "a"],
            "queue_id": pa.array([0, 0, 0, 0, 0, None], pa.int32()),
            "queue_offset": [3, 3, FAR + 1, FAR + 2, 3, 3],
        }
    )
    hits, places = found.find(asked)
    assert (hits.tolist(), places.tolist()) == ([0, 2], [4, 0])


@pytest.mark.parametrize("cut", [slice(None), slice(1, 4), slice(3, 3)])
def test_maps_without_keys(cut: slice) -> None:
    maps: list[dict[str, str | None] | None] = [{"a": "1", "b": "2"}, None, {}, {"b": "3", "c": None}, {"a": "4"}]
    given = pa.array([None if each is None else list(each.items()) for each in maps], pa.map_(pa.string(), pa.string()))
    part = given[cut.start or 0 : len(maps) if cut.stop is None else cut.stop]
    wanted = [None if each is None else [(k, v) for k, v in each.items() if k != "b"] for each in maps[cut]]
    assert without(part, pa.array(["b"])).to_pylist() == wanted
    of_name = {name: [n for n, each in enumerate(maps[cut]) if each and name in each] for name in ("c", "b", "z")}
    assert {name: rows.tolist() for name, rows in owners(part, ["c", "b", "z"]).items()} == of_name


def shared(path: str, tasks: int) -> list[int]:
    """The numbers in a file, read in so many parts."""
    parts, schema = splits_of([Listed(path, Path(path).stat().st_size, {})], tasks), pa.schema([("n", pa.int64())])
    splits = sorted(split for part in parts for split in part)
    return [n for each in splits for b in ParquetPart(LocalDisk(), each, schema).batches() for n in b["n"].to_pylist()]


@pytest.mark.parametrize("sizes", [[0], [1], [1, 0, 500, 0, 3, 1, 200, 1], [0, 0, 7], [7, 0, 0], [1] * 40], ids=str)
def test_splits_share_groups_of_any_size_once(sizes: list[int], tmp_path: Path) -> None:
    path, n = str(tmp_path / "rows.parquet"), 0
    with pq.ParquetWriter(path, pa.schema([("n", pa.int64())])) as file:
        for size in sizes:
            file.write_batch(pa.record_batch({"n": np.arange(n, n + size)}))
            n += size
    assert pq.ParquetFile(path).metadata.num_row_groups == len(sizes)
    for tasks in (1, 2, 3, 7, 40):
        assert shared(path, tasks) == list(range(n))


def test_splits_share_every_row_group_once(tmp_path: Path) -> None:
    path, schema = str(tmp_path / "rows.parquet"), pa.schema([("n", pa.int64())])
    pq.write_table(pa.table({"n": np.arange(1_000)}), path, row_group_size=70)
    for tasks in (1, 2, 3, 7, 40):
        parts = splits_of([Listed(path, Path(path).stat().st_size, {})], tasks)
        read = [
            n
            for part in parts
            for split in part
            for b in ParquetPart(LocalDisk(), split, schema).batches()
            for n in b["n"]
        ]
        assert [n.as_py() for n in read] == list(range(1_000))
    (whole,) = splits_of([Listed(path, 10**9, {})], 1)[0]
    assert span(LocalDisk(), [whole], "n") == (0, 999)
    near = [
        b["n"].to_pylist() for b in ParquetPart(LocalDisk(), Split(*whole), schema).between("n", 100, 120).batches()
    ]
    assert near == [list(range(70, 140))]


@pytest.mark.parametrize("tasks", [1, 2, 4, 9])
def test_parts_are_at_most_so_many_and_about_the_same(tasks: int) -> None:
    splits = [Split(f"{n:02}", 0, 100 + n) for n in range(40)]
    parts = parts_of(splits, tasks)
    assert [split for part in sorted(parts) for split in part] == sorted(splits)
    assert all(part == sorted(part, key=splits.index) for part in parts)
    assert len(parts) == tasks
    sizes = [sum(split.end for split in part) for part in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) < 300


def test_a_writer_that_has_buffered_much_begins_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfop.warehouse.splits._BUFFERED", 1_000)
    out = PartWriter(LocalDisk(), {"x": str(tmp_path)}, {"x": ["n"]})
    for first in range(0, 500, 100):
        out.write("x", pa.RecordBatch.from_pydict({"n": np.arange(first, first + 100)}))
    files = out.close()["x"]
    assert sum(json.loads(file.stats or "")["numRecords"] for file in files) == 500
    assert len(files) == 3
