"""What a machine refuses, in plain sentences: a full disk, a disk that can only be read, another user's files."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from halfop.frame import trouble
from halfop.frame.trouble import failure_of, plainly, user
from halfop.warehouse.spark_errors import first_line
from pyspark.errors import PySparkException

FULL = "the disk is full. Make room on it, and start again, which is always safe (No space left on device)"
KERNEL = """An error occurred while calling o189.append.
: io.delta.kernel.exceptions.KernelEngineException: Encountered an error while trying to Write actions to JSON log \
file `file:/w/op/_delta_log/2.json`: the disk did not take file:/w/op a/_delta_log/2.json: No space left on device
\tat io.delta.kernel.defaults.Engine.write(Engine.java:1)
Caused by: java.io.IOException: No space left on device"""


def failed(number: int, *path: str) -> OSError:
    return OSError(number, os.strerror(number), *path)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (failed(errno.ENOSPC, "/w/a b"), f"/w/a b: {FULL}"),
        (failed(errno.ENOSPC), f"the warehouse, or Spark's folder spark.local.dir: {FULL}"),
        (PySparkException(KERNEL), f"/w/op a/_delta_log/2.json: {FULL}"),
        (
            PySparkException(": java.io.FileNotFoundException: /w/.run.lock (Read-only file system)"),
            "/w/.run.lock: the disk can only be read. Mount it to be written, and start again",
        ),
        (failed(errno.EACCES, "/w/runs"), f"/w/runs: user {user()}"),
        (PySparkException(": java.nio.file.AccessDeniedException: /w/a b\n\tat x"), f"/w/a b: user {user()}"),
        (PySparkException("Traceback:\nOSError: [Errno 5] Input/output error: '/w/p'"), "/w/p: the disk fails"),
        (failed(errno.EMFILE, "/w/p"), "files open. Allow more, as by ulimit -n 4096 before the call, and start again"),
    ],
)
def test_what_the_machine_refuses_is_told_with_the_way_out(error: Exception, said: str) -> None:
    shown = plainly(error)
    assert shown is not None
    assert said in shown
    assert (failure_of(error, verbose=False).message, first_line(error)) == (shown, shown)


def test_other_errors_are_left_as_they_are() -> None:
    assert plainly(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/w")) is None
    assert plainly(PySparkException("no such column")) is None


@pytest.mark.parametrize(
    "text",
    [
        "java.nio.file.AccessDeniedException: s3a://b/w/runs: getFileStatus on s3a://b/w: Forbidden (403)",
        'org.apache.hadoop.security.AccessControlException: Permission denied: user=a, access=WRITE, inode="/w"',
    ],
)
def test_what_a_store_elsewhere_refuses_keeps_its_own_words(text: str) -> None:
    error = PySparkException(f": {text}\n\tat x")
    assert plainly(error) is None
    assert text in failure_of(error, verbose=False).message


@pytest.mark.process
@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_a_user_without_a_name_is_called_by_its_number() -> None:
    """OpenShift starts containers so."""
    environ = {name: text for name, text in os.environ.items() if name not in ("LOGNAME", "USER", "LNAME", "USERNAME")}
    code = "import os, pwd\nfrom halfop.frame.trouble import owner\nos.setuid(1000660000)\nprint(owner())"
    environ["PYTHONPATH"] = str(Path(trouble.__file__).parents[2])
    told = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert told.stdout.partition("@")[0] == "1000660000", told.stderr


@pytest.mark.parametrize(
    ("number", "transient"), [(errno.ENOSPC, True), (errno.EIO, True), (errno.EACCES, False), (errno.EROFS, False)]
)
def test_only_what_may_pass_is_transient(number: int, transient: bool) -> None:
    assert failure_of(failed(number, "/w/a"), verbose=False).transient is transient
