"""A local HDFS, Hadoop's mini cluster: its jars are fetched into .halfop/ on first use, as Delta's jars are."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from support.fetched import fetched_jars

_MAIN = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
_SECONDS = 120


@contextmanager
def local_hdfs(folder: Path) -> Iterator[str]:
    """The URI of an empty file system, whose blocks lie in the folder."""
    jars, details, log = fetched_jars("hdfs"), folder / "details.json", folder / "log"
    path = f"{jars}/*:{Path(pyspark.__file__).parent}/jars/*"
    options = ["-nomr", "-format", "-nnport", "0", "-datanodes", "1", "-writeDetails", str(details)]
    command = [os.environ["HALFOP_JAVA"], "-Xmx512m", f"-Dtest.build.data={folder}", "-cp", path, _MAIN, *options]
    with log.open("w") as said, subprocess.Popen(command, cwd=folder, stdout=said, stderr=said) as cluster:
        try:
            deadline = time.monotonic() + _SECONDS
            while not (details.exists() and details.read_text().endswith("}")):
                assert cluster.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield f"hdfs://127.0.0.1:{json.loads(details.read_text())['namenode_port']}"
        finally:
            cluster.kill()
