"""Work with Spark that a signal interrupts: it ends at once, and whoever waited for it can clean up."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from threading import Thread

import pytest
from halfop.warehouse.signals import Task, interrupted_once, or_called_off
from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def level(spark: SparkSession) -> Iterator[None]:
    yield
    spark.sparkContext.setLogLevel("ERROR")  # as conftest has it


def interrupted_when(begun: Callable[[], bool]) -> Thread:
    """Sends this process a Ctrl-C as soon as something has begun."""

    def wait() -> None:
        while not begun():
            pass
        os.kill(os.getpid(), signal.SIGINT)

    thread = Thread(target=wait, daemon=True)
    thread.start()
    return thread


def active(spark: SparkSession) -> list[int]:
    return list(spark.sparkContext.statusTracker().getActiveJobsIds())


def test_a_job_that_would_take_days(spark: SparkSession) -> None:
    def work(task: Task) -> object:
        return spark.range(10**15).selectExpr("sum(hash(id))").collect()[0][0]

    start = time.monotonic()
    interrupted_when(lambda: bool(active(spark)))
    with pytest.raises(KeyboardInterrupt), interrupted_once(spark):
        or_called_off(spark, work)
    while active(spark) and time.monotonic() - start < 30:
        time.sleep(0.05)  # the tracker hears of a job's end later than who waited for it
    assert active(spark) == []
    assert spark.range(3).count() == 3, "this thread's connection to Java is sound"
    assert time.monotonic() - start < 30


def test_steps_without_a_job(spark: SparkSession) -> None:
    steps: list[int] = []

    def work(task: Task) -> None:
        while True:
            task.go_on()
            steps.append(len(spark.createDataFrame([(1,)], "a INT").columns))

    before = signal.getsignal(signal.SIGTERM)
    interrupted_when(lambda: len(steps) > 3)
    with pytest.raises(KeyboardInterrupt), interrupted_once(spark):
        or_called_off(spark, work)
    assert signal.getsignal(signal.SIGTERM) == before, "handlers are as before"


def test_an_error_of_the_work_is_the_callers(spark: SparkSession) -> None:
    def work(task: Task) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        or_called_off(spark, work)
