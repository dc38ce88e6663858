"""A host of gateways has no Spark: nothing on a gateway's way imports it, and other jobs say what they lack."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from halfop.gateway.producer import Producer
from support.gateway.gateways import gateway
from support.places import ROOT

HIDDEN = """
import sys
sys.modules.update(dict.fromkeys(%r))
from halfop.command import run
run([*%r, *sys.argv[1:]])
"""
SPARK, GATEWAY = ("pyspark", "delta", "py4j"), ("deltalake", "uvloop")


def hidden(folder: Path, modules: tuple[str, ...], *words: str) -> Path:
    """A program that calls the command in a Python that lacks modules."""
    program = folder / "hidden.py"
    program.write_text(HIDDEN % (modules, words))
    return program


def called(folder: Path, modules: tuple[str, ...], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(hidden(folder, modules, *words))]
    environ = {"PYTHONPATH": str(ROOT / "lib")}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)


def test_a_producer_sends_and_ends_without_spark(tmp_path: Path) -> None:
    with gateway(tmp_path, "--set", "gateway.look_every=50ms", job=hidden(tmp_path, SPARK, "gateway")) as running:
        with Producer(running.address, "shop", lambda _: "COMMIT") as producer:
            assert producer.transaction("orders", b"one", lambda _: "COMMIT").topic == "orders"
        assert running.stop() == 0
    assert '"COMMIT_ENDED": 1' in (tmp_path / "gateway.out").read_text()


@pytest.mark.parametrize("words", [("reconcile", "--help"), ("demo",), ("setup",)])
def test_a_job_of_spark_says_what_it_lacks(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = called(tmp_path, SPARK, *words)
    assert (done.returncode, done.stdout) == (2, "")
    text = f"halfop: {words[0]} needs Spark, and this Python has no module pyspark: pip install 'halfop[spark]'\n"
    assert done.stderr == text


def test_the_python_api_says_what_it_lacks(tmp_path: Path) -> None:
    program = tmp_path / "opened.py"
    program.write_text(f"import sys\nsys.modules.update(dict.fromkeys({SPARK}))\nimport halfop\nhalfop.open()\n")
    done = subprocess.run(
        [sys.executable, str(program)],
        env={"PYTHONPATH": str(ROOT / "lib")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr.endswith("ModuleNotFoundError: halfop.open needs Spark: pip install 'halfop[spark]'\n")


def test_a_gateway_says_what_it_lacks(tmp_path: Path) -> None:
    done = called(tmp_path, GATEWAY, "gateway", "--help")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(": pip install 'halfop[gateway]'\n")


def test_help_and_version_say_that_spark_is_missing(tmp_path: Path) -> None:
    shown = called(tmp_path, SPARK, "--help")
    assert shown.returncode == 0
    assert "  reconcile  Run the rules" in shown.stderr
    assert shown.stderr.endswith("every job but gateway and init needs it: pip install 'halfop[spark]'\n")
    assert "\nSpark is not installed: " in called(tmp_path, SPARK, "--version").stdout
