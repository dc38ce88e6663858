"""Which tests belong to which suite: marks that follow from a test's folder, its fixtures and its module's imports."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any

import pytest

_NOT_QUICK = (
    "process",
    "long",
    "thorough",
    "slow",
    "broker",
    "s3",
    "hdfs",
    "yarn",
    "airflow",
    "notebooks",
    "browser",
    "sparks",
    "connect",
    "deploy",
    "release",
)
# Whoever imports from these starts processes of its own.
_STARTERS = {"support.crash", "support.gateway.gateways"}
_STARTS = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks `process` and `quick`."""
    for item in items:
        if _starts_processes(item):
            item.add_marker(pytest.mark.process)
        if not needs_delta(item) and not any(item.get_closest_marker(name) for name in _NOT_QUICK):
            item.add_marker(pytest.mark.quick)


def needs_delta(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


def _starts_processes(item: pytest.Item) -> bool:
    """Tests of systems, of frames in a Java, and of modules that know how to start a job or a gateway."""
    module = getattr(item, "module", None)
    known = {getattr(value, "__module__", None) for value in vars(module).values()} if module else set()
    in_java = "frames" in getattr(item, "fixturenames", ())
    return in_java or "systems" in item.path.parts or not _STARTERS.isdisjoint(known)


# ---- a quick test that starts a process fails ----

_running: list[pytest.Item] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    if item.get_closest_marker("quick"):
        _running.append(item)
    try:
        return (yield)
    finally:
        _running.clear()


def _refuse(event: str, _: tuple[Any, ...]) -> None:
    if _running and event in _STARTS:
        raise AssertionError("a quick test starts a process: mark it with pytest.mark.process")


sys.addaudithook(_refuse)
