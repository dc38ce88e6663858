"""The wheel: built as a user's pip builds it, installed where no checkout is, and run by its `halfop` command."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from shutil import copy, copytree, ignore_patterns
from typing import Any

import pytest
from halfop import command
from halfop.frame.errors import UsageError
from halfop.start import FIRST_COMPILER, Archive
from halfop.submit import command_line
from halfop.warehouse.spark_versions import SPARKS
from support.json_lines import half, lines, op
from support.places import ROOT

pytestmark = pytest.mark.process

SparkOf = Callable[[str, str], Path]
PARTS = ("lib", "schemas", "conf", "tools", "pyproject.toml", "setup.py", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own with the wheel; what halfop needs it takes from the tests' environment."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = built(folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    python = folder / "env/bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, str(wheel)], check=True)
    (packages,) = (folder / "env").glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    jars_of(packages / "halfop", folder / "jars")
    return folder


def jars_of(package: Path, jars: Path) -> None:
    """The jars as the wheel would fetch them, and its own, compiled from what it brings along."""
    jars.mkdir()
    for jar in Path(os.environ["HALFOP_JARS"]).iterdir():
        if jar.name != "halfop.jar":
            (jars / jar.name).symlink_to(jar)
    tool = [sys.executable, "-I", str(package / "tools/build_jar.py")]
    subprocess.run([*tool, os.environ["HALFOP_JAVA"], os.environ["SPARK_HOME"], str(jars)], check=True)


def built(folder: Path) -> Path:
    """From a copy: building leaves files beside the sources."""
    source = folder / "source"
    (source / "requirements").mkdir(parents=True)
    copy(ROOT / "requirements" / "jars.lock", source / "requirements")
    for part in PARTS:
        if (ROOT / part).is_dir():
            copytree(ROOT / part, source / part, ignore=ignore_patterns("__pycache__"))
        else:
            copy(ROOT / part, source)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "-w", str(folder), str(source)], check=True)
    (wheel,) = folder.glob("halfop-*.whl")
    return wheel


def called(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Calls the console script, with nothing of the checkout in the environment but the jars, which it would fetch."""
    kept = ("PATH", "JAVA_HOME", "HALFOP_JAVA")
    environment = {name: os.environ[name] for name in kept if name in os.environ} | {"HOME": str(installed)}
    environment["HALFOP_JARS"] = str(installed / "jars")
    environment["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1"
    return subprocess.run(
        [str(installed / "env/bin/halfop"), *arguments],
        cwd=installed,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def summary(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_it_lands_and_reconciles(installed: Path) -> None:
    halves, ops = lines(installed / "h.jsonl", half(1), half(2)), lines(installed / "o.jsonl", op(1, "1"))
    at = ("--warehouse", str(installed / "warehouse"))
    spark = ("--conf", "spark.sql.shuffle.partitions=1", "--master=local[1]")
    did = summary(called(installed, *spark, "follow", "files", "--half", halves, "--op", ops, "--once", *at))
    assert did["landing"]["rows_written"] == {"half_messages": 2, "op_messages": 1}
    assert (did["status"], did["run"]["decisions"]["COMMIT"]) == (0, {"PRODUCER": 1})
    assert list((installed / "warehouse/topics").iterdir())


def test_it_brings_all_that_it_needs_along(installed: Path) -> None:
    program = (
        "import halfop.html.page, json; from halfop import command; from halfop.settings.load import load_settings\n"
        "from halfop.settings.model import Settings; from halfop.warehouse.schema import table_names\n"
        "assert load_settings(None) == Settings()\n"
        "files = [command.JARS_LOCK, command._CONF / 'spark-defaults.conf', command._CONF / 'log4j2.properties',\n"
        "         command._TOOLS / 'fetch_jars.py', command._TOOLS / 'build_jar.py',\n"
        "         command._PACKAGE / 'html/page.css', command._PACKAGE / 'html/choices.js']\n"
        "print(json.dumps([halfop.__file__, table_names(), [str(f) for f in files if not f.is_file()]]))"
    )
    python = [str(installed / "env/bin/python"), "-c", program]
    done = subprocess.run(python, cwd=installed, env={}, capture_output=True, text=True, check=True)
    place, tables, missing = json.loads(done.stdout)
    assert place.startswith(str(installed))
    assert tables == sorted(path.stem for path in (ROOT / "schemas").glob("*.yaml"))
    assert missing == []


def test_a_program_s_own_session_gets_the_jars_that_the_command_fetches(installed: Path, tmp_path: Path) -> None:
    program = (
        "import halfop, os, pyspark; from pathlib import Path; from halfop.settings import home\n"
        "spark = '.'.join(pyspark.__version__.split('.')[:2])\n"
        "folder = home.fetched_jars(home.JARS_LOCK, spark, home.user_cache(os.environ))\n"
        "folder.mkdir(parents=True); (folder / 'a.jar').touch()\n"
        "assert halfop.spark_conf()['spark.jars'] == str(folder / 'a.jar')"
    )
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([str(installed / "env/bin/python"), "-c", program], cwd=installed, env=environ, check=True)


PROGRAM = """
from datetime import datetime, timezone

import halfop
from pyspark.sql import DataFrame, SparkSession


def cycle(spark: SparkSession) -> dict[str, int]:
    wh: halfop.Halfop = halfop.open(spark, "warehouse", settings={"lock.wait": "10m"})
    try:
        done = wh.follow_once(lambda: wh.land_broker(namesrv="a:9876", since=datetime.now(timezone.utc)))
    except halfop.InputRefused as error:
        print(error.path, error.line, error.hint)
        raise
    rows: DataFrame = wh.topic("orders")
    text: str = wh.explain("b/0/1").text + done.summary().notes[0]
    reveal_type(wh.reconcile().extra["open_messages"])
    return {text: rows.count()}
"""
WRONG = """
import halfop
halfop.opne()
halfop.open().reconcile(nwo=1)
count: str = halfop.open().reconcile().rows_read
"""


def test_a_program_s_types_are_checked_against_the_wheel(installed: Path) -> None:
    def said(program: str) -> list[str]:
        (installed / "program.py").write_text(program)
        python = str(installed / "env/bin/python")
        mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-executable", python, "program.py"]
        done = subprocess.run(mypy, cwd=installed, capture_output=True, text=True, check=False, timeout=600)
        assert done.stderr == ""
        return done.stdout.splitlines()

    shown = said(PROGRAM)
    assert shown[0].endswith('note: Revealed type is "int"')
    assert shown[1:] == ["Success: no issues found in 1 source file"]
    wrong = [line for line in said(WRONG) if ": error: " in line]
    assert [line.rpartition("  [")[2] for line in wrong] == ["attr-defined]", "call-arg]", "assignment]"]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--help",), 0, "usage: halfop [spark-submit options] JOB"),
        ((), 2, "  reconcile  Decide what becomes"),
        (("nosuch",), 2, "no job 'nosuch'\nusage: halfop"),
        (("reconcil",), 2, "no job 'reconcil'; did you mean reconcile?\nusage: halfop"),
        (("reconcile", "--help"), 0, "usage: halfop reconcile"),
        (("demo", "--warehouse", "w"), 2, "the demo needs a checkout"),
        (("reconcile", "--nwo", "1"), 2, "did you mean --now?"),
    ],
)
def test_usage(installed: Path, arguments: tuple[str, ...], status: int, said: str) -> None:
    done = called(installed, *arguments)
    assert done.returncode == status
    assert said in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "spark", "job", "options"),
    [
        (["land", "files", "--half", "h"], [], "land", ["files", "--half", "h"]),
        (["--master", "m", "--conf=a=b", "-v", "land"], ["--master", "m", "--conf", "a=b", "-v"], "land", []),
        (["--master", "land"], ["--master", "land"], "", []),
        ([], [], "", []),
    ],
)
def test_options_of_spark_stand_before_the_job(
    words: list[str], spark: list[str], job: str, options: list[str]
) -> None:
    call = command_line(words)
    assert (call.spark, call.job, list(call.options)) == (spark, job, options)


@pytest.mark.parametrize(
    ("words", "master"),
    [
        ([], "local[*]"),
        (["--master", "yarn", "--conf", "spark.master=local"], "yarn"),
        (["--conf=spark.master=local[2]", "-c", "spark.master=local[3]"], "local[3]"),
        (["--remote=sc://h"], "sc://h"),
        (["--properties-file", "no file"], "local[*]"),
    ],
)
def test_spark_s_master_is_found_as_spark_submit_does(words: list[str], master: str) -> None:
    assert command_line(words).master == master


def test_a_properties_file_may_have_any_bytes(tmp_path: Path) -> None:
    (tmp_path / "own.conf").write_bytes("spark.app.name für\nspark.master yarn\n".encode("latin-1"))
    assert command_line(["--properties-file", str(tmp_path / "own.conf")]).master == "yarn"


def test_executors_elsewhere_get_the_jars_besides_the_user_s_own(tmp_path: Path) -> None:
    (tmp_path / "a.jar").touch()

    def submitted(*words: str) -> list[str]:
        return command_line(words).submitted(tmp_path, tmp_path / "conf")

    own, ours = ["--properties-file", f"{tmp_path}/conf"], ["--driver-class-path", f"{tmp_path}/*"]
    assert submitted() == [*own, *ours]
    assert submitted("--master", "local[4]") == ["--master", "local[4]", *own, *ours]
    assert submitted("--master=spark://h:7077")[2:] == [*own, "--jars", f"{tmp_path}/a.jar", *ours]
    users = submitted(
        "--master", "yarn", "--jars", "b.jar", "--driver-class-path", "c.jar", "--properties-file", "mine"
    )
    assert users[-4:] == ["--jars", f"{tmp_path}/a.jar,b.jar", "--driver-class-path", f"{tmp_path}/*:c.jar"]
    assert submitted("--master", "yarn", "--deploy-mode", "cluster")[-2:] == ["--jars", f"{tmp_path}/a.jar"]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what a set-up called; it fetches and archives nothing."""
    called: list[str] = []

    def tool(name: str, *arguments: str) -> None:
        called.append(name)
        Path(arguments[-1]).mkdir(exist_ok=True)
        (Path(arguments[-1]) / f"{name}.jar").touch()

    monkeypatch.setattr(command, "_tool", tool)
    monkeypatch.setattr(command, "_train", lambda archive: called.append("train"))
    monkeypatch.setattr(command, "JARS_LOCK", ROOT / "requirements/jars.lock")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    set_there = ("SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS", "SPARK_LOCAL_IP", "LC_ALL", "PYTHONUTF8")
    for name in ("HALFOP_JARS", *set_there):
        monkeypatch.setenv(name, "set by this test, put back after it")
        monkeypatch.delenv(name)
    return called


def test_the_first_call_fetches_the_jars_and_no_other(tmp_path: Path, tools: list[str]) -> None:
    spark = os.environ["SPARK_HOME"]
    folder, first = command._fetched("java", spark, tmp_path / "halfop")
    assert first
    assert command._fetched("java", spark, tmp_path / "halfop") == (folder, False)
    assert tools == ["fetch_jars.py", "build_jar.py"]
    assert {path.name for path in folder.iterdir()} == {"fetch_jars.py.jar", "build_jar.py.jar"}
    assert list((tmp_path / "halfop").iterdir()) == [folder], "nothing half made is left"


def test_the_first_call_archives_the_classes_too(tools: list[str]) -> None:
    command.prepare(command_line(["run"]))
    assert tools.pop() == "train"
    assert os.environ["SPARK_SUBMIT_OPTS"] == " ".join(FIRST_COMPILER)
    del os.environ["SPARK_SUBMIT_OPTS"]
    command.prepare(command_line(["follow", "store"]))
    assert os.environ["SPARK_SUBMIT_OPTS"] == "", "both compilers"
    assert tools == ["fetch_jars.py", "build_jar.py"]


@pytest.mark.parametrize(
    ("spark", "address"),
    [
        ([], "127.0.0.1"),
        (["--master=local[2]"], "127.0.0.1"),
        (["--properties-file", "no file"], "127.0.0.1"),
        (["--conf", "spark.master=yarn", "--conf", "spark.ui.enabled=true"], None),
        (["--conf=spark.master=spark://h:7077"], None),
        (["--properties-file", "own.conf"], None),
        (["--properties-file", "own.conf", "--master", "local"], "127.0.0.1"),
    ],
)
def test_with_a_local_master_nothing_listens_beyond_this_machine(
    tools: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: list[str], address: str | None
) -> None:
    (tmp_path / "own.conf").write_text("spark.ui.enabled true\nspark.master = yarn\n")
    monkeypatch.chdir(tmp_path)
    command.prepare(command_line([*spark, "run"]))
    assert os.environ.get("SPARK_LOCAL_IP") == address


def test_java_and_python_name_files_in_utf_8_whatever_the_caller_has(
    tools: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    command.prepare(command_line([]))
    assert (os.environ["LC_ALL"], os.environ["PYTHONUTF8"]) == ("C.UTF-8", "1")


def test_too_few_open_files_are_refused_before_java_meets_them() -> None:
    code = "from halfop.command import prepare; from halfop.submit import command_line; prepare(command_line([]))"
    called = ["bash", "-c", 'ulimit -n 256; exec "$0" "$@"', sys.executable, "-c", code]
    environ = os.environ | {"PYTHONPATH": str(ROOT / "lib")}
    told = subprocess.run(called, env=environ, capture_output=True, text=True, check=False)
    assert told.stderr.splitlines()[-1].startswith("halfop.frame.errors.UsageError: a process may have 256 files open")


@pytest.fixture
def spark_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkOf:
    """Has SPARK_HOME hold a Spark, and Python a PySpark of a version."""

    def given(core: str, version: str) -> Path:
        (tmp_path / "jars").mkdir()
        (tmp_path / "jars" / f"{core}.jar").touch()
        monkeypatch.setenv("SPARK_HOME", str(tmp_path))
        monkeypatch.setattr("pyspark.__version__", version)
        return tmp_path

    return given


@pytest.mark.parametrize(
    ("core", "why"),
    [
        ("spark-core_2.12-3.5.9", "holds spark-core_2.12-3.5.9, Spark 4.0, 4.1 or 4.2 (Scala 2.13) is needed"),
        ("spark-core_2.13-4.0.5", "holds Spark 4.0, which this Python's PySpark 4.1.4 does not fit"),
    ],
)
def test_another_spark_than_python_has_is_refused_in_a_sentence(
    tools: list[str], spark_of: SparkOf, capsys: pytest.CaptureFixture[str], core: str, why: str
) -> None:
    spark_of(core, "4.1.4")
    with pytest.raises(SystemExit) as ended:
        command.run(["setup"])
    assert (ended.value.code, tools) == (2, [])
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("spark", SPARKS)
def test_each_spark_gets_jars_of_its_own(tools: list[str], spark_of: SparkOf, spark: str) -> None:
    home = spark_of(f"spark-core_2.13-{spark}.9", f"{spark}.9")
    assert command.set_up(archived=False).jars[0].name.startswith(f"jars-{spark}-")
    fits = runpy.run_path(str(ROOT / "tools/fetch_jars.py"))["fits"]
    found = re.findall(r"\S+:\S+:\S+", (ROOT / "requirements/jars.lock").read_text())
    fitting = [each for each in found if fits(each, home)]
    assert [each for each in fitting if "delta-spark" in each] == [f"io.delta:delta-spark_{spark}_2.13:4.4.0"]
    assert len(fitting) == 6


def test_set_up_archives_what_is_missing_unless_it_must_not(tools: list[str]) -> None:
    command.set_up(archived=False)
    assert tools == ["fetch_jars.py", "build_jar.py"]
    command.set_up(archived=None)
    command.set_up(archived=True)
    assert tools[2:] == ["train"]


def test_an_archive_that_cannot_be_made_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    command._train(Archive.at(str(tmp_path / "classes"), str(tmp_path / "no java"), str(tmp_path), str(tmp_path)))
    said = capsys.readouterr()
    assert said.out == ""
    assert "that failed, so jobs start slower: " in said.err
    assert "`release`" in said.err


def test_no_java_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    for name in ("JAVA_HOME", "HALFOP_JAVA"):
        monkeypatch.delenv(name, raising=False)
    assert command._major(str(old)) == 11
    with pytest.raises(UsageError, match="no Java 17 or newer"):
        command._java()
    old.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    monkeypatch.setenv("JAVA_HOME", "set by this test, put back after it")
    assert command._java() == str(old)
