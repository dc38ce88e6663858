"""An Airflow with a database of its own: installed into .halfop/ on first use, run without scheduler or server."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copy
from typing import Any

from support.places import ROOT

_LOCK = ROOT / "requirements" / "airflow.lock"
_STATE = ROOT / ".halfop" / "airflow"
_INSTALL_SECONDS, _RUN_SECONDS = 1200, 900


@dataclass(frozen=True)
class Airflow:
    """An Airflow, known by its AIRFLOW_HOME."""

    home: Path

    def started(self, *command: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """A command of Airflow's environment, with nothing of ours that would hide what it needs to bring along."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "PYTHON", "SPARK"))}
        env |= {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "PATH": f"{_STATE / 'bin'}:{os.environ['PATH']}",
            **environment,
        }
        return subprocess.run(
            [str(_STATE / "bin" / command[0]), *command[1:]],
            input=given,
            env=env,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
            timeout=_RUN_SECONDS,
        )

    def answers(self, calls: Sequence[Sequence[Any]], **environment: str) -> list[Any]:
        """The answers of parts of the DAG's file: ask.py."""
        asked = self.started("python", str(Path(__file__).with_name("ask.py")), given=json.dumps(calls), **environment)
        assert asked.returncode == 0, asked.stderr
        found: list[Any] = json.loads(asked.stdout)
        return found

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        database = sqlite3.connect(self.home / "airflow.db")
        try:
            return database.execute(query).fetchall()
        finally:
            database.close()

    def states(self) -> dict[str, str]:
        """The states of the newest run's tasks."""
        newest = "(SELECT run_id FROM dag_run ORDER BY id DESC LIMIT 1)"
        return dict(self.rows(f"SELECT task_id, state FROM task_instance WHERE run_id = {newest}"))  # noqa: S608

    def xcoms(self, key: str = "return_value") -> dict[str, Any]:
        """The newest XCom of each task."""
        rows = self.rows(f"SELECT task_id, value FROM xcom WHERE key = '{key}' ORDER BY dag_run_id")  # noqa: S608
        return {task: json.loads(value) for task, value in rows}


def local_airflow(home: Path) -> Airflow:
    _install()
    airflow = Airflow(home)
    made = airflow.started("airflow", "db", "migrate")
    assert made.returncode == 0, made.stderr
    return airflow


def python() -> str:
    """Airflow's."""
    return str(_STATE / "bin" / "python")


def _install() -> None:
    _STATE.mkdir(parents=True, exist_ok=True)
    with _STATE.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = _STATE / _LOCK.name
        if done.is_file() and done.read_bytes() == _LOCK.read_bytes():
            return
        venv.create(_STATE, clear=True, symlinks=True)
        pip = [sys.executable, "-m", "pip", "--python", python(), "install", "--quiet"]
        subprocess.run([*pip, "--require-hashes", "--no-deps", "-r", str(_LOCK)], check=True, timeout=_INSTALL_SECONDS)
        copy(_LOCK, done)
