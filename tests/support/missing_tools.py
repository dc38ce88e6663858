"""Tests that were skipped: named in one line at the end of a run, and an error where CI is meant to have their tool."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from _pytest.terminal import TerminalReporter

CI_HAS = ("flock", "systemd-analyze")


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    found = _reasons(terminalreporter)
    if found:
        each = "; ".join(f"{number} because: {reason}" for reason, number in sorted(found.items()))
        terminalreporter.write_line(f"skipped {found.total()} tests: {each}", yellow=True)
    for reason in _not_in_ci(terminalreporter):
        terminalreporter.write_line(f"failed: a test {reason}, which CI is meant to have", red=True)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and _not_in_ci(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _not_in_ci(reporter: TerminalReporter) -> list[str]:
    """The reasons that must not be in CI; none elsewhere."""
    if not os.environ.get("CI"):
        return []
    return [reason for reason in _reasons(reporter) if any(f"needs {tool}" in reason for tool in CI_HAS)]


def _reasons(reporter: TerminalReporter) -> Counter[str]:
    """Why tests were skipped, and how many for each reason."""
    reports = reporter.stats.get("skipped", [])
    texts = [report.longrepr[2] if isinstance(report.longrepr, tuple) else "" for report in reports]
    return Counter(text.removeprefix("Skipped: ") for text in texts)
