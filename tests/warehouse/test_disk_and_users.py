"""Disks that turn read-only and back, and warehouses of two users: real mounts, real modes, real jobs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from runs.test_full_disk import small_disk, told
from support.another_user import POWERLESS, give_to_another, needs_another_user
from support.json_lines import half, lines, op
from support.places import ROOT

SCRIPT = ROOT / "spark-submit.sh"
pytestmark = pytest.mark.slow


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Two landings, each of a message and its op."""
    folder = tmp_path / "in"
    for number in (1, 2):
        lines(folder / f"half-{number}.jsonl", half(number))
        lines(folder / f"op-{number}.jsonl", op(number, str(number)))
    return folder


def job(warehouse: Path, *words: str, before: tuple[str, ...] = (), umask: int = 0o022) -> dict[str, object]:
    """The summary of a job, in a process of its own."""
    command = [*before, str(SCRIPT), *words, "--warehouse", str(warehouse), "--log", "json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, umask=umask)
    assert "\tat " not in ran.stderr, "a stack trace of Java's"
    summary = json.loads(ran.stdout.splitlines()[-1])
    assert summary["status"] == ran.returncode
    return dict(summary)


def landing(inputs: Path, number: int) -> tuple[str, ...]:
    return ("land", "files", "--half", f"{inputs}/half-{number}.jsonl", "--op", f"{inputs}/op-{number}.jsonl")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk"):
        yield tmp_path / "disk"


def test_a_disk_that_turns_read_only_and_back(disk: Path, inputs: Path) -> None:
    warehouse = disk / "warehouse"
    assert job(warehouse, *landing(inputs, 1))["status"] == 0
    assert told("mount", "-o", "remount,ro", disk) is not None
    for words in (landing(inputs, 2), ("reconcile",), ("follow", *landing(inputs, 2)[1:], "--once")):
        summary = job(warehouse, *words)
        said = str(summary.get("error") or summary["landing"])
        assert summary["status"] == 1
        assert f"{warehouse}/." in said
        assert "the disk can only be read. Mount it to be written, and start again, which is always safe" in said
    assert job(warehouse, "explain", "b/0/1")["status"] == 0, "reading goes on"
    assert job(warehouse, "simulate", "--set", "transaction_timeout=30s")["status"] == 0
    assert told("mount", "-o", "remount,rw", disk) is not None
    assert job(warehouse, "follow", *landing(inputs, 2)[1:], "--once")["decisions"] == {"COMMIT": {"PRODUCER": 2}}


@needs_another_user
def test_what_another_user_keeps_private_is_refused_with_its_path(tmp_path: Path, inputs: Path) -> None:
    warehouse = tmp_path / "warehouse"
    assert job(warehouse, *landing(inputs, 1), umask=0o077)["status"] == 0
    assert [path for path in warehouse.rglob("*") if path.stat().st_mode & 0o077] == []
    give_to_another(warehouse)
    warehouse.chmod(0o755)
    for words in (landing(inputs, 2), ("reconcile",), ("explain", "b/0/1"), ("maintain",)):
        summary = job(warehouse, *words, before=POWERLESS, umask=0o077)
        assert summary["status"] == 1
        assert str(summary["error"]).startswith(f"{warehouse}/")
        assert "user root (number 0) may not read or write there. Start as the user that" in str(summary["error"])


@needs_another_user
def test_two_users_of_one_group_share_a_warehouse(tmp_path: Path, inputs: Path) -> None:
    warehouse = tmp_path / "warehouse"
    assert job(warehouse, *landing(inputs, 1), umask=0o002)["status"] == 0
    told("chown", "-R", "nobody", warehouse)  # its group is still root's
    second = job(warehouse, "follow", *landing(inputs, 2)[1:], "--once", before=POWERLESS, umask=0o002)
    assert second["decisions"] == {"COMMIT": {"PRODUCER": 2}}
    assert [path for path in warehouse.rglob("*") if not path.stat().st_mode & 0o020] == []
