"""The start of a job's Java: which archive fits, and how it and the choice of a compiler reach Java."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from halfop.frame.errors import HalfopError
from halfop.start import FIRST_COMPILER, SPARKS_WARNINGS, Archive, quoted, spark_submit_opts
from support.places import ROOT

pytestmark = pytest.mark.process


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
    found = spark_submit_opts(archive, {"SPARK_SUBMIT_OPTS": "-Xss4m -XX:TieredStopAtLevel=4"})
    assert found == " ".join([*archive.options(), *FIRST_COMPILER, "-Xss4m -XX:TieredStopAtLevel=4"])


@pytest.mark.parametrize(
    "users", ["-Xshare:off", "-XX:SharedArchiveFile=mine", "-XX:ArchiveClassesAtExit=mine", "-XX:AOTCache=mine"]
)
def test_a_users_own_archive_stands_alone(archive: Archive, users: str) -> None:
    assert spark_submit_opts(archive, {"SPARK_SUBMIT_OPTS": users}) == " ".join([*FIRST_COMPILER, users])


@pytest.mark.parametrize(
    ("job", "alone"),
    [
        (["follow", "broker", "--every", "5s"], False),
        (["follow", "store", "--once"], True),
        (["simulate", "--every", "1m"], False),
        (["reconcile", "--warehouse", "simulate"], True),
        (["reconcile", "--warehouse", "follow"], True),
        ([], True),
    ],
)
def test_a_job_of_many_runs_gets_both_compilers(archive: Archive, job: list[str], alone: bool) -> None:
    assert ("TieredStopAtLevel" in spark_submit_opts(archive, {}, job)) == alone


@pytest.mark.parametrize(
    ("job", "shown"), [(["reconcile", "-v"], True), (["land", "files", "--verbose"], True), ([], False)]
)
def test_verbose_shows_what_spark_warns_of(archive: Archive, job: list[str], shown: bool) -> None:
    assert (SPARKS_WARNINGS in spark_submit_opts(archive, {}, job).split()) == shown


@pytest.mark.parametrize("option", ["-XX:A=b", "-XX:A=b c", '-XX:A="b c"', "-XX:A=b\\ c"])
def test_sparks_launcher_reads_an_option_as_it_was(option: str) -> None:
    """It takes quotes and backslashes as a shell does."""
    shell = subprocess.run(["/bin/sh", "-c", f"printf %s {quoted(option)}"], capture_output=True, text=True, check=True)
    assert shell.stdout == option


def test_java_takes_the_first_compilers_options() -> None:
    """Each as an argument of its own, as the training passes them."""
    subprocess.run([os.environ["HALFOP_JAVA"], *FIRST_COMPILER, "-version"], capture_output=True, check=True)


def test_set_up_has_left_an_archive() -> None:
    """A job without one only starts slower, so nobody else would see that it could not be made."""
    classes = ROOT / ".halfop" / "classes"
    if (classes / "none").exists() or not classes.exists():
        pytest.skip("set-up was called with --no-cache, or for another checkout")
    assert list(classes.glob("classes-*.jsa")), ".halfop/setup.log says why"
