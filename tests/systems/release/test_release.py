"""A release as its users get it: the wheel from an index, its extras, what it brings, known vulnerabilities."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from support.places import ROOT
from support.wheels import built

from systems.release.release_tools import called, environment, tool

pytestmark = pytest.mark.release

LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
LOCKS_OF_A_RUN = [each for each in LOCKS if each.stem in ("runtime", "java")]
SPARK = {"pyspark", "delta-spark", "py4j"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"))


def test_twine_finds_nothing_wrong(wheel: Path, tmp_path: Path) -> None:
    done = called(tool("twine"), "check", "--strict", wheel, home=tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.timeout(3600)
def test_two_commands_make_a_reconciled_warehouse(wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "env")
    pip = called(sys.executable, "-m", "pip", "--python", python, "install", "-q", f"{wheel}[spark]", home=tmp_path)
    assert pip.returncode == 0, pip.stderr
    demo = called(python.with_name("halfop"), "demo", home=tmp_path)
    assert demo.returncode == 0, demo.stderr
    assert json.loads(demo.stdout.splitlines()[-1])["rows_written"]["topics"] == 225
    assert (tmp_path / "report.html").is_file()
    assert len(list((tmp_path / "warehouse/demo/topics").iterdir())) == 3
    explain = next(line for line in demo.stdout.splitlines() if line.startswith("    halfop explain ")).split()
    assert "COMMIT" in called(python.with_name("halfop"), *explain[1:], home=tmp_path).stdout


@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_the_gateway_s_extra_brings_no_spark(wheel: Path, tmp_path: Path, installer: str, installed: bool) -> None:
    python = environment(tmp_path / "env")
    if installed:
        pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel]
        assert called(*pip, home=tmp_path).returncode == 0
    of: dict[str, list[str | Path]] = {
        "pip": [sys.executable, "-m", "pip", "--python", python, "install", "--dry-run"],
        "uv": [tool("uv"), "pip", "install", "--python", python, "--dry-run"],
    }
    for extra, spark in (("gateway", set()), ("spark", SPARK)):
        done = called(*of[installer], f"{wheel}[{extra}]", home=tmp_path)
        assert done.returncode == 0, done.stderr
        names = {name.replace("_", "-") for name in re.findall(r"\b([a-z0-9_-]+)(?:==|-)\d", done.stdout + done.stderr)}
        assert names & (SPARK | {"deltalake"}) == spark | {"deltalake"}


def test_the_list_of_all_that_halfop_brings_is_whole(tmp_path: Path) -> None:
    for name in ("first", "again"):
        done = called(tool("python"), ROOT / "tools/sbom.py", tmp_path / name, home=tmp_path)
        assert done.returncode == 0, done.stderr
    text = (tmp_path / "first").read_text()
    assert text == (tmp_path / "again").read_text()
    found = {each["purl"] for each in json.loads(text)["components"]}
    locked = re.findall(r"^([\w.-]+)==(\S+)", "".join(map(Path.read_text, LOCKS_OF_A_RUN)), re.MULTILINE)
    jars = re.findall(r"^[0-9a-f]{64} (\S+):(\S+):(\S+)", (ROOT / "requirements/jars.lock").read_text(), re.MULTILINE)
    assert len(jars) == 14
    expected = {f"pkg:pypi/{name}@{version}" for name, version in locked}
    assert found == expected | {f"pkg:maven/{group}/{name}@{version}" for group, name, version in jars}


@pytest.mark.parametrize("lock", [each for each in LOCKS if each.stem != "jars"], ids=lambda lock: lock.stem)
def test_no_locked_package_is_known_to_be_vulnerable(lock: Path, tmp_path: Path) -> None:
    audit: list[str | Path] = [
        tool("pip-audit"),
        "--format",
        "json",
        "--progress-spinner",
        "off",
        "--disable-pip",
        "--require-hashes",
    ]
    done = called(*audit, "-r", lock, home=tmp_path)
    known = [] if "requests.exceptions." in done.stderr else json.loads(done.stdout)["dependencies"]
    audited = [each for each in known if "skip_reason" not in each]
    if not audited:
        pytest.skip("needs an index that knows of vulnerabilities")
    assert len(audited) == len(known), [each for each in known if each not in audited]
    assert [each for each in audited if each["vulns"]] == []
