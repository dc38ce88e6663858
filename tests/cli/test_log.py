"""Lines of --log json say which job and which run they are of."""

from __future__ import annotations

import argparse
import json
import logging
import threading
from typing import Any

import pytest
from halfop.frame.cli import Context, Job, main
from halfop.frame.errors import HalfopError
from halfop.frame.log import configure, logged_with
from halfop.frame.summary import Summary
from halfop.start import SPARKS_WARNINGS
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession
from support import rows as r
from support.messages import NOW, RULES, one_of_each
from support.places import ROOT

pytestmark = pytest.mark.usefixtures("logging_as_before")


def run(context: Context, args: argparse.Namespace) -> Summary:
    context.log.info("before")
    with logged_with(run_id=7):
        thread = threading.Thread(target=context.log.info, args=["in a thread"])
        thread.start()
        thread.join()
        with logged_with(run_id=6):
            context.log.info("nested")
        logging.getLogger("elsewhere").warning("Spark's, say", extra={"run_id": "its own"})
    context.log.info("between")
    with logged_with(run_id=8):
        raise HalfopError("broken")


def quiet(context: Context, args: argparse.Namespace) -> Summary:
    context.log.info("all is well")
    return Summary("land")


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_every_line_of_a_run_carries_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(Job("reconcile", "", run), ["--log", "json"]) == 1
    lines = lines_of(capsys)
    assert {line["job"] for line in lines} == {"reconcile"}
    assert [(line["message"], line.get("run_id")) for line in lines] == [
        ("before", None),
        ("in a thread", 7),
        ("nested", 6),
        ("Spark's, say", "its own"),
        ("between", None),
        ("broken", 8),
    ]


def test_an_interrupt_is_said_once(capsys: pytest.CaptureFixture[str], logging_as_before: None) -> None:
    """PySpark's connection to Java logs it, too, with a traceback."""
    configure(False, False)
    logging.getLogger().error("KeyboardInterrupt while sending command.")
    logging.getLogger().error("another error")
    assert capsys.readouterr().err.splitlines()[0].endswith("ERROR another error")


def test_a_job_leaves_nothing_to_the_next(capsys: pytest.CaptureFixture[str]) -> None:
    main(Job("reconcile", "", run), ["--log", "json"])
    capsys.readouterr()
    main(Job("land", "", quiet), ["--log", "json"])
    (line,) = lines_of(capsys)
    assert line["job"] == "land"
    assert "run_id" not in line


def test_a_real_run(warehouse: Warehouse, capsys: pytest.CaptureFixture[str]) -> None:
    one_of_each(warehouse)
    configure(False, True)
    summary = r.run(warehouse, RULES, NOW)
    assert (summary.extra["open_messages"], summary.extra["oldest_open_seconds"]) == (1, 10)
    lines = [line for line in lines_of(capsys) if line["logger"] == "halfop.reconcile"]
    assert [line["message"].split(":")[0] for line in lines] == [
        "run 1 decides grouped",
        "run 1 rejected 1 row as OP.CONFLICT (an op that says the opposite of how the transaction had ended; "
        "the first end stands); one of them",
        "run 1 rejected 1 row as HALF.BAD_REAL_TOPIC (no or illegal REAL_TOPIC); one of them",
        "run 1 closed",
    ]
    assert {line["run_id"] for line in lines} == {1}


# ---- Java's log ----


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize(
    ("logger", "noise", "other"),
    [
        (
            "scheduler.TaskSetManager",
            "Stage 1 contains a task of very large size (4 KiB).",
            "Lost task 0.0 in stage 1.0",
        ),
        ("executor.Executor", "Issue communicating with driver in heartbeater", "Exception in task 0.0"),
    ],
)
def test_what_spark_warns_of_is_shown_by_verbose_alone(
    spark: SparkSession, logger: str, noise: str, other: str, shown: bool
) -> None:
    """conf/log4j2.properties, read as Java reads it at its start."""
    java: Any = spark._jvm
    log4j, option = java.org.apache.logging.log4j, SPARKS_WARNINGS.removeprefix("-D").split("=")
    java.System.setProperty(option[0], option[1]) if shown else java.System.clearProperty(option[0])
    file = java.java.io.File(str(ROOT / "conf" / "log4j2.properties")).toURI()
    factory = log4j.core.config.ConfigurationFactory.getInstance()
    read = factory.getConfiguration(log4j.core.LoggerContext("test"), "test", file)
    read.initialize()
    java.System.clearProperty(option[0])
    of_logger = read.getLoggerConfig(f"org.apache.spark.{logger}").getFilter()
    build = log4j.core.impl.Log4jLogEvent.newBuilder
    said = {text: of_logger.filter(build().setMessage(message(java, text)).build()).name() for text in (noise, other)}
    assert said == {noise: "NEUTRAL" if shown else "DENY", other: "NEUTRAL"}


def message(java: Any, text: str) -> Any:
    return java.org.apache.logging.log4j.message.SimpleMessage(text)
