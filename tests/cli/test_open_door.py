"""What others on the machine and in the network can reach of a local job: its sockets, and its files."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import halfop
import pytest
from halfop.frame.errors import UsageError
from halfop.settings.home import user_cache
from halfop.warehouse.local_spark import own_settings
from pyspark.sql import SparkSession

FOLDER = f"spark-{os.getuid()}"
LISTENS = "0A"
# 127.0.0.1 and ::1 as /proc/net/tcp and tcp6 have them.
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


@pytest.fixture
def jvm(spark: SparkSession) -> Any:
    return spark._jvm


def addresses(pid: int) -> set[str]:
    """The addresses at which a process listens."""
    held = set(links(Path(f"/proc/{pid}/fd")))
    lines = (Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:] for table in ("tcp", "tcp6"))
    sockets = [line.split() for each in lines for line in each]
    return {each[1].partition(":")[0] for each in sockets if each[3] == LISTENS and f"socket:[{each[9]}]" in held}


def links(folder: Path) -> Iterator[str]:
    for file in folder.iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            yield os.readlink(file)


def test_a_local_spark_listens_on_loopback_alone(spark: SparkSession, jvm: Any) -> None:
    found = addresses(jvm.java.lang.ProcessHandle.current().pid())
    assert found, "Spark's RPC listens somewhere"
    assert found <= LOOPBACK


def test_a_local_spark_asks_for_a_secret_of_its_process(spark: SparkSession, jvm: Any) -> None:
    security = jvm.org.apache.spark.SparkEnv.get().securityManager()
    assert security.isAuthenticationEnabled()
    assert len(security.getSecretKey()) >= 32


def test_shuffle_files_are_in_a_folder_that_nobody_else_may_enter(spark: SparkSession, jvm: Any) -> None:
    spark.range(1_000).repartition(3, "id").count()
    blocks = list(jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirs())
    for folder in map(Path, (each.toString() for each in blocks)):
        assert list(folder.rglob("shuffle_*.data")), folder
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
        assert folder.parent.stat().st_uid == os.getuid()


_IN_ASCII = """
import sys
from halfop.frame.errors import UsageError
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.session import spark_session
spark = spark_session("test", **{"spark.master": "local[1]", "spark.log.level": "ERROR", "spark.sql.extensions": ""})
for root in sys.argv[1:]:
    try:
        KernelWarehouse(spark, root).files
    except UsageError as error:
        print(error)
"""


@pytest.mark.thorough
@pytest.mark.process
def test_a_java_that_cannot_write_a_warehouses_name_refuses_it(tmp_path: Path) -> None:
    """Two such warehouses would be one folder. halfop's own commands have a UTF-8 locale, others may not."""
    roots = [str(tmp_path / name) for name in ("订单", "库存", "orders")]
    environ = {**os.environ, "PYTHONPATH": str(Path(halfop.__file__).parents[1]), "LC_ALL": "C", "PYTHONUTF8": "1"}
    called = [sys.executable, "-c", _IN_ASCII, *roots]
    told = subprocess.run(called, env=environ, capture_output=True, text=True, check=True, encoding="utf-8")
    said = told.stdout.splitlines()
    assert [line.partition(": ")[0] for line in said] == [repr(root) for root in roots[:2]]
    assert all("LC_ALL=C.UTF-8" in line for line in said)


_WRITING = """
import sys
from halfop.warehouse.session import spark_session
from halfop.warehouse.kernel import KernelWarehouse
spark = spark_session("test", **{"spark.master": "local[1]", "spark.log.level": "ERROR"})
warehouse = KernelWarehouse(spark, sys.argv[1])
warehouse.make("runs")
warehouse.files.write(warehouse.path("python/file"), b"x")
spark.range(3).write.parquet(warehouse.path("spark"))
"""


@pytest.mark.thorough
@pytest.mark.process
def test_files_have_the_modes_of_the_users_umask(tmp_path: Path) -> None:
    """Whoever writes them: Python, Kernel's log store or Spark."""
    environ = {**os.environ, "PYTHONPATH": str(Path(halfop.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", _WRITING, str(tmp_path / "w")], env=environ, check=True, umask=0o027)
    found = [tmp_path / "w", *(tmp_path / "w").rglob("*")]
    assert {"_SUCCESS", "file", "00000000000000000000.json"} <= {path.name for path in found}
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in found}
    assert modes == {(True, 0o750), (False, 0o640)}


# ---- which sessions that is about ----


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]", "local[2,3]"])
def test_a_local_master_gets_them_all(tmp_path: Path, master: str) -> None:
    found = own_settings({"spark.master": master}, {}, tmp_path)
    kept = {"spark.driver.host", "spark.authenticate", "spark.local.dir"}
    assert found.keys() == kept | {"spark.hadoop.fs.permissions.umask-mode"}


@pytest.mark.parametrize("master", ["spark://a:7077", "yarn", "k8s://https://a", "local-cluster[2,1,1024]"])
def test_a_cluster_keeps_its_users_settings(tmp_path: Path, master: str) -> None:
    assert own_settings({"spark.master": master}, {}, tmp_path) == {}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "environ", "left"),
    [
        ({"spark.driver.host": "10.0.0.1"}, {}, "spark.driver.host"),
        ({"spark.driver.bindAddress": "10.0.0.1"}, {}, "spark.driver.host"),
        ({}, {"SPARK_LOCAL_IP": "10.0.0.1"}, "spark.driver.host"),
        ({"spark.authenticate": "false"}, {}, "spark.authenticate"),
        ({"spark.local.dir": "/fast"}, {}, "spark.local.dir"),
        ({"spark.hadoop.fs.permissions.umask-mode": "007"}, {}, "spark.hadoop.fs.permissions.umask-mode"),
        ({}, {"SPARK_LOCAL_DIRS": "/fast"}, "spark.local.dir"),
    ],
)
def test_the_users_own_words_count(tmp_path: Path, given: dict[str, str], environ: dict[str, str], left: str) -> None:
    assert left not in own_settings({"spark.master": "local[*]"} | given, environ, tmp_path)


# ---- the folder ----


def test_folders_of_dead_jobs_are_removed_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    living = Path(own_settings({"spark.master": "local"}, {}, tmp_path)["spark.local.dir"])
    dead = tmp_path / FOLDER / "job-dead"
    (dead / "blockmgr-1/00").mkdir(parents=True)
    (dead / "blockmgr-1/00/shuffle_0_0_0.data").write_text("order 4711")
    another = Path(own_settings({"spark.master": "local"}, {}, tmp_path)["spark.local.dir"])
    assert living.is_dir()
    assert another.is_dir()
    assert not dead.exists()


def test_another_users_work_is_left_alone(tmp_path: Path) -> None:
    """A folder whose lock another process holds."""
    held = tmp_path / FOLDER / "job-held"
    held.mkdir(parents=True)
    with (held / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        own_settings({"spark.master": "local"}, {}, tmp_path)
        assert held.is_dir()


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in the temporary one, which is open to all, for a user without a home."""
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"halfop-{os.getuid()}"


def test_code_of_a_user_without_a_home_is_in_a_folder_that_nobody_else_may_enter(homeless: Path) -> None:
    for _ in range(2):
        assert (user_cache({}), stat.S_IMODE(homeless.stat().st_mode)) == (homeless, 0o700)
    homeless.chmod(0o755)
    assert user_cache({}) == homeless, "an earlier version made it so"


def linked(folder: Path) -> None:
    folder.with_name("elsewhere").mkdir(exist_ok=True)
    folder.symlink_to("elsewhere")


def open_to_all(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def of_another(folder: Path) -> None:
    folder.mkdir(0o755)
    if os.getuid() != 0:
        pytest.skip("only root may give a folder to another user")
    os.chown(folder, 65534, 65534)


@pytest.mark.parametrize(
    ("planted", "why"),
    [
        (linked, "it is a link"),
        (open_to_all, "others may write to it"),
        (of_another, "another user owns it"),
        (Path.touch, "File exists"),
    ],
)
def test_a_folder_of_code_that_others_may_have_filled_is_refused(
    homeless: Path, tmp_path: Path, planted: Callable[[Path], None], why: str
) -> None:
    planted(homeless)
    with pytest.raises(UsageError, match=rf"cannot be used \({why}\), and .* by XDG_CACHE_HOME"):
        user_cache({})
    planted(folder := tmp_path / FOLDER)
    if planted is open_to_all:  # Spark uses nothing that was there before
        own_settings({"spark.master": "local"}, {}, tmp_path)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        return
    with pytest.raises(UsageError, match=rf"\({why}\), and Spark needs .* by SPARK_LOCAL_DIRS"):
        own_settings({"spark.master": "local"}, {}, tmp_path)


def test_a_cache_that_cannot_be_written_is_a_plain_sentence(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file")
    with pytest.raises(UsageError, match=rf"{FOLDER}: cannot be made .*SPARK_LOCAL_DIRS"):
        own_settings({"spark.master": "local"}, {}, tmp_path)
