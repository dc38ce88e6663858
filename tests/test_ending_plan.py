"""A plan to end transactions: which ones it names, the file that people edit, and what is refused of it."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from halfop.columns.keys import Key
from halfop.ending import plan as p
from halfop.frame.errors import InputRefused, UsageError

BORN = datetime(2025, 6, 15, 15, 6, 40, 123456, tzinfo=timezone.utc)


def cells(offset: int, kind: str = "COMMIT", **others: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "broker_name": "b/ü",
        "queue_id": 0,
        "queue_offset": offset,
        "uniq_key": f"K{offset}",
        "producer_group": "g",
        "real_topic": "T",
        "origin": "WHERE",
        "decision": "CHECK",
        "reason": "TIMEOUT",
        "check_times": 1,
        "run_id": 7,
        "born_timestamp": BORN,
        "commit_log_offset": offset * 100,
        **others,
    }


def plan(*rows: dict[str, Any]) -> p.Plan:
    return p.Plan(p.new_head(3, "--where true"), pa.Table.from_pylist(list(rows), schema=p.ROWS))


@pytest.mark.parametrize("name", ["plan.jsonl", "plan.parquet"])
def test_comes_back_as_it_was_written(tmp_path: Path, name: str) -> None:
    copies = [{"queue_offset": 2, "commit_log_offset": 200}, {"queue_offset": 1, "commit_log_offset": 100}]
    made = plan(cells(2, copies=copies), cells(3, "ROLLBACK", evidence="line\nbreak"))
    p.write(made, str(tmp_path / name))
    found = p.read(str(tmp_path / name))
    assert found.head == made.head
    first, second = next(p.rows_of(found.rows, 10))
    assert first.key == Key("b/ü", 0, 2)
    assert (first.places, first.born_timestamp) == ((p.Place(1, 100), p.Place(2, 200)), BORN), "the live copy is last"
    assert (second.kind, second.evidence, second.places) == ("ROLLBACK", "line\nbreak", (p.Place(3, 300),))
    with pytest.raises(UsageError, match="there is a file already"):
        p.write(made, str(tmp_path / name))


def test_a_line_that_is_deleted_is_not_ended(tmp_path: Path) -> None:
    file = tmp_path / "plan.jsonl"
    p.write(plan(cells(1), cells(2), cells(3)), str(file))
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], "", lines[3]]))
    assert [row.key.queue_offset for row in next(p.rows_of(p.read(str(file)).rows, 10))] == [3]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[1:], r"plan.jsonl: no plan"),
        (lambda lines: [], r"plan.jsonl:1: no plan"),
        (lambda lines: [*lines, lines[1]], "b/ü/0/1 is there twice"),
        (lambda lines: [*lines, "{"], r"plan.jsonl:4: no plan"),
        (lambda lines: [lines[0], lines[1].replace('"queue_offset": 1', '"queue_offset": "x"')], r":2: queue_offset"),
        (lambda lines: [lines[0], lines[1].replace("COMMIT", "UNKNOWN")], "kind UNKNOWN"),
        (lambda lines: [lines[0], lines[1].replace('"uniq_key"', '"uniq"')], "rows without uniq_key"),
        (lambda lines: [lines[0].replace('"form": 1', '"form": 2'), lines[1]], "a plan of form 2"),
    ],
)
def test_what_is_no_plan(tmp_path: Path, change: Any, said: str) -> None:
    file = tmp_path / "plan.jsonl"
    p.write(plan(cells(1), cells(2)), str(file))
    file.write_text("\n".join(change(file.read_text().splitlines())))
    with pytest.raises(InputRefused, match=said):
        p.read(str(file))


def test_a_parquet_file_whose_head_is_no_json(tmp_path: Path) -> None:
    file = tmp_path / "plan.parquet"
    pq.write_table(p.ROWS.empty_table().replace_schema_metadata({b"halfop.plan": b"{"}), file)
    with pytest.raises(InputRefused, match=r"plan.parquet: no plan"):
        p.read(str(file))


def test_no_file_and_no_parquet(tmp_path: Path) -> None:
    (tmp_path / "plan.parquet").write_text("no Parquet")
    for name in ("absent.jsonl", "plan.parquet"):
        with pytest.raises(InputRefused, match="cannot be read"):
            p.read(str(tmp_path / name))
