"""The jobs of jobs/, as their spark-submit entry points have them."""

from __future__ import annotations

import importlib.util

from halfop.frame.cli import Job

from support.places import ROOT


def job_of(name: str) -> Job:
    spec = importlib.util.spec_from_file_location(f"{name}_job", ROOT / "jobs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    job: Job = module.JOB
    return job
