"""`open` where Spark Connect has a session, which a stub plays: the suite's venv lacks its client."""

from __future__ import annotations

import socket
import sys
from types import SimpleNamespace

import halfop
import pytest
from halfop.warehouse.session import spark_session
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession


class Running:
    """It has no `conf`, so who sets something fails."""


Running.__module__ = "pyspark.sql.connect.session"


def _none() -> object:
    raise PySparkRuntimeError("NO_ACTIVE_OR_DEFAULT_SESSION")


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> object:
    made = Running()
    connect = SimpleNamespace(SparkSession=SimpleNamespace(active=lambda: made))
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect.session", connect)
    return made


def test_the_session_that_runs_is_the_servers(running: object) -> None:
    assert halfop.open().spark is running


def test_the_session_that_runs_keeps_its_settings(running: object, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("SPARK_REMOTE", f"sc://127.0.0.1:{server.getsockname()[1]}")
        assert spark_session("tests") is running


def test_a_client_without_a_session_is_passed_over(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = SimpleNamespace(SparkSession=SimpleNamespace(active=_none))
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect.session", connect)
    assert isinstance(halfop.open().spark, type(spark))
