"""Tables that a power cut, or a hand, has damaged: every job refuses them, and names the file."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from halfop.examine.logs import Aside, TableLog
from halfop.landing.files.land import FilesRequest, land_files
from halfop.runs.reconcile import Request, reconcile
from halfop.warehouse.damage import DamagedTable, TableOnDisk
from halfop.warehouse.disk import LocalDisk
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.schema import delta_table
from halfop.warehouse.session import session_settings
from halfop.warehouse.upkeep import TableUpkeep
from support import rows as r
from support.json_lines import T0, half, lines, op
from support.messages import RULES

LOG = logging.getLogger("halfop.test")
TABLE, NAME = "landing_progress", "next_offset"


def commit(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020}.json"


def newest(table: Path) -> Path:
    return max((table / "_delta_log").glob("*.json"))


def data_file(table: Path, version: int) -> Path:
    """A file that a commit adds."""
    actions = map(json.loads, commit(table, version).read_text().splitlines())
    return next(table / str(action["add"]["path"]) for action in actions if "add" in action)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def shortened(path: Path) -> None:
    """All lines that are left are sound."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def hollowed(path: Path) -> None:
    path.write_text(json.dumps({"commitInfo": {}}) + "\n" + json.dumps({"add": {}}))


def another_s(warehouse: KernelWarehouse) -> KernelWarehouse:
    """The warehouse as a process finds it that starts now."""
    return KernelWarehouse(warehouse.spark, warehouse.root)


@pytest.fixture(scope="module")
def of_three(new_warehouse: Callable[[str], KernelWarehouse]) -> KernelWarehouse:
    warehouse = new_warehouse("of_three")
    warehouse.make(TABLE)
    for offset in range(3):
        warehouse.commit(TABLE, [{"broker_name": "b", NAME: offset}])
    return warehouse


@pytest.fixture(scope="module")
def of_many(new_warehouse: Callable[[str], KernelWarehouse]) -> KernelWarehouse:
    """A table with a checkpoint of version 20, of 21."""
    warehouse = new_warehouse("of_many")
    warehouse.make(TABLE)
    for offset in range(21):
        warehouse.commit(TABLE, [{"broker_name": "b", NAME: offset}])
    return warehouse


@pytest.fixture
def copied(of_three: KernelWarehouse, tmp_path: Path) -> KernelWarehouse:
    return copy_of(of_three, tmp_path)


@pytest.fixture
def checkpointed(of_many: KernelWarehouse, tmp_path: Path) -> KernelWarehouse:
    return copy_of(of_many, tmp_path)


def copy_of(warehouse: KernelWarehouse, folder: Path) -> KernelWarehouse:
    shutil.copytree(warehouse.root, folder / "copied")
    return KernelWarehouse(warehouse.spark, str(folder / "copied"))


def offsets(warehouse: KernelWarehouse, version: int | None = None) -> list[int]:
    return sorted(row[NAME] for row in warehouse.rows(TABLE, version))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("harm", "what"),
    [
        (emptied, "is empty"),
        (cut_off, "line 2 is no JSON"),
        (shortened, r"is cut off at a line's end: it changes the number of files by \+0, .* that is \+1"),
        (zeroed, "line 1 is no JSON"),
        (hollowed, "line 2 names no file"),
    ],
)
def test_a_damaged_commit_is_refused(
    copied: KernelWarehouse, version: int, harm: Callable[[Path], None], what: str
) -> None:
    path = commit(Path(copied.path(TABLE)), version)
    harm(path)
    with pytest.raises(DamagedTable, match=rf"{path} .*{what}.*`examine`") as refused:
        copied.version(TABLE)
    assert refused.value.exit_status == 3
    with pytest.raises(DamagedTable):
        copied.commit(TABLE, [{"broker_name": "b"}])
    assert offsets(copied, 1) == [0], "a version before it is whole"


@pytest.mark.parametrize(
    ("harm", "what"), [(emptied, "is empty"), (cut_off, r"has \d+ bytes, and not \d+"), (Path.unlink, "is missing")]
)
def test_a_damaged_data_file_is_refused(copied: KernelWarehouse, harm: Callable[[Path], None], what: str) -> None:
    path = data_file(Path(copied.path(TABLE)), 2)
    harm(path)
    with pytest.raises(DamagedTable, match=rf"{path} {what}"):
        copied.version(TABLE)


@pytest.mark.parametrize("left", [1, 2])
def test_a_table_whose_first_commit_lacks_lines_is_refused(copied: KernelWarehouse, left: int) -> None:
    path = commit(Path(copied.path(TABLE)), 0)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:left]))
    with pytest.raises(DamagedTable, match=f"{path} is cut off: a table's first commit has its metadata"):
        copied.version(TABLE)


@pytest.mark.slow
def test_a_compaction_that_has_lost_lines_is_refused(copied: KernelWarehouse) -> None:
    """Its rows would be there twice if it removed fewer files than it replaces."""
    table = Path(copied.path(TABLE))
    TableUpkeep(copied, TABLE).compact(3)
    path, whole = newest(table), newest(table).read_bytes()
    assert offsets(another_s(copied)) == [0, 1, 2]
    lines_ = whole.splitlines(keepends=True)
    for number in range(1, len(lines_)):
        path.write_bytes(b"".join(lines_[:number]))
        with pytest.raises(DamagedTable, match="is cut off at a line's end"):
            another_s(copied).version(TABLE)
    path.with_suffix(".crc").unlink()
    another_s(copied).version(TABLE)  # nobody can know


def test_a_removal_of_what_never_was_a_data_file_is_sound(copied: KernelWarehouse) -> None:
    """As DROP FEATURE removes the files of deletion vectors: Delta's checksum does not count them."""
    table = Path(copied.path(TABLE))
    path = commit(table, copied.version(TABLE) + 1)
    gone = {"path": "deletion_vector_1.bin", "deletionTimestamp": 1, "dataChange": False}
    info = {"timestamp": 1, "operation": "DROP FEATURE", "operationParameters": {}}
    path.write_text("\n".join(json.dumps(each) for each in ({"commitInfo": info}, {"remove": gone})) + "\n")
    shutil.copy(newest_checksum(table), path.with_suffix(".crc"))
    assert offsets(another_s(copied)) == [0, 1, 2]


def newest_checksum(table: Path) -> Path:
    return max((table / "_delta_log").glob("*.crc"))


def test_a_folder_of_another_user_beside_the_tables_is_no_table(
    copied: KernelWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As lost+found, where the warehouse is the root of a disk."""
    (Path(copied.root) / "lost+found").mkdir()
    stat = os.stat

    def denied(path: Any, *more: Any, **options: Any) -> os.stat_result:
        if "lost+found/" in str(path):
            raise PermissionError(13, "Permission denied", path)
        return stat(path, *more, **options)

    monkeypatch.setattr(os, "stat", denied)
    another_s(copied).log.sound.refuse_damaged_tables(copied.root)


def test_a_commit_that_comes_damaged_into_a_process_that_stays_is_refused(copied: KernelWarehouse) -> None:
    assert offsets(copied) == [0, 1, 2]
    another_s(copied).commit(TABLE, [{"broker_name": "b", NAME: 3}])
    path = newest(Path(copied.path(TABLE)))
    emptied(path)
    with pytest.raises(DamagedTable, match=f"{path} is empty"):
        copied.version(TABLE)


def test_a_damaged_commit_between_two_pins_is_refused(checkpointed: KernelWarehouse) -> None:
    """A checkpoint after it holds its rows; what has landed between two pins is read from the commits."""
    path = commit(Path(checkpointed.path(TABLE)), 12)
    emptied(path)
    assert offsets(checkpointed) == [*range(21)]
    assert len(checkpointed.landed_between(TABLE, 12, 20).collect()) == 8
    for before, upto in ((11, 20), (5, 21)):
        with pytest.raises(DamagedTable, match=f"{path} is empty"):
            checkpointed.landed_between(TABLE, before, upto)


def test_a_pinned_version_is_refused_for_commits_of_its_own_alone(checkpointed: KernelWarehouse) -> None:
    emptied(commit(Path(checkpointed.path(TABLE)), 12))
    assert offsets(checkpointed, 11) == [*range(11)]
    with pytest.raises(DamagedTable, match="is empty"):
        offsets(checkpointed, 14)
    assert offsets(checkpointed, 20) == [*range(20)]


def test_what_was_replaced_and_removed_is_no_damage(copied: KernelWarehouse) -> None:
    old = data_file(Path(copied.path(TABLE)), 2)
    assert copied.replace_rows(TABLE, 3, [{"broker_name": "b", NAME: 7}])
    old.unlink()
    later = another_s(copied)
    assert (offsets(later), offsets(later, 1)) == ([7], [0])
    assert not damage(later)


def test_commits_that_a_clean_up_removed_are_no_damage(checkpointed: KernelWarehouse) -> None:
    for version in range(20):
        commit(Path(checkpointed.path(TABLE)), version).unlink()
    assert offsets(checkpointed) == [*range(21)]
    assert not damage(checkpointed)


def damage(warehouse: KernelWarehouse) -> list[tuple[int | None, str]]:
    found = TableOnDisk(LocalDisk(), warehouse.path(TABLE))
    return [(each.version, each.path) for each in (*found.of_log(), *found.of_data())]


def test_all_damage_of_a_table_is_found(checkpointed: KernelWarehouse) -> None:
    table = Path(checkpointed.path(TABLE))
    lost = [data_file(table, 3), data_file(table, 21)]
    for path in lost:
        path.unlink()
    assert damage(checkpointed) == [(20, str(lost[0])), (21, str(lost[1]))]
    bad = [table / "_delta_log" / f"{20:020}.checkpoint.parquet", commit(table, 1), commit(table, 2), commit(table, 7)]
    emptied(bad[0])
    bad[1].unlink()
    zeroed(bad[2])
    cut_off(bad[3])
    found = [*zip((20, 1, 2, 7), map(str, bad), strict=True)]
    assert damage(checkpointed) == [*found, (3, str(lost[0])), (21, str(lost[1]))]


@pytest.fixture(params=["json", "parquet"])
def of_v2(copied: KernelWarehouse, request: pytest.FixtureRequest) -> KernelWarehouse:
    """A table with a checkpoint of version 4, its newest: a top file, which names the files with the rest."""
    path = copied.path(TABLE)
    set_it = "SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')"
    copied.spark.sql(f"ALTER TABLE {delta_table(path)} {set_it}")
    delta = copied.spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
    with session_settings(copied.spark, {"spark.databricks.delta.checkpointV2.topLevelFileFormat": request.param}):
        delta.forTable(copied.spark._jsparkSession, path).checkpoint()
    assert [top_file(copied).suffix, len([*sidecars(copied)])] == [f".{request.param}", 1]
    return another_s(copied)


def top_file(warehouse: KernelWarehouse) -> Path:
    return next(Path(warehouse.path(TABLE), "_delta_log").glob(f"{4:020}.checkpoint.*"))


def sidecars(warehouse: KernelWarehouse) -> Iterator[Path]:
    return Path(warehouse.path(TABLE), "_delta_log", "_sidecars").glob("*.parquet")


def test_a_clean_up_up_to_a_checkpoint_in_several_files_is_no_damage(of_v2: KernelWarehouse) -> None:
    lost = data_file(Path(of_v2.path(TABLE)), 2)
    for version in range(4):
        commit(Path(of_v2.path(TABLE)), version).unlink()
    assert not damage(of_v2)
    assert offsets(of_v2) == [0, 1, 2]
    lost.unlink()
    assert damage(of_v2) == [(4, str(lost))], "and its data files are looked at"


@pytest.mark.parametrize(("of_top", "harm"), [(True, cut_off), (False, zeroed), (False, Path.unlink)])
def test_a_damaged_checkpoint_in_several_files_is_put_aside(
    of_v2: KernelWarehouse, tmp_path: Path, of_top: bool, harm: Callable[[Path], None]
) -> None:
    """The commits before it are there; that of its version stays as it is."""
    top, same = top_file(of_v2), commit(Path(of_v2.path(TABLE)), 4)
    whole = same.read_bytes()
    harm(top if of_top else next(sidecars(of_v2)))
    assert damage(of_v2) == [(4, str(top))]
    log = TableLog(Path(of_v2.path(TABLE)), Aside(tmp_path, "now"), bytes)
    log.repair()
    assert (damage(of_v2), top.exists(), same.read_bytes()) == ([], False, whole)
    assert offsets(another_s(of_v2)) == [0, 1, 2]


@pytest.fixture(scope="module")
def decided(
    new_warehouse: Callable[[str], KernelWarehouse], tmp_path_factory: pytest.TempPathFactory
) -> KernelWarehouse:
    """Two landings, and a run over the first."""
    warehouse, folder = new_warehouse("decided"), tmp_path_factory.mktemp("rows")
    for offset in range(2):
        halves, answers = (
            lines(folder / f"h{offset}.jsonl", half(offset)),
            lines(folder / f"o{offset}.jsonl", op(offset, f"{offset}")),
        )
        land_files(warehouse, FilesRequest([halves], [answers]), LOG)
        if not offset:
            r.run(warehouse, RULES, T0 + 100)
    return warehouse


def commits(warehouse: KernelWarehouse, name: str) -> list[str]:
    return sorted(path.name for path in Path(warehouse.path(name), "_delta_log").iterdir())


@pytest.mark.parametrize("name", ["half_messages", "landing_progress"])
def test_nothing_lands_in_a_damaged_warehouse(decided: KernelWarehouse, tmp_path: Path, name: str) -> None:
    warehouse = copy_of(decided, tmp_path)
    emptied(newest(Path(warehouse.path(name))))
    before = commits(warehouse, "landing_progress")
    with pytest.raises(DamagedTable, match=f"{name}/_delta_log.* is empty"):
        land_files(warehouse, FilesRequest([lines(tmp_path / "h.jsonl", half(7))], []), LOG)
    assert commits(warehouse, "landing_progress") == before


@pytest.mark.parametrize("name", ["op_messages", "rejected", "topics/T"])
def test_a_job_that_starts_refuses_what_it_may_not_come_to(decided: KernelWarehouse, tmp_path: Path, name: str) -> None:
    warehouse = copy_of(decided, tmp_path)
    shutil.copytree(warehouse.path("decisions"), warehouse.path("topics/T"), dirs_exist_ok=True)
    warehouse.log.sound.refuse_damaged_tables(warehouse.root)
    emptied(newest(Path(warehouse.path(name))))
    with pytest.raises(DamagedTable, match=f"{name}/_delta_log.* is empty"):
        another_s(warehouse).log.sound.refuse_damaged_tables(warehouse.root)


@pytest.mark.parametrize("name", ["half_messages", "op_messages", "landing_progress", "decisions", "runs"])
def test_no_run_believes_a_damaged_table(decided: KernelWarehouse, tmp_path: Path, name: str) -> None:
    warehouse = copy_of(decided, tmp_path)
    emptied(newest(Path(warehouse.path(name))))
    before = commits(warehouse, "runs")
    with pytest.raises(DamagedTable, match=f"{name}/_delta_log.* is empty"):
        reconcile(warehouse, Request(r.settings(RULES), r.instant(T0 + 200)))
    assert commits(warehouse, "runs") == before, "nothing was pinned"
