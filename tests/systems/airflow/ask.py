"""Calls parts of dags/halfop.py in Airflow's environment: calls come on stdin, and they and their answers are JSON.

A call is a list: a name, and its arguments. `status` starts a job in that environment and returns its error, if any.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

DAG_FILE = Path(__file__).parents[3] / "dags" / "halfop.py"


class Pushed:
    """Stands for the task instance: takes XComs."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.values[key] = value


def loaded() -> ModuleType:
    spec = spec_from_file_location("halfop_dag", DAG_FILE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def status(dag: ModuleType, job: str, environment: Mapping[str, str]) -> Any:
    pushed, told = Pushed(), ""
    os.environ.update(environment)
    try:
        dag.HalfopOperator(task_id=job).execute({"ti": pushed, "params": {"now": "T"}})
    except Exception as error:
        told = named(error)
    for name in environment:
        del os.environ[name]
    return told, pushed.values


def answer(dag: ModuleType, name: str, *arguments: Any) -> Any:
    own: dict[str, Callable[..., Any]] = {
        "status": status,
        "open_complaints": lambda dag, found, given: list(dag.open_complaints(found, dag.Settings(**given))),
        "complaints": lambda dag, summaries: list(dag.complaints(summaries)),
    }
    return own[name](dag, *arguments) if name in own else getattr(dag, name)(*arguments)


if __name__ == "__main__":
    calls = json.load(sys.stdin)
    out, sys.stdout = sys.stdout, sys.stderr  # Airflow logs to stdout
    json.dump([answer(loaded(), *call) for call in calls], out)
