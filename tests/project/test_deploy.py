"""deploy/: what its files say of the checkout is so. tests/systems/deploy asks those who read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from halfop.command import job_of
from halfop.frame.cli import main
from halfop.frame.errors import UsageError
from support.places import ROOT
from systems.deploy.containerfile import image

DEPLOY = ROOT / "deploy"
SPARK = yaml.safe_load((DEPLOY / "kubernetes/sparkapplication.yaml").read_text())["spec"]


def test_the_page_names_what_is_there() -> None:
    page = (DEPLOY / "README.md").read_text()
    there = [path for path in DEPLOY.iterdir() if path.name != "README.md"]
    assert [path.name for path in there if f"({path.name}" not in page] == []


def test_the_image_copies_only_what_is_not_ignored() -> None:
    steps = image(DEPLOY / "container/Containerfile").steps
    sources = {each for word, words in steps if word == "COPY" for each in words[:-1]}
    kept = {line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")}
    assert sources == kept
    assert [each for each in sources if not (ROOT / each).exists()] == []


def test_a_driver_of_sparks_operator_has_the_settings_of_a_checkout() -> None:
    text = (ROOT / "conf/spark-defaults.conf").read_text()
    ours = dict(re.findall(r"^(spark\.\S+) +(\S+)$", text, re.MULTILINE))
    of_a_terminal_or_yarn = ("spark.master", "spark.ui.showConsoleProgress", "spark.yarn.appMasterEnv.LC_ALL")
    there = SPARK["sparkConf"]
    assert {key: there.get(key) for key in ours} | {key: ours[key] for key in of_a_terminal_or_yarn} == ours
    (spark,) = re.findall(r"^pyspark==(\S+)", (ROOT / "requirements/runtime.lock").read_text(), re.MULTILINE)
    assert SPARK["runtimeVersions"]["sparkVersion"] == spark
    assert f"/jars/{spark[:3]}/" in there["spark.driver.extraClassPath"]


def _calls() -> Iterator[list[str]]:
    """The calls of halfop in the files for Kubernetes."""
    yield [Path(SPARK["pyFiles"]).stem, *SPARK["driverArgs"]]
    for job in yaml.safe_load_all((DEPLOY / "kubernetes/cronjob.yaml").read_text()):
        pod: dict[str, Any] = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        yield pod["containers"][0]["args"]


@pytest.mark.parametrize("words", list(_calls()), ids=lambda words: words[0])
def test_jobs_know_the_options(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(job_of(words[0]), [*words[1:], "--no-such-option"]) == UsageError.exit_status
    (unknown,) = re.findall(r"unrecognized arguments: (.*?)(?:;.*)?$", capsys.readouterr().err, re.MULTILINE)
    assert unknown == "--no-such-option"
