"""The jobs of jobs/, as their spark-submit entry points have them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from halfop.frame.cli import Job


def job_of(name: str) -> Job:
    spec = importlib.util.spec_from_file_location(f"{name}_job", Path(__file__).parents[2] / "jobs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    job: Job = module.JOB
    return job
