"""Errors with which a part of the work may fail, what is shown of them, and mistakes that end the job."""

from __future__ import annotations

import copy
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from halfop.frame.errors import (
    HalfopError,
    InputRefused,
    LostRows,
    TransientError,
    UsageError,
    WarehouseBusy,
    is_mistake,
    is_transient,
)
from halfop.frame.trouble import plainly
from halfop.rocketmq.wire.remoting import ConnectionLost, TlsFailed, Unreachable
from halfop.runs.reconcile import Request, reconcile
from halfop.sinks import staging
from halfop.warehouse.delta_log import DeltaLog
from halfop.warehouse.spark_errors import (
    OPERATIONAL_ERRORS,
    as_ours,
    first_line,
    innermost,
    log_failure,
    overtaken,
    removed_file,
)
from halfop.warehouse.tables import Warehouse
from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException
from support import rows as r
from support.messages import NOW, RULES, one_of_each

WORKER = """Job aborted due to stage failure: Task 0 in stage 1.0 failed
Traceback (most recent call last):
  File "x.py", line 1, in read
halfop.frame.errors.InputRefused: commitlog/0:17: the body is corrupt
\tat org.apache.spark.Executor.run(Executor.scala)
Caused by: org.apache.spark.SparkException: outer
Caused by: java.io.IOException: No space left on device"""


@pytest.mark.parametrize(
    ("error", "operational", "transient"),
    [
        (HalfopError("x"), True, False),
        (LostRows("t", 1), True, False),
        (UsageError("x"), True, False),
        (Unreachable("x"), True, True),
        (ConnectionLost("x"), True, True),
        (TlsFailed("x"), True, False),
        (AnalysisException("x"), True, True),
        (Py4JNetworkError("the JVM has died"), True, True),
        (OSError("full"), True, True),
        (pa.ArrowInvalid("no Parquet"), True, False),
        (KeyError("x"), False, False),
        (TypeError("x"), False, False),
        (AssertionError(), False, False),
        (AttributeError("x"), False, False),
        (ZeroDivisionError(), False, False),
    ],
)
def test_what_an_error_means(error: Exception, operational: bool, transient: bool) -> None:
    assert isinstance(error, OPERATIONAL_ERRORS) == operational
    assert is_transient(error) == transient


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("[DELTA_CONCURRENT_APPEND] files were added", True),
        ("io.delta.exceptions.MetadataChangedException: x", True),
        ("java.util.ConcurrentModificationException", False),
        ("No space left on device", False),
    ],
)
def test_a_commit_that_came_second(text: str, lost: bool) -> None:
    assert overtaken(PySparkException(text)) == lost
    assert not overtaken(ValueError(text))


def test_the_line_that_names_a_removed_file() -> None:
    text = "failed\n  [FAILED_READ_FILE.FILE_NOT_EXIST] part-0.parquet does not exist\nmore"
    assert removed_file(PySparkException(text)) == "[FAILED_READ_FILE.FILE_NOT_EXIST] part-0.parquet does not exist"
    full = "java.io.FileNotFoundException: /w/_staging/part-0 (No space left on device)"
    assert removed_file(PySparkException(full)) is None, "Java's word for a file that it could not make"
    assert removed_file(KeyError("FileNotFoundException")) is None, "a mistake of ours"


def test_spark_s_own_error_names_its_cause() -> None:
    failed = PySparkException(WORKER)
    ours = as_ours(failed, "a:1")
    assert (type(ours), str(ours)) == (TransientError, f"a:1: {plainly(failed)}")
    assert ours.__cause__ is failed, "-v shows where"
    assert innermost(OSError("full")) == "full"
    assert as_ours(refused := UsageError("x"), "a:1") is refused


@pytest.mark.parametrize(
    "error",
    [
        InputRefused("commitlog/0", 17, "the body is corrupt", "land another"),
        LostRows("/w/decisions", 3),
        UsageError("x"),
        WarehouseBusy("run 3 is at work"),
    ],
)
def test_an_error_crosses_from_a_worker_with_its_fields(error: HalfopError) -> None:
    crossed = copy.copy(error)  # by the protocol of pickle
    assert (type(crossed), str(crossed), vars(crossed)) == (type(error), str(error), vars(error))


def test_a_line_for_the_summary() -> None:
    assert first_line(HalfopError("T is due 3\nmore")) == "T is due 3"
    assert first_line(OSError("full\nmore")) == "OSError: full"
    assert len(first_line(OSError("x" * 999))) == 300


def test_a_failure_is_logged_with_its_traceback_where_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("halfop.test_errors")
    with caplog.at_level(logging.INFO, log.name):
        assert log_failure(log, "sink topics/T", OSError("full")) == "OSError: full"
    assert [record.getMessage() for record in caplog.records] == ["sink topics/T: OSError: full"]
    assert all(record.exc_info is None for record in caplog.records)
    with caplog.at_level(logging.DEBUG, log.name):
        log_failure(log, "sink topics/T", OSError("full"))
    assert caplog.records[-1].exc_info


# ---- sinks ----


def failing_commit(monkeypatch: pytest.MonkeyPatch, folder: str, error: Exception) -> None:
    commit_files = DeltaLog.commit_files

    def commit(log: DeltaLog, path: str, *given: object) -> None:
        if path.endswith(folder):
            raise error
        commit_files(log, path, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaLog, "commit_files", commit)


def test_a_full_disk_fails_one_sink_and_a_mistake_the_run(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one_of_each(warehouse)
    request = Request(r.settings(RULES, "per_topic"), r.instant(NOW))
    with monkeypatch.context() as patch, caplog.at_level(logging.DEBUG, "halfop"):
        failing_commit(patch, "topics/U", OSError(28, "No space left on device"))
        summary = reconcile(warehouse, request)
    assert (summary.status, summary.extra["transient"]) == (1, True)
    assert summary.extra["failed_sinks"] == {"topics/U": plainly(OSError(28, "No space left on device"))}
    (shown,) = [record for record in caplog.records if record.exc_info]
    assert shown.getMessage() == "sink topics/U: the traceback"
    with monkeypatch.context() as patch:
        failing_commit(patch, "topics/U", KeyError("ours"))
        with pytest.raises(KeyError, match="ours"):
            reconcile(warehouse, request)
    assert warehouse.version("topics/U") == -1
    assert reconcile(warehouse, request).status == 0


def test_one_task_that_fails_stops_no_other(tmp_path: Path) -> None:
    def full() -> None:
        raise OSError("full")

    def mistaken() -> None:
        raise KeyError("ours")

    done = tmp_path / "done"
    failed = staging.all_at_once({"a": full, "b": done.touch}, 2)
    assert (list(failed), done.exists()) == (["a"], True)
    done.unlink()
    with pytest.raises(KeyError, match="ours"):
        staging.all_at_once({"a": mistaken, "b": done.touch}, 2)
    assert done.exists()


MISTAKE = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "resolve.py", line 3, in resolve
    found[4]
KeyError: 4
"""


def test_a_mistake_in_a_worker_is_no_failed_part() -> None:
    mistake, theirs = PySparkException(MISTAKE), PySparkException(MISTAKE.replace("KeyError: 4", "OSError: full"))
    assert (is_mistake(mistake), is_mistake(theirs), is_transient(mistake), is_transient(theirs)) == (
        True,
        False,
        False,
        True,
    )
    with pytest.raises(PySparkException):
        as_ours(mistake, "a:1")
    assert as_ours(theirs, "a:1").transient


def test_a_mistake_in_a_worker_of_one_task_ends_the_run() -> None:
    def mistaken() -> None:
        raise PySparkException(MISTAKE)

    with pytest.raises(PySparkException, match="KeyError: 4"):
        staging.all_at_once({"a": mistaken}, 2)


def test_a_file_that_pyarrow_refuses_is_no_mistake_of_the_code() -> None:
    with pytest.raises(pa.ArrowInvalid) as found:
        pq.read_table(pa.BufferReader(b"no Parquet at all"))
    assert not is_mistake(found.value)
    assert not is_transient(found.value), "it will not pass"
    assert is_mistake(pa.ArrowTypeError("an int was expected"))
