"""`examine` after damage to what landed from files: it names the files, and the calls that it prints cure."""

from __future__ import annotations

import logging
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from halfop.examine.examine import examine
from halfop.examine.landed import gaps
from halfop.examine.repair import Repair
from halfop.frame.cli import main
from halfop.landing import progress
from halfop.landing.files.land import FilesRequest, land_files
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from halfop.settings.model import Settings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import hold
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.schema import delta_table
from halfop.warehouse.upkeep import TRIMMED_BEFORE
from model import reference as m
from model.strategies import op_rows
from support import rows as r
from support.entry_points import job_of
from support.halves import half_at
from support.json_lines import T0, half, lines, op
from support.rules.rule_words import NOW
from support.rules.rule_words import half as rule_half
from support.warehouses import with_tables

from upkeep.test_examine import emptied, file_missing

LOG = logging.getLogger("halfop.test")
RULES = m.Settings(transaction_timeout=1_000_000)


def settings_of(warehouse: KernelWarehouse) -> Settings:
    return r.settings(RULES).model_copy(update={"warehouse": warehouse.root})


def look(warehouse: KernelWarehouse, repair: bool = False, deep: bool = False) -> tuple[int, list[str]]:
    """The status of an `examine`, and the calls that it prints."""
    summary = examine(warehouse, settings_of(warehouse), deep=deep, repair=repair)
    return summary.status, summary.extra["commands"]


def pasted(command: str) -> int:
    launcher, job, *words = shlex.split(command)
    assert launcher == "./spark-submit.sh"
    return main(job_of(job), words)


def half_file(folder: Path, name: str, *offsets: int) -> str:
    return lines(folder / f"{name}.jsonl", *(half(n) for n in offsets))


def land(warehouse: KernelWarehouse, *halves: str, ops: tuple[str, ...] = ()) -> dict[str, int]:
    return land_files(warehouse, FilesRequest(halves, ops), LOG).rows_written


def committed(warehouse: KernelWarehouse) -> Counter[int]:
    return Counter(each.key[2] for each in r.delivered(warehouse).elements())


@pytest.mark.parametrize("trimmed", [True, False])
def test_a_queue_that_was_trimmed_whole_has_lost_nothing(warehouse: KernelWarehouse, trimmed: bool) -> None:
    r.land(warehouse, [replace(rule_half(offset=7), broker="b")], [], NOW)
    rows = [progress.ProgressRow("b", HALF_TOPIC, queue, 8, None, NOW, 7) for queue in (0, 1)]
    progress.move(warehouse, rows, "STORE")
    if trimmed:
        of_halves = delta_table(warehouse.path("half_messages"))
        warehouse.spark.sql(f"ALTER TABLE {of_halves} SET TBLPROPERTIES ('{TRIMMED_BEFORE}' = '2026-01-01 00:00:00.0')")
    lacking = [] if trimmed else [f"b/{HALF_TOPIC}/1/7-7"]
    assert [str(gap.again) for gap in gaps(warehouse, ())] == lacking


@pytest.mark.parametrize("harm", [file_missing, pytest.param(emptied, marks=pytest.mark.slow)])
def test_files_whose_half_rows_are_lost_are_named_until_they_have_landed(
    warehouse: KernelWarehouse, tmp_path: Path, harm: Callable[[Path], None], logging_as_before: None
) -> None:
    """Their offsets have a gap anyway, which shows nothing."""
    first, second = half_file(tmp_path, "first", 0, 1, 7), half_file(tmp_path, "it's second", 2, 5)
    land(warehouse, first)
    land(warehouse, second)
    land(warehouse, half_file(tmp_path, "third", 9))
    root = Path(warehouse.path("half_messages"))
    newest = max((root / "_delta_log").glob("*.json"))
    kept = newest.read_bytes()
    newest.unlink()  # the harm is to the second landing
    harm(root)
    newest.write_bytes(kept)
    call = f"./spark-submit.sh examine --warehouse {warehouse.root} --repair"
    assert look(warehouse) == (3, [call])
    land_call = f"./spark-submit.sh land files --warehouse {warehouse.root} --half {shlex.quote(second)}"
    assert look(warehouse, repair=True) == (3, [land_call, call])
    assert look(warehouse) == (3, [land_call])
    assert pasted(land_call) == 0
    assert {row["queue_offset"] for row in warehouse.read("half_messages").collect()} == {0, 1, 2, 5, 7, 9}
    assert look(warehouse) == (0, [])
    assert look(warehouse, deep=True) == (0, [])


@pytest.mark.thorough
def test_a_corrected_row_that_is_lost_lands_again(
    warehouse: KernelWarehouse, tmp_path: Path, capsys: pytest.CaptureFixture[str], logging_as_before: None
) -> None:
    """No offset is missing: the row that it corrects is still there."""
    wrong = half(0, properties=half(0)["properties"] | {"REAL_TOPIC": "no topic"})
    land(warehouse, lines(tmp_path / "wrong.jsonl", wrong), ops=(lines(tmp_path / "o.jsonl", op(0, "0")),))
    r.run(warehouse, RULES, T0 + 10)
    corrected = half_file(tmp_path, "corrected", 0)
    land(warehouse, corrected)
    file_missing(Path(warehouse.path("half_messages")))
    assert pasted(f"./spark-submit.sh examine --repair --warehouse {warehouse.root}") == 3
    land_call = f"./spark-submit.sh land files --warehouse {warehouse.root} --half {corrected}"
    said = capsys.readouterr().err
    assert said.count(land_call) == 1
    assert f"{corrected} has to land again: half_messages has lost rows" in said
    assert "brought back: landed_files: marks on 1 file" in said
    assert land(warehouse, corrected)["half_messages"] == 1
    assert look(warehouse, repair=True) == (0, [])
    r.run(warehouse, RULES, T0 + 20)
    assert committed(warehouse) == Counter([0])


def test_a_file_that_has_grown_or_moved_lands_again_all_the_same(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    grown, moved = half_file(tmp_path, "grown", 0), half_file(tmp_path, "moved", 5)
    land(warehouse, grown, moved)
    half_file(tmp_path, "grown", 0, 1)
    land(warehouse, grown)
    for version in (1, 2):
        log = Path(warehouse.path("half_messages"), "_delta_log")
        log.joinpath(f"{version:020}.json").write_bytes(b"")
    assert look(warehouse, repair=True)[0] == 3
    assert land(warehouse, grown)["half_messages"] == 2
    status, calls = look(warehouse)
    assert (status, shlex.split(calls[0])[-1]) == (3, moved)
    Path(moved).rename(tmp_path / "elsewhere.jsonl")
    assert land(warehouse, str(tmp_path / "elsewhere.jsonl"))["half_messages"] == 1
    assert look(warehouse) == (0, [])


def test_op_rows_that_are_lost_are_named_by_their_file(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    ops = lines(tmp_path / "o.jsonl", op(0, "0"))
    land(warehouse, half_file(tmp_path, "h", 0), ops=(ops,))
    emptied(Path(warehouse.path("op_messages")))
    assert [shlex.split(call)[1] for call in look(warehouse, repair=True)[1]] == ["land", "examine"]
    assert land(warehouse, ops=(ops,))["op_messages"] == 1
    assert look(warehouse) == (0, [])


def test_a_repair_moves_the_clock_of_files_up_to_what_has_landed_whole(
    warehouse: KernelWarehouse, tmp_path: Path
) -> None:
    """An answer of `end`, an op after a gap, and a queue that a user's own pipeline fills are no later time."""
    late = op(3, "1", store_timestamp=T0 + 7_000_000)
    land(warehouse, half_file(tmp_path, "h", 0, 1), ops=(lines(tmp_path / "o.jsonl", op(0, "0")),))
    land(warehouse, ops=(lines(tmp_path / "late.jsonl", late),))
    answer = {"broker_name": "b", "queue_id": 0, "queue_offset": 2**62, "item": 0, "source": "RESOLVE"}
    r.append(warehouse, "op_messages", [answer | {"store_timestamp": T0 + 9_000_000}])
    r.land(warehouse, [replace(rule_half(offset=7), broker="own")], [], NOW)
    before = progress_rows(warehouse)
    look(warehouse, repair=True)
    assert progress_rows(warehouse) == before, "nothing was damaged"
    for path in Path(warehouse.path("landing_progress")).glob("*.parquet"):
        path.unlink()
    look(warehouse, repair=True)
    found = {(row["broker_name"], row["topic"]): row for row in progress_rows(warehouse)}
    of_ops = found["b", OP_TOPIC]
    assert (of_ops["next_offset"], of_ops["highest_offset"], of_ops["known_until"]) == (1, 4, r.instant(T0 + 5))
    assert found["own", OP_TOPIC]["known_until"] is None


def test_a_repair_with_the_last_offset_and_a_row_without_a_queue(warehouse: KernelWarehouse) -> None:
    ops = op_rows(("b", 0), 2**63 - 1, "9", ["COMMIT"], NOW)
    r.land(warehouse, [half_at(("b", 0), 2**63 - 1, NOW)], ops, NOW, {("b", 0): NOW}, sources={"b": "BROKER"})
    r.append(warehouse, "half_messages", [r.half_cells(half_at(("b", 0), 5, NOW), NOW) | {"queue_id": None}])
    r.append(warehouse, "op_messages", [r.op_cells(ops[0], NOW) | {"queue_id": None}])
    for path in Path(warehouse.path("landing_progress")).glob("*.parquet"):
        path.unlink()
    assert look(warehouse, repair=True) == (0, [])
    assert look(warehouse) == (0, [])


def test_a_repair_that_fails_where_nothing_was_damaged_holds_up_no_job(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_tables(warehouse, "half_messages")
    with monkeypatch.context() as patch:
        patch.setattr(Repair, "bring_back", lambda *_: int("no step"))
        with pytest.raises(ValueError, match="no step"):
            look(warehouse, repair=True)
    with hold(warehouse, "landing"):
        assert look(warehouse) == (0, [])
