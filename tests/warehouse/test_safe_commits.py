"""Stores that let a commit overwrite another's are refused before the first table is made."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyspark
import pytest
from halfop.warehouse import files as file_systems
from halfop.warehouse.files import Files
from pyspark.sql import SparkSession
from support.crash import ended, job
from support.json_lines import half, lines
from support.places import PROGRAMS
from systems.broker.real_broker import compiled

_JARS = Path(str(pyspark.__file__)).parent / "jars"


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file system of such a store."""
    return compiled(PROGRAMS / "Heedless.java", _JARS, tmp_path_factory.mktemp("classes"))


def landed(classes: Path, folder: Path, **settings: str) -> tuple[int, str]:
    """The end of `land files` with a warehouse there."""
    known = {"fs.heedless.impl": "heedless.Heedless", "fs.AbstractFileSystem.heedless.impl": "heedless.Heedless$Fs"}
    hadoop = {f"spark.hadoop.{name}": value for name, value in known.items()}
    options = [part for name, value in (hadoop | settings).items() for part in ("--conf", f"{name}={value}")]
    given = str(lines(folder / "h.jsonl", half(0)))
    command = [*options, "land", "files", "--half", given, "--warehouse", f"heedless://{folder}/warehouse"]
    return ended(job(*command, SPARK_DIST_CLASSPATH=str(classes)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "problem"),
    [
        ("HDFSLogStore", r"[234] of 4 writers at once made the same commit"),  # a look and a rename
        ("GCSLogStore", r"4 of 4 writers at once made the same commit"),  # create(overwrite=false)
        ("S3SingleDriverLogStore", r"it only looks before it writes"),
    ],
)
def test_a_store_whose_commits_overwrite_is_refused(classes: Path, tmp_path: Path, store: str, problem: str) -> None:
    names = ("spark.delta.logStore.heedless.impl", "spark.hadoop.io.delta.kernel.logStore.heedless.impl")
    status, said = landed(classes, tmp_path, **dict.fromkeys(names, f"io.delta.storage.{store}"))
    assert status == 2, said
    assert re.search(rf"\(io\.delta\.storage\.{store}: {problem}", said), said
    assert "s3a://" in said
    assert not [*(tmp_path / "warehouse").rglob("*.json")]
    assert not [*(tmp_path / "warehouse").glob("_probe-*")]


@pytest.mark.slow
def test_also_a_store_of_the_connector_s_alone(classes: Path, tmp_path: Path) -> None:
    """Kernel commits by another one."""
    settings = {"spark.delta.logStore.heedless.impl": "io.delta.storage.GCSLogStore"}
    status, said = landed(classes, tmp_path, **settings, **{"spark.hadoop.fs.heedless.refuses": "rename"})
    assert status == 2, said
    assert "(io.delta.storage.GCSLogStore: 4 of 4" in said


@pytest.mark.slow
def test_a_store_that_refuses_the_second_commit_is_taken(classes: Path, tmp_path: Path) -> None:
    status, said = landed(classes, tmp_path, **{"spark.hadoop.fs.heedless.refuses": "rename create"})
    assert status == 0, said
    assert json.loads(said.splitlines()[-1])["rows_written"] == {"half_messages": 1}
    assert not [*(tmp_path / "warehouse").glob("_probe-*")]


def test_the_log_store_of_a_local_disk_makes_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    assert file_systems._problem(spark, f"file:{tmp_path}") is None
    assert not [*tmp_path.iterdir()]


def test_a_folder_is_asked_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(file_systems, "_problem", lambda spark, root: asked.append(root))
    files = Files(spark, str(tmp_path))
    file_systems.refuse_unsafe(spark, files, str(tmp_path))
    assert not asked, "a local disk is not asked"
    monkeypatch.setattr(Files, "local", lambda *_: None)
    for _ in range(2):
        file_systems.refuse_unsafe(spark, files, str(tmp_path))
    assert asked == [str(tmp_path)]
