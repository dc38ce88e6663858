"""A plan to end transactions: which ones it names, the file that people edit, and what is refused of it."""

from __future__ import annotations

import gzip
import json
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from halfop.columns.keys import Key
from halfop.ending import plan as p
from halfop.frame.errors import InputRefused, UsageError
from hypothesis import given
from hypothesis import strategies as st

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


COPIES = [{"queue_offset": 1, "commit_log_offset": 100}]


def plan(*rows: dict[str, Any]) -> p.EndingPlan:
    return p.EndingPlan(p.new_head(3, "--where true"), pa.Table.from_pylist(list(rows), schema=p.ROWS))


@pytest.mark.parametrize("name", ["plan.jsonl", "plan.parquet"])
def test_comes_back_as_it_was_written(tmp_path: Path, name: str) -> None:
    copies = [{"queue_offset": 2, "commit_log_offset": 200}, {"queue_offset": 1, "commit_log_offset": 100}]
    made = plan(cells(2, copies=copies), cells(3, "ROLLBACK", evidence="line\nbreak"))
    p.write(made, str(tmp_path / name))
    found = p.read(str(tmp_path / name))
    assert found.head == made.head
    first, second = next(p.rows_of(found.rows, 10))
    assert first.key == Key("b/ü", 0, 2)
    assert (first.places, first.born_timestamp) == ((p.PlannedPlace(1, 100), p.PlannedPlace(2, 200)), BORN), (
        "the live copy is last"
    )
    assert (second.kind, second.evidence, second.places) == ("ROLLBACK", "line\nbreak", (p.PlannedPlace(3, 300),))
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
        (lambda lines: [*lines, "[" * 100_000], r"plan.jsonl:4: no plan"),
        (lambda lines: [lines[0], lines[1].replace('"queue_offset": 1', '"queue_offset": "x"')], r":2: queue_offset"),
        (lambda lines: [*lines[:2], lines[2].replace("COMMIT", "ROLLBACK")], ":3: this row.* is not as it was planned"),
        (lambda lines: [lines[0], lines[1].replace('"uniq_key"', '"uniq"')], ":2: this row"),
        (lambda lines: [lines[0].replace('"form": 2', '"form": 1'), lines[1]], "a plan of form 1"),
        (lambda lines: [lines[0].replace('"decisions": 3', '"decisions": 4'), lines[1]], "or the plan's head"),
        (lambda lines: [lines[0].replace('"decisions": 3', '"decisions": []')], "no plan"),
    ],
)
def test_what_is_no_plan(tmp_path: Path, change: Any, said: str) -> None:
    file = tmp_path / "plan.jsonl"
    p.write(plan(cells(1), cells(2)), str(file))
    file.write_text("\n".join(change(file.read_text().splitlines())))
    with pytest.raises(InputRefused, match=said):
        p.read(str(file))


def test_a_plan_of_an_older_version_keeps_its_seals(tmp_path: Path) -> None:
    """Its head names no warehouse; what this version reads has none either."""
    file = tmp_path / "plan.jsonl"
    file.write_text(
        '{"plan": {"plan_id": "x", "decisions": 3, "made_at": "2025-06-15T15:06:40+00:00", "made_by": "me", '
        '"asked_for": "--where true", "form": 2}}\n'
        '{"kind": "COMMIT", "broker_name": "b", "queue_id": 0, "queue_offset": 1, "uniq_key": "K1", '
        '"seal": "89d97a7709766bfc"}\n'
    )
    assert p.read(str(file)).head.warehouse is None


def as_jq_writes(line: str) -> str:
    return json.dumps(json.loads(line), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: "\n".join([lines[0], lines[2], lines[1]]),
        lambda lines: "\r\n".join([*lines, ""]),
        lambda lines: "\ufeff" + "\n".join(lines),
        lambda lines: "\n \n".join(f"  {line} " for line in lines),
        lambda lines: "\n".join(map(as_jq_writes, lines)),
    ],
    ids=["reordered", "CRLF", "byte order mark", "blanks", "jq"],
)
def test_what_changes_nothing_of_a_plan(tmp_path: Path, change: Any) -> None:
    file = tmp_path / "plan.jsonl"
    made = plan(cells(1, copies=COPIES, evidence="ü"), cells(2))
    p.write(made, str(file))
    file.write_bytes(change(file.read_text().splitlines()).encode())
    found = p.read(str(file))
    assert (found.head, found.rows.sort_by("queue_offset")) == (made.head, made.rows)


@pytest.mark.parametrize(
    "content",
    [
        lambda text: text.encode()[:-30],
        lambda text: text.encode() + text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: gzip.compress(text.encode()),
        lambda text: b"",
        lambda text: b"\0" * 100,
        lambda text: json.dumps([json.loads(line) for line in text.splitlines()], indent=1).encode(),
    ],
    ids=["cut off", "two plans", "UTF-16", "compressed", "empty", "zeros", "one list"],
)
@pytest.mark.parametrize("name", ["plan.jsonl", "plan.parquet"])
def test_a_file_that_is_no_plan_any_more(tmp_path: Path, name: str, content: Any) -> None:
    file = tmp_path / "plan.jsonl"
    p.write(plan(cells(1), cells(2)), str(file))
    (tmp_path / name).write_bytes(content(file.read_text()))
    with pytest.raises(InputRefused):
        p.read(str(tmp_path / name))


def test_a_folder_is_no_plan(tmp_path: Path) -> None:
    for name in ("plan.jsonl", "plan.parquet"):
        (tmp_path / name).mkdir()
        with pytest.raises(InputRefused):
            p.read(str(tmp_path / name))


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["COMMIT", "RESUME"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["queue_offset", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(field=st.sampled_from([*p.ROWS.names, "seal", "other"]), value=ANY, of_head=st.booleans())
def test_whatever_is_changed_in_a_row_or_the_head_is_refused(field: str, value: Any, of_head: bool) -> None:
    """Or it changes nothing: 1.0 is 1, and another column is passed over. No change ends in a traceback."""
    made = plan(cells(2, copies=COPIES, evidence="e"))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "plan.jsonl"
        p.write(made, str(file))
        head, row = map(json.loads, file.read_text().splitlines())
        changed = head["plan"] if of_head else row
        changed[sorted(head["plan"])[len(field) % len(head["plan"])] if of_head else field] = value
        file.write_text(f"{json.dumps(head)}\n{json.dumps(row)}\n")
        try:
            found = p.read(str(file))
        except InputRefused:
            return
    assert (found.head, found.rows) == (made.head, made.rows)


@pytest.mark.parametrize("name", [*p.ROWS.names, "seal"])
def test_a_column_of_a_parquet_file_that_was_changed(tmp_path: Path, name: str) -> None:
    file = tmp_path / "plan.parquet"
    p.write(plan(cells(2, copies=COPIES, evidence="e"), cells(3)), str(file))
    table = pq.read_table(file)
    number, field = table.schema.get_field_index(name), table.schema.field(name)
    ends = table[name].combine_chunks()
    changed = {
        "null": pa.nulls(2, field.type),
        "other rows'": ends.take([1, 0]),
        "another type": pa.array([b"\xff", b"x"]),
    }
    for column in (each for each in changed.values() if not each.equals(ends)):
        pq.write_table(table.set_column(number, pa.field(name, column.type), column), file)
        with pytest.raises(InputRefused):
            p.read(str(file))
    pq.write_table(table.drop_columns(name), file)
    with pytest.raises(InputRefused):
        p.read(str(file))


def test_rows_of_a_parquet_file_may_be_deleted(tmp_path: Path) -> None:
    file = tmp_path / "plan.parquet"
    p.write(plan(cells(2, copies=COPIES), cells(3), cells(4)), str(file))
    table = pq.read_table(file)
    pq.write_table(table.filter(pc.field("queue_offset") != 3).append_column("note", pa.array(["a", "b"])), file)
    assert p.read(str(file)).rows["queue_offset"].to_pylist() == [2, 4]


def test_what_people_do_to_a_parquet_file(tmp_path: Path) -> None:
    file = tmp_path / "plan.parquet"
    made = plan(cells(2, copies=COPIES), cells(3))
    p.write(made, str(file))
    table, whole = pq.read_table(file), file.read_bytes()
    pq.write_table(table.take([1, 0]), file)
    assert p.read(str(file)).rows["queue_offset"].to_pylist() == [3, 2], "another order changes nothing"
    pq.write_table(pa.concat_tables([table, table.slice(0, 1)]), file)
    with pytest.raises(InputRefused, match="2 is there twice"):
        p.read(str(file))
    head = json.loads(table.schema.metadata[b"halfop.plan"])
    pq.write_table(table.replace_schema_metadata({b"halfop.plan": json.dumps(head | {"decisions": 4}).encode()}), file)
    with pytest.raises(InputRefused, match="or the plan's head"):
        p.read(str(file))
    pq.write_table(table.replace_schema_metadata(None), file)
    with pytest.raises(InputRefused, match="no plan"):
        p.read(str(file))
    for size in (len(whole) - 9, len(whole) // 2, 4):
        file.write_bytes(whole[:size])
        with pytest.raises(InputRefused, match="cannot be read"):
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
