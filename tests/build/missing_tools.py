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


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("CI") or reporter is None:
        return
    lacking = [reason for reason in _reasons(reporter) if any(f"needs {tool}" in reason for tool in CI_HAS)]
    if lacking:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter.write_line(f"failed: CI is meant to have what these tests need: {'; '.join(lacking)}", red=True)


def _reasons(reporter: TerminalReporter) -> Counter[str]:
    """Why tests were skipped, and how many for each reason."""
    reports = reporter.stats.get("skipped", [])
    texts = [report.longrepr[2] if isinstance(report.longrepr, tuple) else "" for report in reports]
    return Counter(text.removeprefix("Skipped: ") for text in texts)
