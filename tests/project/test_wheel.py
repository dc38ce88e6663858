"""The wheel: built as a user's pip builds it, installed where no checkout is, and run by its `halfop` command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path
from typing import Any

import halfop
import pytest
from support.json_lines import half, lines, op
from support.places import ROOT
from support.wheels import built

pytestmark = pytest.mark.process


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


@pytest.mark.thorough
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
        "import halfop.html.page, json; from halfop import spark_setup; from halfop.settings.home import sample\n"
        "from halfop.demo import passes; from halfop.settings.load import load_settings\n"
        "from halfop.settings.model import Settings; from halfop.warehouse.schema import table_names\n"
        "assert load_settings(None) == Settings() and len(passes(sample({}))) == 3\n"
        "files = [spark_setup.JARS_LOCK, spark_setup._CONF / 'spark-defaults.conf',\n"
        "         spark_setup._CONF / 'log4j2.properties', spark_setup._TOOLS / 'fetch_jars.py',\n"
        "         spark_setup._TOOLS / 'build_jar.py', spark_setup._PACKAGE / 'html/page.css',\n"
        "         spark_setup._PACKAGE / 'html/choices.js']\n"
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


@pytest.mark.thorough
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
        (("--version",), 0, f"Delta {version('delta-spark')}\n"),
        (("--version",), 0, f"halfop {halfop.__version__}\nSpark {version('pyspark')} (/"),
        ((), 2, "  reconcile  Run the rules over"),
        (("nosuch",), 2, "no job 'nosuch'\nusage: halfop"),
        (("reconcil",), 2, "no job 'reconcil'; did you mean reconcile?\nusage: halfop"),
        (("reconcile", "--help"), 0, "usage: halfop reconcile"),
        (("demo", "--warehouse", "s3a://b/w"), 2, "the demo runs on a local folder"),
        (("reconcile",), 2, "which warehouse?"),
        (("reconcile", "--nwo", "1"), 2, "did you mean --now?"),
    ],
)
def test_usage(installed: Path, arguments: tuple[str, ...], status: int, said: str) -> None:
    done = called(installed, *arguments)
    assert done.returncode == status
    assert said in done.stdout + done.stderr
