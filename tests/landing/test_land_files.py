"""land files: what lands, what is refused, and what is known afterwards."""

from __future__ import annotations

import gzip
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality
from halfop.frame.errors import InputRefused
from halfop.frame.summary import Summary
from halfop.frame.trouble import failure_of
from halfop.landing import progress as progress_of
from halfop.landing.files import landed_files
from halfop.landing.files.land import FilesRequest, land_files
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.rows import Rows
from halfop.warehouse.schema import completed
from halfop.warehouse.tables import NO_TABLE
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from support import rows as r
from support.json_lines import ABSENT, T0, half, lines, op

LOG = logging.getLogger("halfop.test")
LONG_MAX = 2**63 - 1
TABLES = ("half_messages", "op_messages", "landing_progress", "rejected", "landed_files")


def land(warehouse: KernelWarehouse, halves: Sequence[str] = (), ops: Sequence[str] = (), **more: Any) -> Summary:
    return land_files(warehouse, FilesRequest(halves, ops, **more), LOG)


def refusal(
    warehouse: KernelWarehouse, halves: Sequence[str] = (), ops: Sequence[str] = (), **more: Any
) -> InputRefused:
    """The refusal of a landing, which has written nothing."""
    before = [warehouse.version(name) for name in TABLES]
    with pytest.raises(InputRefused) as refused:
        land(warehouse, halves, ops, **more)
    assert [warehouse.version(name) for name in TABLES] == before
    assert refused.value.exit_status == 3
    return refused.value


def known(warehouse: KernelWarehouse) -> dict[tuple[str, str, int], int | None]:
    return {(row["broker_name"], row["topic"], row["queue_id"]): row["known"] for row in progress(warehouse).collect()}


def progress(warehouse: KernelWarehouse) -> DataFrame:
    """One row a queue of landing_progress, as readers take it."""
    struct = warehouse.schema("landing_progress")
    ordered = [[row[name] for name in struct.names] for row in progress_rows(warehouse)]
    return warehouse.spark.createDataFrame(ordered, struct).withColumn("known", F.unix_millis("known_until"))


# what lands


def test_a_half_row_lands_as_given_and_completed_from_its_properties(
    warehouse: KernelWarehouse, tmp_path: Path
) -> None:
    file = lines(
        tmp_path / "h.jsonl",
        half(
            1,
            properties={
                "UNIQ_KEY": "k",
                "PGROUP": "g",
                "REAL_TOPIC": "T",
                "REAL_QID": "+3",
                "TAGS": "x",
                "KEYS": "y z",
            },
        ),
        half(2, real_topic="given", real_queue_id=7, uniq_key=None, tags="t", flag=-1, properties={"REAL_QID": "9"}),
        half(3, real_queue_id=None, properties={"REAL_QID": "2147483648"}, body=""),
        half(4, properties={}, queue_id="2"),
    )
    land(warehouse, [file])
    columns = ["queue_offset", "queue_id", "uniq_key", "producer_group", "real_topic", "real_queue_id"]
    columns += ["tags", "keys", "flag", "body"]
    expected = [
        (1, 0, "k", "g", "T", 3, "x", "y z", None, b"body"),
        (2, 0, None, None, "given", 7, "t", None, -1, b"body"),
        (3, 0, None, None, None, None, None, None, None, b""),
        (4, 2, None, None, None, None, None, None, None, b"body"),
    ]
    found = warehouse.read("half_messages").select(*columns)
    wanted = warehouse.spark.createDataFrame(expected, found.schema)
    assert_df_equality(found, wanted, ignore_row_order=True)


def test_offsets_are_exact_and_times_have_many_forms(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    forms = {
        T0: T0,
        str(T0 + 1): T0 + 1,
        20250615: 20250615,
        "2025-06-15T15:06:40.002Z": T0 + 2,
        "2025-06-15 15:06:40.003": T0 + 3,
        "2025-06-15T17:06:40,004+02:00": T0 + 4,
        "2025-06-15T17:06:40.005+0200": T0 + 5,
        "2025-06-15T13:06:40.006-02": T0 + 6,
        "2025-06-15T15:06Z": T0 - 40_000,
    }
    rows = [half(LONG_MAX - at, commit_log_offset=at, born_timestamp=form) for at, form in enumerate(forms)]
    land(warehouse, [lines(tmp_path / "h.jsonl", *rows)])
    found = warehouse.read("half_messages").select("queue_offset", F.unix_millis("born_timestamp").alias("born"))
    expected = [(LONG_MAX - at, millis) for at, millis in enumerate(forms.values())]
    wanted = warehouse.spark.createDataFrame(expected, "queue_offset BIGINT, born BIGINT")
    assert_df_equality(found, wanted, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True)
    (row,) = [row for row in progress_rows(warehouse) if row["topic"] == HALF_TOPIC]
    assert (row["first_offset"], row["next_offset"]) == (LONG_MAX - len(forms) + 1, LONG_MAX)


def test_ops_land_as_items_with_their_header(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    header = {"from_check": True, "producer_group": "g", "tran_state_table_offset": 1, "commit_log_offset": 512}
    file = lines(
        tmp_path / "o.jsonl", op(1, "1,2,", outcomes={"2": "ROLLBACK"}), op(2, "7", item=3, uniq_key="k", **header)
    )
    land(warehouse, ops=[file])
    columns = ["queue_offset", "item", "body", "half_offset", "outcome", "from_check"]
    columns += ["tran_state_table_offset", "uniq_key", "source"]
    found = warehouse.read("op_messages").select(*columns)
    expected = [
        (1, 0, "1", 1, "COMMIT", None, None, None, "FILES"),
        (1, 1, "2", 2, "ROLLBACK", None, None, None, "FILES"),
        (2, 3, "7", 7, "COMMIT", True, 1, "k", "FILES"),
    ]
    assert_df_equality(found, warehouse.spark.createDataFrame(expected, found.schema), ignore_row_order=True)


def test_directories_globs_gzip_and_odd_names(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    lines(tmp_path / "in" / "day 1" / "a[1]%20.jsonl", half(1), "", "  ")
    lines(tmp_path / "in" / "_SUCCESS")
    lines(tmp_path / "in" / ".hidden.jsonl", "no JSON")
    lines(tmp_path / "in" / "_temporary" / "b.jsonl", "no JSON")
    (tmp_path / "in" / "c.ndjson.gz").write_bytes(gzip.compress(json.dumps(half(2)).encode()))
    lines(tmp_path / "d1.json", half(3))
    lines(tmp_path / "d2.json", half(4))
    summary = land(warehouse, [str(tmp_path / "in"), str(tmp_path / "d?.json"), str(tmp_path / "d1.json")])
    assert summary.rows_written == {"half_messages": 4}
    assert summary.extra["files_landed"] == 4
    rows = warehouse.read("landed_files").select("rows").collect()
    assert [row.rows for row in rows] == [1, 1, 1, 1]


def test_a_glob_skips_what_a_folder_skips(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    for name in ("_SUCCESS", ".hidden.jsonl", "_temporary/0/b.jsonl"):
        lines(tmp_path / "in" / name, "no JSON")
    lines(tmp_path / "in" / "h.jsonl", half(1))
    lines(tmp_path / "in" / "day" / "h.jsonl", half(2))
    assert land(warehouse, [str(tmp_path / "in" / "*")]).rows_written == {"half_messages": 2}
    assert "no such file" in refusal(warehouse, [str(tmp_path / "in" / "*" / "*" / "*")]).problem


def test_a_name_with_a_colon_lands(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    lines(tmp_path / "in" / "half-2025-06-15T15:06:40Z.jsonl", half(1))
    assert land(warehouse, [str(tmp_path / "in")]).rows_written == {"half_messages": 1}


@pytest.mark.parametrize("name", [b"f\xfcr.jsonl", b"gone.jsonl"])
def test_a_file_that_is_not_listed_is_refused(warehouse: KernelWarehouse, tmp_path: Path, name: bytes) -> None:
    lines(tmp_path / "in" / "a.jsonl", half(1))
    os.symlink(b"/nowhere", os.fsencode(tmp_path / "in") + b"/" + name)
    refused = refusal(warehouse, [str(tmp_path / "in")])
    assert refused.path == str(tmp_path / "in" / name.decode(errors="backslashreplace"))
    assert refused.problem == "cannot be read: its name is no UTF-8, or it links to nothing"


def test_a_path_that_hadoop_does_not_take_is_refused(warehouse: KernelWarehouse) -> None:
    refused = refusal(warehouse, ["half-2025-06-15T15:06:40Z.jsonl"])
    assert "rename it if its name has a `:`" in refused.hint


def parquet(path: Path, columns: Mapping[str, pa.Array]) -> str:
    pq.write_table(pa.table(dict(columns)), path)
    return str(path)


def half_columns(**changed: Any) -> dict[str, pa.Array]:
    columns = {
        "broker_name": pa.array(["b", "b"]),
        "queue_id": pa.array([0, 0], pa.int64()),
        "queue_offset": pa.array([1, LONG_MAX], pa.int64()),
        "commit_log_offset": pa.array([512, 1024], pa.int32()),
        "born_timestamp": pa.array([T0, T0], pa.int64()),
        "store_timestamp": pa.array([T0 * 1000, T0 * 1000 + 1], pa.timestamp("us")),
        "body": pa.array([b"\x00", b""], pa.binary()),
        "properties": pa.array([[("UNIQ_KEY", "k")], []], pa.map_(pa.string(), pa.string())),
    }
    return {name: value for name, value in (columns | changed).items() if value is not None}


def test_parquet_lands_like_json(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    first = parquet(tmp_path / "1.parquet", half_columns())
    zoned = pa.array([T0, T0], pa.timestamp("ms", "UTC"))
    second = parquet(tmp_path / "2.parquet", half_columns(store_timestamp=zoned, queue_id=pa.array([4, 4], pa.int16())))
    third = lines(tmp_path / "3.jsonl", half(9, queue_id=5, store_timestamp=T0))
    land(warehouse, [first, second, third])
    found = warehouse.read("half_messages").select(
        "queue_id", "queue_offset", F.unix_micros("store_timestamp").alias("store"), "uniq_key", "body"
    )
    expected = [
        (0, 1, T0 * 1000, "k", b"\x00"),
        (0, LONG_MAX, T0 * 1000 + 1, None, b""),
        (4, 1, T0 * 1000, "k", b"\x00"),
        (4, LONG_MAX, T0 * 1000, None, b""),
        (5, 9, T0 * 1000, "k9", b"body"),
    ]
    wanted = warehouse.spark.createDataFrame(expected, found.schema)
    assert_df_equality(found, wanted, ignore_row_order=True, ignore_nullable=True)


# what is refused

# the line, its reason, and what the message must say
BAD_HALVES: list[tuple[Mapping[str, Any] | str, str, str]] = [
    ('{"broker_name": "b", "queue_id": 0, "queue_off', "UNREADABLE_LINE", 'found {"broker_name": "b"'),
    (json.dumps(half()) + json.dumps(half(2)), "UNREADABLE_LINE", "one whole JSON object"),
    (json.dumps(half()) + "]", "UNREADABLE_LINE", "one whole JSON object"),
    (json.dumps(half()) + ",", "UNREADABLE_LINE", "one whole JSON object"),
    ('{"queue_id": 0, "queue_id": 1}', "UNREADABLE_LINE", "each name once"),
    ('{"properties": {"A": "1", "A": "2"}}', "UNREADABLE_LINE", "each name once"),
    ("[1]", "UNREADABLE_LINE", "found [1]"),
    ("null", "UNREADABLE_LINE", "found null"),
    ("a,b,c", "UNREADABLE_LINE", "found a,b,c"),
    ("{'queue_id': 0}", "UNREADABLE_LINE", "found {'queue_id': 0}"),
    (half(queue_offset=ABSENT), "MISSING_COLUMN", "queue_offset is missing"),
    (half(body=None), "NULL_VALUE", "body is null"),
    (half(properties=None), "NULL_VALUE", "properties is null"),
    (half(broker_name=5), "WRONG_TYPE", "broker_name: found 5, expected a string"),
    (half(queue_id="x"), "WRONG_TYPE", 'queue_id: found "x", expected a whole number'),
    (half(queue_id=2**31), "OUT_OF_RANGE", "queue_id: found 2147483648"),
    (half(queue_offset=-1), "OUT_OF_RANGE", "queue_offset: found -1, expected a whole number from 0 to"),
    (half(queue_offset=1.0), "WRONG_TYPE", "queue_offset: found 1"),
    (half(queue_offset=" 1"), "WRONG_TYPE", 'queue_offset: found " 1"'),
    (half(queue_offset=str(2**63)), "OUT_OF_RANGE", "found"),
    (half(queue_offset=True), "WRONG_TYPE", "queue_offset: found true"),
    (half(queue_offset=[1]), "WRONG_TYPE", "queue_offset: found [1]"),
    (half(body="a"), "BAD_BASE64", 'body: found "a", expected base64 text'),
    (half(body="aGFsZg"), "BAD_BASE64", "base64"),
    (half(body="aGFs Zg="), "BAD_BASE64", "base64"),
    (half(body=1234), "WRONG_TYPE", "body: found 1234"),
    (half(born_timestamp="yesterday"), "BAD_TIME", "epoch milliseconds or ISO-8601"),
    (half(born_timestamp="2025-02-30T00:00:00Z"), "BAD_TIME", "ISO-8601"),
    (half(born_timestamp="2025-06-15"), "BAD_TIME", "ISO-8601"),
    (half(born_timestamp="20250615"), "BAD_TIME", 'found "20250615", expected epoch milliseconds'),
    (half(born_timestamp="20250615150640"), "BAD_TIME", "ISO-8601"),
    (half(born_timestamp=str(T0 // 1000)), "BAD_TIME", "ISO-8601"),
    (half(store_timestamp=LONG_MAX), "BAD_TIME", "store_timestamp"),
    (half(store_timestamp=1.5), "WRONG_TYPE", "store_timestamp: found 1.5"),
    (half(properties=[]), "WRONG_TYPE", "properties: found []"),
    (half(properties={"A": 1}), "WRONG_TYPE", 'properties: found {"A":1}, expected an object whose values are strings'),
    (half(properties={"A": None}), "WRONG_TYPE", "strings"),
    (half(flag="1.0"), "WRONG_TYPE", "flag"),
    (half(broker_name={"\u009b": "\u001b[2J" * 30}), "WRONG_TYPE", 'found {"?":"\\u001B[2J'),
]


def test_skip_bad_rejects_each_bad_line_and_lands_the_rest(
    warehouse: KernelWarehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = lines(tmp_path / "h.jsonl", "", half(100), *(line for line, _, _ in BAD_HALVES), half(101))
    with monkeypatch.context() as dying:
        dying.setattr(landed_files, "record", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            land(warehouse, [file], skip_bad=True)
    summary = land(warehouse, [file], skip_bad=True)
    assert summary.rows_written == {"half_messages": 2, "rejected": len(BAD_HALVES)}
    rejected = warehouse.read("rejected")
    assert rejected.count() == len(BAD_HALVES), "told once, though its first landing was killed"
    found = {int(row.detail.removeprefix(f"{file}:").split(":")[0]): row for row in rejected.collect()}
    for line, (_, reason, says) in enumerate(BAD_HALVES, start=3):
        assert (line, found[line].reason, says in found[line].detail) == (line, reason, True), found[line]
    assert {row.kind for row in found.values()} == {"INPUT"}
    assert found[13].broker_name == "b"
    assert found[14].queue_offset == 1
    assert all(row.run_id is None and len(row.detail) < 400 and row.detail.isprintable() for row in found.values())
    files = warehouse.read("landed_files").select("rows", "bad_rows").collect()
    assert [tuple(row) for row in files] == [(2, len(BAD_HALVES))]


def test_an_export_that_is_overwritten_daily_with_a_fault_on_one_line_loses_no_day(
    warehouse: KernelWarehouse, tmp_path: Path
) -> None:
    """The fault's text is the same on both days; the very same file again adds nothing, also after a kill."""
    for day in (1, 2):
        file = lines(tmp_path / "export.jsonl", "no JSON", half(day))
        for _ in range(2):
            land(warehouse, [file], skip_bad=True)
        rejected = warehouse.read("rejected").collect()
        assert len(rejected) == day
    known = {row["sha256"] for row in warehouse.read("landed_files").collect()}
    assert {row["sha256"] for row in rejected} == known
    assert len({row["detail"] for row in rejected}) == 1


def test_bad_rows_are_told_by_reason_with_an_example(
    warehouse: KernelWarehouse, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = lines(tmp_path / "h.jsonl", half(1), *["no JSON"] * 7, half(body="?"), half(body="!"))
    with caplog.at_level(logging.WARNING):
        summary = land(warehouse, [file], skip_bad=True)
    assert summary.extra["rejected"] == {"INPUT.UNREADABLE_LINE": 7, "INPUT.BAD_BASE64": 2}
    unreadable, base64 = caplog.messages
    assert unreadable.startswith(f"this landing rejected 7 rows as INPUT.UNREADABLE_LINE; one of them: {file}:2: ")
    assert "found no JSON, expected one whole JSON object" in unreadable
    assert f"2 rows as INPUT.BAD_BASE64; one of them: {file}:9: BAD_BASE64: body: found" in base64


def test_bad_rows_refuse_the_whole_landing(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    bad = lines(tmp_path / "h.jsonl", half(1), "", half(body="?"), *[half(queue_offset=-n) for n in range(1, 9)])
    refused = refusal(warehouse, [bad], [lines(tmp_path / "o.jsonl", op())])
    assert (refused.path, refused.line) == (bad, 3)
    assert refused.problem == 'BAD_BASE64: body: found "?", expected base64 text'
    assert refused.hint.count(f"\n{bad}:") == 3
    assert "9 bad of 10 rows; nothing has landed, --skip-bad lands the others" in refused.hint
    known = failure_of(refused, verbose=False).fields()
    assert (known["rows_read"], known["rows_written"]) == ({"half_messages": 10, "op_messages": 1}, {})
    swapped = refusal(warehouse, [lines(tmp_path / "ops.jsonl", op())], [])
    assert "1 bad of 1 rows; nothing has landed, these look like op rows: give them by --op" in swapped.hint
    no_rows = refusal(warehouse, [lines(tmp_path / "x.jsonl", "[")], [])
    assert "no row has the form of half messages (docs/landing.md)" in no_rows.hint
    assert "--skip-bad passes them over" in no_rows.hint
    assert (known["bad_rows"], known["files_landed"], known["status"]) == (9, 0, 3)


def test_a_bad_line_far_into_a_file_of_several_blocks_is_named_by_its_number(
    warehouse: KernelWarehouse, tmp_path: Path
) -> None:
    rows = [half(n) for n in range(2000)]
    rows[1776]["queue_id"] = "x"
    bad = lines(tmp_path / "h.jsonl", *rows)
    warehouse.spark.conf.set("spark.sql.files.maxPartitionBytes", "50000")
    try:
        assert refusal(warehouse, [lines(tmp_path / "a.jsonl", half()), bad]).line == 1777
    finally:
        warehouse.spark.conf.unset("spark.sql.files.maxPartitionBytes")


def test_bad_op_rows_are_refused(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    bad = [op(outcomes={"1": 2}), op(item=-1), op(from_check="yes"), op(flag=7) | {"body": 7}]
    refused = refusal(warehouse, ops=[lines(tmp_path / "o.jsonl", *bad)])
    text = f"{refused}"
    assert all(
        name in text for name in ("outcomes: found", "item: found -1", 'from_check: found "yes"', "body: found 7")
    )


BAD_SCHEMAS: list[tuple[dict[str, Any], str]] = [
    ({"queue_offset": None}, "no column queue_offset"),
    ({"queue_offset": None, "queue_ofset": pa.array([1, 2])}, "no column queue_offset (is it queue_ofset?)"),
    ({"queue_offset": pa.array([1.0, 2.0])}, "column queue_offset is DOUBLE, expected TINYINT or"),
    ({"body": pa.array(["a", "b"])}, "column body is STRING, expected BINARY"),
    ({"properties": pa.array(["{}", "{}"])}, "column properties is STRING, expected MAP<STRING,STRING>"),
]


@pytest.mark.parametrize(("changed", "says"), BAD_SCHEMAS)
def test_a_parquet_file_of_wrong_columns_is_refused_even_with_skip_bad(
    warehouse: KernelWarehouse, tmp_path: Path, changed: dict[str, Any], says: str
) -> None:
    file = parquet(tmp_path / "h.parquet", half_columns(**changed))
    refused = refusal(warehouse, [file], skip_bad=True)
    assert refused.path == file
    assert says in refused.problem


def test_a_column_that_is_there_twice_is_refused(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    columns = [*half_columns().items(), ("queue_id", pa.array([1, 1]))]
    pq.write_table(pa.table([each for _, each in columns], [name for name, _ in columns]), tmp_path / "h.parquet")
    assert refusal(warehouse, [str(tmp_path / "h.parquet")]).problem == "column queue_id is there twice"


BAD_PARQUET: list[tuple[dict[str, Any], str]] = [
    ({"body": pa.array([b"", None], pa.binary())}, "row_index 1: NULL_VALUE: body is null"),
    ({"queue_offset": pa.array([1, -1])}, "row_index 1: OUT_OF_RANGE: queue_offset"),
    ({"queue_id": pa.array([1, 2**31])}, "row_index 1: OUT_OF_RANGE: queue_id"),
    ({"born_timestamp": pa.array([1, LONG_MAX])}, "row_index 1: BAD_TIME: born_timestamp"),
    (
        {"properties": pa.array([[], [("A", None)]], pa.map_(pa.string(), pa.string()))},
        "row_index 1: WRONG_TYPE: properties",
    ),
]


@pytest.mark.parametrize(("changed", "says"), BAD_PARQUET)
def test_bad_parquet_rows_are_refused(
    warehouse: KernelWarehouse, tmp_path: Path, changed: dict[str, Any], says: str
) -> None:
    file = parquet(tmp_path / "h.parquet", half_columns(**changed))
    refused = refusal(warehouse, [file])
    assert (refused.path, refused.line) == (file, None)
    assert refused.problem.startswith(says)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("h.parquet", b"PAR1 is not enough PAR1"),
        ("h.parquet", b""),
        ("h.jsonl.gz", b"no gzip"),
        ("h.jsonl.gz", gzip.compress(json.dumps([half(n) for n in range(999)]).encode())[:-40]),
        ("h.csv", b"a,b"),
    ],
)
def test_unreadable_files_are_refused_by_name(
    warehouse: KernelWarehouse, tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert refusal(warehouse, [str(path)], skip_bad=True).path == str(path)


def test_damage_inside_a_parquet_file_is_refused_by_name(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    path = Path(parquet(tmp_path / "h.parquet", half_columns()))
    damaged = bytearray(path.read_bytes())
    damaged[4:400] = b"\xff" * 396
    path.write_bytes(damaged)
    assert refusal(warehouse, [str(path)], skip_bad=True).path == str(path)


def test_paths_that_match_nothing_are_refused(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in ("none.jsonl", "none*.jsonl", "empty"):
        assert refusal(warehouse, [str(tmp_path / path)]).path == str(tmp_path / path)
    assert refusal(warehouse, ["nosuch://host/x.jsonl"]).path == "nosuch://host/x.jsonl"


def test_a_delta_table_and_a_file_of_two_kinds_are_refused(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    file = lines(tmp_path / "h.jsonl", half())
    land(warehouse, [file])
    for pattern in ("half_messages", "half_*"):
        assert "Delta table" in refusal(warehouse, [warehouse.path(pattern)]).problem
    assert "Delta table" in refusal(warehouse, [warehouse.path("half_messages/*.parquet")]).problem
    assert "by --half and by --op" in refusal(warehouse, [file], [file]).problem


def test_unknown_columns_and_times_in_seconds_are_a_warning(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    row = op(tags="d", landed_at=1, colour=2, store_timestamp=1_764_355_200)
    summary = land(warehouse, ops=[lines(tmp_path / "o.jsonl", row)])
    assert summary.notes == [
        "column colour of op rows is unknown and not landed",
        "column tags of op rows is unknown and not landed; did you mean tag?",
        "times of op rows lie in January 1970: milliseconds are expected, are these seconds?",
    ]


def test_a_queue_of_a_rebuilt_broker_is_refused(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    warehouse.make("rejected")
    columns = "kind STRING, reason STRING, broker_name STRING, queue_id INT, queue_offset BIGINT, run_id BIGINT"
    rows = warehouse.frame([("HALF", "KEY_REUSED", "b", 0, 1, 1)], columns)
    warehouse.commit("rejected", completed("rejected", rows))
    refused = refusal(warehouse, [lines(tmp_path / "h.jsonl", half())])
    assert refused.path == "b/0"
    assert "--accept-rewind" in refused.hint
    land(warehouse, [lines(tmp_path / "h2.jsonl", half(broker_name="b2"), half(queue_id=1))])


# once, and what is known afterwards


def test_a_file_lands_once_and_again_when_it_has_changed(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    file = lines(tmp_path / "h.jsonl", half(1))
    land(warehouse, [file])
    before = {name: warehouse.version(name) for name in TABLES}
    again = land(warehouse, [file])
    assert (again.extra["files_landed"], again.extra["files_skipped"]) == (0, 1)
    assert {name: warehouse.version(name) for name in TABLES} == before
    lines(tmp_path / "h.jsonl", half(2))
    assert land(warehouse, [file]).extra["files_landed"] == 1
    assert warehouse.read("half_messages").count() == 2


def test_known_until_is_the_newest_op_broker_by_broker(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    halves = lines(tmp_path / "h.jsonl", half(7), half(3), half(queue_id=1), half(broker_name="c"))
    ops = lines(tmp_path / "o.jsonl", op(5, store_timestamp=T0 + 9), op(4), op(broker_name="b", queue_id=2))
    land(warehouse, [halves], [ops])
    expected = [
        ("b", 0, 8, 3, 6, 4, T0 + 9),
        ("b", 1, 2, 1, None, None, T0 + 9),
        ("b", 2, None, None, 2, 1, T0 + 9),
        ("c", 0, 2, 1, None, None, None),
    ]
    assert_df_equality(
        queues(warehouse), warehouse.spark.createDataFrame(expected, QUEUES), ignore_nullable=True, ignore_metadata=True
    )


QUEUES = (
    "broker_name STRING, queue_id INT, half_next BIGINT, half_first BIGINT, "
    "op_next BIGINT, op_first BIGINT, known BIGINT"
)


def queues(warehouse: KernelWarehouse) -> DataFrame:
    """One row a queue, from its rows of both topics, which know the same."""
    rows = progress(warehouse)
    half_row, op_row = F.col("topic") == HALF_TOPIC, F.col("topic") == OP_TOPIC
    made: DataFrame = (
        rows.groupBy("broker_name", "queue_id", "known")
        .agg(
            F.max(F.when(half_row, F.col("next_offset"))).alias("half_next"),
            F.max(F.when(half_row, F.col("first_offset"))).alias("half_first"),
            F.max(F.when(op_row, F.col("next_offset"))).alias("op_next"),
            F.max(F.when(op_row, F.col("first_offset"))).alias("op_first"),
        )
        .select("broker_name", "queue_id", "half_next", "half_first", "op_next", "op_first", "known")
        .orderBy("broker_name", "queue_id")
    )
    return made


def test_progress_never_goes_back(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    land(warehouse, [lines(tmp_path / "h1.jsonl", half(5))], [lines(tmp_path / "o1.jsonl", op(5))])
    land(warehouse, [lines(tmp_path / "h2.jsonl", half(2))], [lines(tmp_path / "o2.jsonl", op(2, store_timestamp=T0))])
    land(warehouse, [lines(tmp_path / "h3.jsonl", half(3))])
    land(warehouse, [lines(tmp_path / "h4.jsonl", half(4))], known_until=r.instant(T0))
    expected = [("b", 0, 6, 2, 6, 2, T0 + 5)]
    assert_df_equality(
        queues(warehouse), warehouse.spark.createDataFrame(expected, QUEUES), ignore_nullable=True, ignore_metadata=True
    )


def test_known_until_given_holds_for_this_landings_queues(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    first = lines(tmp_path / "h1.jsonl", half(broker_name="a"))
    land(warehouse, [first])
    land(warehouse, [lines(tmp_path / "h2.jsonl", half(broker_name="b"))], known_until=r.instant(T0))
    assert known(warehouse) == {
        (broker, topic, 0): value for broker, value in (("a", None), ("b", T0)) for topic in (HALF_TOPIC, OP_TOPIC)
    }
    land(warehouse, [first], known_until=r.instant(T0 + 1))  # its rows have landed; the queues it has are these
    assert set(known(warehouse).items()) >= {(("a", OP_TOPIC, 0), T0 + 1), (("b", OP_TOPIC, 0), T0)}
    land(warehouse, [lines(tmp_path / "empty.jsonl")], known_until=r.instant(T0 + 2))
    assert set(known(warehouse).values()) == {T0 + 2}


def test_empty_files_move_no_queue_that_lands_from_elsewhere(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    """Ops of a broker up to that instant may not have landed: its messages would be asked about too early."""
    empty = lines(tmp_path / "empty.jsonl")
    for source in ("STORE", "BROKER", "GATEWAY"):
        topics = (HALF_TOPIC, OP_TOPIC, "Orders")
        rows = [progress_of.ProgressRow(source, topic, 0, 5, T0 * 1000, T0 * 1000, 0) for topic in topics]
        progress_of.add_missing(warehouse, rows, source)
    before = known(warehouse)
    summary = land(warehouse, [empty], known_until=r.instant(T0 + 9))
    assert known(warehouse) == before
    assert summary.notes == ["--known-until moves no queue: the files are empty, and none has landed from files"]
    land(warehouse, [lines(tmp_path / "h.jsonl", half())])
    land(warehouse, [lines(tmp_path / "also-empty.jsonl", "")], known_until=r.instant(T0 + 9))
    assert known(warehouse) == before | {("b", HALF_TOPIC, 0): T0 + 9, ("b", OP_TOPIC, 0): T0 + 9}


def test_empty_files_move_a_queue_of_ones_own_pipeline(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    """It may leave out the topic, and the source."""
    warehouse.commit("landing_progress", [{"broker_name": "own", "queue_id": 0, "next_offset": 5}])
    land(warehouse, [lines(tmp_path / "empty.jsonl")], known_until=r.instant(T0))
    assert known(warehouse)["own", OP_TOPIC, 0] == T0


def test_known_until_in_the_future_is_a_warning(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    summary = land(warehouse, [lines(tmp_path / "h.jsonl", half())], known_until=tomorrow)
    assert summary.notes == [f"known until {tomorrow.isoformat()}: that lies in the future"]
    assert summary.extra["known_until"] == {"queues": 1, "not_known": 0, "least": tomorrow, "greatest": tomorrow}


def test_each_landing_has_an_instant_of_its_own_above_all_before(
    warehouse: KernelWarehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: T0 * 1_000_000)
    for n in range(3):
        land(warehouse, [lines(tmp_path / f"h{n}.jsonl", half(n))])
    rows = warehouse.read("half_messages").orderBy("queue_offset").select(F.unix_micros("landed_at").alias("at"))
    assert [row.at - T0 * 1000 for row in rows.collect()] == [0, 1, 2]


def test_queues_are_there_before_their_rows_and_known_after_them(
    warehouse: KernelWarehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A landing that dies at any commit leaves a queue that knows of no op that is not there."""
    files = [lines(tmp_path / "h.jsonl", half())], [lines(tmp_path / "o.jsonl", op())]
    commit = KernelWarehouse.commit
    for table in ("half_messages", "op_messages"):

        def dies(self: KernelWarehouse, name: str, rows: Rows, last: str = table) -> None:
            commit(self, name, rows)
            if name == last:
                raise KeyboardInterrupt

        monkeypatch.setattr(KernelWarehouse, "commit", dies)
        with pytest.raises(KeyboardInterrupt):
            land(warehouse, *files)
        assert known(warehouse) == {("b", HALF_TOPIC, 0): None, ("b", OP_TOPIC, 0): None}
        assert warehouse.version("landed_files") == NO_TABLE
    monkeypatch.setattr(KernelWarehouse, "commit", commit)
    assert land(warehouse, *files).extra["files_landed"] == 2
    assert set(known(warehouse).values()) == {T0 + 5}
