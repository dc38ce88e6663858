"""The start of a job's Java: which archive fits, when one compiler is enough, and how both reach Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from halfop.frame.errors import HalfopError
from halfop.start.archive import Archive
from halfop.start.options import FIRST_COMPILER, quoted, spark_submit_opts
from halfop.start.work import BY_WORKERS, LITTLE, is_little

LARGE = LITTLE + 1


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """An archive that is made, of a Java and two jars that are there."""
    for name in ("java/bin/java", "jars/a.jar", "spark/jars/b.jar"):
        file(tmp_path / name)
    java(tmp_path / "java/bin/java", "")
    (tmp_path / "java/release").write_text('JAVA_VERSION="17.0.1"\n')
    found = Archive.at(*(str(tmp_path / name) for name in ("classes", "java/bin/java", "jars", "spark")))
    make(found)
    return found


def file(path: Path, size: int = 0, at: float = 1_000_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as opened:
        opened.truncate(size)
    os.utime(path, (at, at))
    return path


def java(path: Path, program: str) -> None:
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(0o755)


def make(archive: Archive) -> Path:
    made = archive.file()
    assert made is not None
    part = made.with_name("part")
    part.parent.mkdir(exist_ok=True)
    part.touch()
    archive.keep(part, "jars/*")
    return made


# ---- the archive ----


def test_an_archive_is_used_and_java_says_nothing_of_it_on_stdout(archive: Archive) -> None:
    assert archive.is_made()
    quiet = ["-Xlog:disable", "-Xlog:all=warning,cds*=off:stderr"]
    assert archive.options() == [*quiet, f"-XX:SharedArchiveFile={archive.file()}"]


def test_a_java_since_24_is_told_to_be_quiet_in_its_own_words(archive: Archive) -> None:
    (archive.java.parents[1] / "release").write_text('JAVA_VERSION="25.0.3"\n')
    make(archive)
    assert "-Xlog:all=warning,cds*=off,aot*=off:stderr" in archive.options()


@pytest.mark.parametrize(
    ("changed", "size"), [("java/release", 9), ("jars/a.jar", 9), ("jars/new.jar", 0), ("spark/jars/b.jar", 9)]
)
def test_another_java_or_jar_needs_another_archive(archive: Archive, tmp_path: Path, changed: str, size: int) -> None:
    file(tmp_path / changed, size)
    assert (archive.is_made(), archive.options()) == (False, [])
    make(archive)
    assert archive.is_made()


def test_a_jar_that_was_written_again_needs_another_archive(archive: Archive, tmp_path: Path) -> None:
    file(tmp_path / "jars/a.jar", at=2_000_000)
    assert not archive.is_made()


def test_a_java_that_nobody_can_know_has_no_archive(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "java/release").unlink()
    assert archive.options() == []
    with pytest.raises(HalfopError, match="release"):
        archive.options_to_make(tmp_path / "part")


def test_a_new_archive_removes_those_that_nobody_has_used_for_long(archive: Archive) -> None:
    old, used = (file(archive.folder / f"classes-{name}.jsa") for name in ("old", "used"))
    os.utime(used)
    assert (make(archive).exists(), used.exists(), old.exists()) == (True, True, False)


def test_a_java_without_an_archive_of_its_own_classes_gets_one_to_build_on(archive: Archive, tmp_path: Path) -> None:
    java(archive.java, 'echo "$@" >"$(dirname "$0")/called"')
    base = archive.folder / f"{archive.file().stem}-base.jsa"  # type: ignore[union-attr]
    assert f"-XX:SharedArchiveFile={base}" in archive.options_to_make(tmp_path / "part")
    assert (tmp_path / "java/bin/called").read_text() == f"-Xshare:dump -XX:SharedArchiveFile={base}\n"
    file(tmp_path / "java/lib/server/classes.jsa")
    assert archive.options_to_make(tmp_path / "part")[-1] == f"-XX:ArchiveClassesAtExit={tmp_path / 'part'}"


def test_an_archive_that_java_cannot_use_is_not_kept(archive: Archive) -> None:
    made = make(archive)
    made.unlink()
    java(archive.java, "exit 1")
    with pytest.raises(subprocess.CalledProcessError):
        make(archive)
    assert not archive.is_made()


# ---- how it reaches Java ----


def test_the_users_own_options_come_last(archive: Archive) -> None:
    found = spark_submit_opts(archive, True, {"SPARK_SUBMIT_OPTS": "-Xss4m -XX:TieredStopAtLevel=4"})
    assert found == " ".join([*archive.options(), *FIRST_COMPILER, "-Xss4m -XX:TieredStopAtLevel=4"])
    assert spark_submit_opts(archive, False, {}) == " ".join(archive.options())


@pytest.mark.parametrize(
    "users", ["-Xshare:off", "-XX:SharedArchiveFile=mine", "-XX:ArchiveClassesAtExit=mine", "-XX:AOTCache=mine"]
)
def test_a_users_own_archive_stands_alone(archive: Archive, users: str) -> None:
    assert spark_submit_opts(archive, False, {"SPARK_SUBMIT_OPTS": users}) == users


@pytest.mark.parametrize("option", ["-XX:A=b", "-XX:A=b c", '-XX:A="b c"', "-XX:A=b\\ c"])
def test_sparks_launcher_reads_an_option_as_it_was(option: str) -> None:
    """It takes quotes and backslashes as a shell does."""
    shell = subprocess.run(["/bin/sh", "-c", f"printf %s {quoted(option)}"], capture_output=True, text=True, check=True)
    assert shell.stdout == option


# ---- how much a job reads ----


class Warehouse:
    """A warehouse's files, as far as their sizes and dates matter."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._commits = 0

    def rows(self, table: str, size: int, at: int) -> None:
        file(self.root / table / f"part-{at}-{size}.parquet", size, at)

    def run(self, run_id: int, opened: int, closed: int | None) -> None:
        self._commit("halfop.runs.open", run_id, opened)
        if closed is not None:
            self._commit("halfop.runs.close", run_id, closed)

    def _commit(self, app: str, run_id: int, at: int) -> None:
        log = self.root / f"runs/_delta_log/{self._commits:020}.json"
        file(log)
        log.write_text('{"commitInfo": {}}\n' + json.dumps({"txn": {"appId": app, "version": run_id}}) + "\n")
        os.utime(log, (at, at))
        self._commits += 1


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """A backlog that has been worked off."""
    made = Warehouse(tmp_path / "warehouse")
    made.rows("half_messages", LARGE, at=1_000)
    made.run(1, opened=2_000, closed=3_000)
    return made


def little(warehouse: Warehouse, *command: str, home: Path | None = None) -> bool:
    job, *arguments = command
    return is_little(job, [*arguments, "--warehouse", str(warehouse.root)], {}, home)


def test_a_run_with_nothing_new_is_little(warehouse: Warehouse) -> None:
    assert little(warehouse, "reconcile")
    warehouse.rows("half_messages", 1_000, at=4_000)
    assert little(warehouse, "reconcile", "--now", "2025-06-15T15:10:00Z", "--set", "rules.ask=false")


@pytest.mark.parametrize("table", ["half_messages", "op_messages", "final_messages", "decisions/open=true"])
def test_a_run_over_much_is_not(warehouse: Warehouse, table: str) -> None:
    warehouse.rows(table, LARGE, at=4_000)
    assert not little(warehouse, "reconcile")


def half_messages(warehouse: Warehouse, marks: dict[str, list[str | None]], statistics: bool = True) -> None:
    path = warehouse.root / "half_messages/part.parquet"
    path.parent.mkdir(exist_ok=True)
    rows = pa.table({name: pa.array(values, pa.string()) for name, values in {"body": ["x", "y"], **marks}.items()})
    pq.write_table(rows, path, row_group_size=1, write_statistics=statistics)
    os.utime(path, (4_000, 4_000))


NULL: list[str | None] = [None, None]
NO_COPIES = {"landed_check_times": NULL, "landed_prepared_offset": NULL}


def test_java_reads_little_of_what_workers_decide(warehouse: Warehouse) -> None:
    warehouse.rows("op_messages", LARGE, at=4_000)
    half_messages(warehouse, NO_COPIES)
    assert little(warehouse, "reconcile")
    warehouse.rows("op_messages", (BY_WORKERS + 1) * LITTLE, at=4_000)
    assert not little(warehouse, "reconcile")


def test_a_start_loads_no_library_if_little_is_read(warehouse: Warehouse) -> None:
    asked = f"is_little('reconcile', ['--warehouse', {str(warehouse.root)!r}], {{}}, None)"
    program = f"import sys; from halfop.start.work import is_little; print({asked}, 'pyarrow' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True", "False"]


@pytest.mark.parametrize(
    "marks",
    [
        NO_COPIES | {"landed_check_times": [None, "1"]},
        NO_COPIES | {"landed_prepared_offset": ["0", None]},
        {"landed_check_times": NULL},
    ],
)
def test_java_reads_all_if_there_may_be_copies(warehouse: Warehouse, marks: dict[str, list[str | None]]) -> None:
    warehouse.rows("op_messages", LARGE, at=4_000)
    half_messages(warehouse, marks)
    assert not little(warehouse, "reconcile")


def test_files_without_statistics_may_have_copies(warehouse: Warehouse) -> None:
    warehouse.rows("op_messages", LARGE, at=4_000)
    half_messages(warehouse, NO_COPIES, statistics=False)
    assert not little(warehouse, "reconcile")


def test_what_earlier_runs_ended_is_not_read_again(warehouse: Warehouse) -> None:
    warehouse.rows("decisions/open=false", LARGE, at=4_000)
    assert little(warehouse, "reconcile")


def test_a_run_that_is_open_reads_what_it_was_opened_over(warehouse: Warehouse) -> None:
    warehouse.rows("half_messages", LARGE, at=4_000)
    warehouse.run(2, opened=5_000, closed=None)
    assert not little(warehouse, "reconcile")
    warehouse.run(2, opened=6_000, closed=7_000)
    assert little(warehouse, "reconcile")


def test_a_warehouse_without_a_run_has_everything_to_read(tmp_path: Path) -> None:
    fresh = Warehouse(tmp_path / "fresh")
    assert little(fresh, "reconcile")
    fresh.rows("half_messages", LARGE, at=1_000)
    assert not little(fresh, "reconcile")


@pytest.mark.parametrize("job", [["land", "files"], ["follow", "files", "--once"]])
def test_files_are_little_by_their_sizes(warehouse: Warehouse, tmp_path: Path, job: list[str]) -> None:
    half, op = file(tmp_path / "in/h.jsonl", 1_000), file(tmp_path / "in/o.jsonl", 1_000)
    assert little(warehouse, *job, "--half", str(half), "--op", str(op), str(half))
    assert little(warehouse, *job, "--op", str(tmp_path / "in"), "--log", "json")
    file(tmp_path / "in/more.jsonl", LARGE)
    assert not little(warehouse, *job, "--op", str(tmp_path / "in"))
    assert not little(warehouse, *job, f"--half={tmp_path}/in/*.jsonl")


def test_files_that_came_before_the_last_landing_have_landed(warehouse: Warehouse, tmp_path: Path) -> None:
    large = file(tmp_path / "in/h.jsonl", LARGE)
    file(warehouse.root / "landed_files/_delta_log/00000000000000000000.json", at=large.stat().st_ctime + 3_600)
    assert little(warehouse, "land", "files", "--half", str(large))


@pytest.mark.parametrize(
    "command",
    [
        ["land", "store", "--path", "/store"],
        ["land", "broker", "--broker", "h:1"],
        ["land", "files", "--half", "s3a://bucket/half"],
        ["land", "files", "--half"],
        ["land", "files", "--half", "/no/such/file", "--config", "/no/such/file"],
        ["follow", "files", "--half", "h.jsonl"],
        ["reconcile", "--verify", "1"],
        ["reconcile", "--verify=1"],
        ["maintain"],
        ["simulate"],
    ],
)
def test_what_nobody_knows_from_here_may_be_much(warehouse: Warehouse, command: list[str]) -> None:
    if "--config" in command:
        assert not is_little(command[0], command[1:], {}, None)
    else:
        assert not little(warehouse, *command)


def test_readers_are_little_by_the_tables_that_they_read(warehouse: Warehouse) -> None:
    assert little(warehouse, "report")
    assert little(warehouse, "resume", "--key", "b/0/1")
    assert not little(warehouse, "audit")
    assert little(warehouse, "explain", "b/0/1")
    warehouse.rows("decisions/open=false", LARGE, at=4_000)
    assert not little(warehouse, "report")


@pytest.mark.parametrize(
    ("arguments", "environ", "config", "expected"),
    [
        ([], {}, "warehouse: null\n", True),
        ([], {}, "rules:\n  warehouse: LARGE\n", True),
        ([], {}, "warehouse: 'LARGE'  # ours\n", False),
        ([], {"HALFOP_WAREHOUSE": "LARGE"}, "", False),
        ([], {"HALFOP_WAREHOUSE": "s3a://bucket"}, "", False),
        (["--set", "warehouse=LARGE"], {}, "", False),
        (["--warehouse", "file:LARGE"], {}, "", False),
        (["--warehouse", "none", "--set", "warehouse=LARGE"], {"HALFOP_WAREHOUSE": "LARGE"}, "", True),
    ],
)
def test_the_warehouse_is_the_one_that_the_job_will_take(
    tmp_path: Path, arguments: list[str], environ: dict[str, str], config: str, expected: bool
) -> None:
    Warehouse(tmp_path / "large").rows("half_messages", LARGE, at=1_000)
    there = str(tmp_path / "large")
    file(tmp_path / "conf/halfop.yaml").write_text(config.replace("LARGE", there))
    given = {name: value.replace("LARGE", there) for name, value in environ.items()}
    assert is_little("reconcile", [each.replace("LARGE", there) for each in arguments], given, tmp_path) is expected


def test_java_takes_the_first_compilers_options() -> None:
    """Each as an argument of its own, as the training passes them."""
    subprocess.run([os.environ["HALFOP_JAVA"], *FIRST_COMPILER, "-version"], capture_output=True, check=True)


def test_set_up_has_left_an_archive() -> None:
    """A job without one only starts slower, so nobody else would see that it could not be made."""
    classes = Path(__file__).parents[1] / ".halfop" / "classes"
    if (classes / "none").exists() or not classes.exists():
        pytest.skip("set-up was called with --no-cache, or for another checkout")
    assert list(classes.glob("classes-*.jsa")), ".halfop/setup.log says why"
