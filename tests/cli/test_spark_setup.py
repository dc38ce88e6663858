"""What an installed package does before Spark starts: Spark's words, jars, the archive of classes, Java, addresses."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from halfop import command, spark_setup
from halfop.frame.errors import UsageError
from halfop.start import FIRST_COMPILER, Archive
from halfop.submit import command_line
from halfop.warehouse.spark_versions import SPARKS
from support.places import ROOT

pytestmark = pytest.mark.process

SparkOf = Callable[[str, str], Path]


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
        return command_line(words, tmp_path / "conf").submitted(tmp_path)

    own, ours = ["--properties-file", f"{tmp_path}/conf"], ["--driver-class-path", f"{tmp_path}/*"]
    assert submitted() == [*own, *ours]
    assert submitted("--master", "local[4]") == ["--master", "local[4]", *own, *ours]
    assert submitted("--master=spark://h:7077")[2:] == [*own, "--jars", f"{tmp_path}/a.jar", *ours]
    users = submitted(
        "--master", "yarn", "--jars", "b.jar", "--driver-class-path", "c.jar", "--properties-file", "mine"
    )
    assert users[-4:] == ["--jars", f"{tmp_path}/a.jar,b.jar", "--driver-class-path", f"{tmp_path}/*:c.jar"]
    assert submitted("--master", "yarn", "--deploy-mode", "cluster")[-2:] == ["--jars", f"{tmp_path}/a.jar"]


def test_the_file_of_settings_counts_as_options_do_and_they_win(tmp_path: Path) -> None:
    conf = tmp_path / "spark-defaults.conf"
    lines = (
        "# spark.jars no.jar",
        "spark.master=spark://h:7077",
        "spark.jars: b.jar",
        "spark.x",
        " spark.y  of two words ",
    )
    conf.write_text("\n".join([*lines, "spark.driver.extraClassPath c d.jar"]))
    call = command_line(["--driver-class-path", "e.jar", "reconcile"], conf)
    assert (call.master, call.is_local, call.value("spark.x"), call.value("spark.y")) == (
        lines[1][13:],
        False,
        "",
        "of two words",
    )
    found = call.submitted(tmp_path)
    assert found[-4:] == ["--jars", "b.jar", "--driver-class-path", f"{tmp_path}/*:e.jar"]
    assert command_line(["reconcile"], conf).submitted(tmp_path)[-1] == f"{tmp_path}/*:c d.jar"
    assert command_line(["--conf", "spark.master=local", "reconcile"], conf).is_local


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what a set-up called; it fetches and archives nothing."""
    called: list[str] = []

    def tool(name: str, *arguments: str) -> None:
        called.append(name)
        Path(arguments[-1]).mkdir(exist_ok=True)
        (Path(arguments[-1]) / f"{name}.jar").touch()

    monkeypatch.setattr(spark_setup, "_tool", tool)
    monkeypatch.setattr(spark_setup, "_train", lambda archive: called.append("train"))
    monkeypatch.setattr(spark_setup, "JARS_LOCK", ROOT / "requirements/jars.lock")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    set_there = ("SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS", "SPARK_LOCAL_IP", "LC_ALL", "PYTHONUTF8")
    for name in ("HALFOP_JARS", *set_there):
        monkeypatch.setenv(name, "set by this test, put back after it")
        monkeypatch.delenv(name)
    return called


def test_the_first_call_fetches_the_jars_and_no_other(tmp_path: Path, tools: list[str]) -> None:
    spark = os.environ["SPARK_HOME"]
    folder, first = spark_setup._fetched("java", spark, tmp_path / "halfop")
    assert first
    assert spark_setup._fetched("java", spark, tmp_path / "halfop") == (folder, False)
    assert tools == ["fetch_jars.py", "build_jar.py"]
    assert {path.name for path in folder.iterdir()} == {"fetch_jars.py.jar", "build_jar.py.jar"}
    assert list((tmp_path / "halfop").iterdir()) == [folder], "nothing half made is left"


def test_the_first_call_archives_the_classes_too(tools: list[str]) -> None:
    spark_setup.prepare(command_line(["run"]))
    assert tools.pop() == "train"
    assert os.environ["SPARK_SUBMIT_OPTS"] == " ".join(FIRST_COMPILER)
    del os.environ["SPARK_SUBMIT_OPTS"]
    spark_setup.prepare(command_line(["follow", "store"]))
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
    spark_setup.prepare(command_line([*spark, "run"]))
    assert os.environ.get("SPARK_LOCAL_IP") == address


def test_java_and_python_name_files_in_utf_8_whatever_the_caller_has(
    tools: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    spark_setup.prepare(command_line([]))
    assert (os.environ["LC_ALL"], os.environ["PYTHONUTF8"]) == ("C.UTF-8", "1")


def test_too_few_open_files_are_refused_before_java_meets_them() -> None:
    code = "from halfop.spark_setup import prepare; from halfop.submit import command_line; prepare(command_line([]))"
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


def test_a_folder_without_halfop_s_jar_is_refused_before_java_starts(
    tools: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HALFOP_JARS", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        command.run(["report", "--warehouse", str(tmp_path / "w")])
    assert (ended.value.code, tools) == (2, [])
    assert f"halfop report: HALFOP_JARS ({tmp_path}) has no halfop.jar: name " in capsys.readouterr().err
    (tmp_path / "halfop.jar").touch()
    assert spark_setup.set_up(archived=False).jars[0] == tmp_path


@pytest.mark.parametrize(
    ("words", "status"), [("setup -h", 0), ("completion --help", 0), ("setup --cache", 2), ("completion tcsh", 2)]
)
def test_words_that_are_no_job_are_known_to_the_usage(
    tools: list[str], capsys: pytest.CaptureFixture[str], words: str, status: int
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.run(words.split())
    assert (ended.value.code, tools) == (status, [])
    assert capsys.readouterr().err.startswith("usage: halfop ")


@pytest.mark.parametrize("spark", SPARKS)
def test_each_spark_gets_jars_of_its_own(tools: list[str], spark_of: SparkOf, spark: str) -> None:
    home = spark_of(f"spark-core_2.13-{spark}.9", f"{spark}.9")
    assert spark_setup.set_up(archived=False).jars[0].name.startswith(f"jars-{spark}-")
    fits = runpy.run_path(str(ROOT / "tools/fetch_jars.py"))["fits"]
    found = re.findall(r"^[0-9a-f]{64} .*", (ROOT / "requirements/jars.lock").read_text(), re.MULTILINE)
    fitting = [each.split()[1] for each in found if fits(each, home)]
    assert [each for each in fitting if "delta-spark" in each] == [f"io.delta:delta-spark_{spark}_2.13:4.4.0"]
    assert len(fitting) == (12 if spark == "4.0" else 6)


@pytest.mark.parametrize(
    ("none", "direct"),
    [
        ("", ""),
        ("*", "*"),
        ("maven.corp, .lan,*.lab,10.0.0.7:81,", "maven.corp|*.maven.corp|lan|*.lan|lab|*.lab|10.0.0.7|*.10.0.0.7"),
    ],
)
def test_jars_come_past_the_proxy_from_where_no_proxy_says(
    monkeypatch: pytest.MonkeyPatch, none: str, direct: str
) -> None:
    """As Python's packages do."""
    for name, value in {"http": "", "https": "http://proxy:3128", "no": none}.items():
        monkeypatch.setenv(f"{name}_proxy", value)
        monkeypatch.delenv(f"{name}_proxy".upper(), raising=False)
    proxied, *found = runpy.run_path(str(ROOT / "tools/fetch_jars.py"))["proxy_options"]()
    assert proxied == "-Dhttps.proxyHost=proxy -Dhttps.proxyPort=3128"
    assert found == ([f"-Dhttp.nonProxyHosts=localhost|127.*|[::1]|{direct}"] if direct else [])


def test_set_up_archives_what_is_missing_unless_it_must_not(tools: list[str]) -> None:
    spark_setup.set_up(archived=False)
    assert tools == ["fetch_jars.py", "build_jar.py"]
    spark_setup.set_up(archived=None)
    spark_setup.set_up(archived=True)
    assert tools[2:] == ["train"]


def test_an_archive_that_cannot_be_made_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    spark_setup._train(Archive.at(str(tmp_path / "classes"), str(tmp_path / "no java"), str(tmp_path), str(tmp_path)))
    said = capsys.readouterr()
    assert said.out == ""
    assert "that failed, so jobs start slower: " in said.err
    assert "`release`" in said.err


def test_no_java_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(spark_setup, "find_spec", lambda name: None)
    for name in ("JAVA_HOME", "HALFOP_JAVA"):
        monkeypatch.delenv(name, raising=False)
    assert spark_setup._major(str(old)) == 11
    with pytest.raises(UsageError, match="no Java 17 or newer"):
        spark_setup._java()
    old.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    monkeypatch.setenv("JAVA_HOME", "set by this test, put back after it")
    assert spark_setup._java() == str(old)
    monkeypatch.setenv("HALFOP_JAVA", str(tmp_path))
    with pytest.raises(UsageError, match=r"HALFOP_JAVA \(.*\) is no Java 17 or newer: name the program"):
        spark_setup._java()
