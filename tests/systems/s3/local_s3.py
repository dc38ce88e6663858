"""A local S3, moto's, and the jars of `s3a://`: both fetched into .halfop/ on first use, as Delta's jars are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem, S3FileSystem, copy_files
from support.fetched import fetched_jars, fetching, same, state
from support.places import ROOT

_STATE = state("s3")
_SOURCE = Path(__file__).parent
_BUCKET, _KEY, _REGION = "halfop", "tests", "us-east-1"


class S3:
    """A bucket, and Spark's options to know its server and key by."""

    def __init__(self, address: str) -> None:
        known = {"endpoint": f"http://{address}", "access.key": _KEY, "secret.key": _KEY, "endpoint.region": _REGION}
        settings = (f"spark.hadoop.fs.s3a.{name}={value}" for name, value in known.items())
        self.options = ["--jars", ",".join(jars()), *(part for each in settings for part in ("--conf", each))]
        options = {"access_key": _KEY, "secret_key": _KEY, "region": _REGION, "endpoint_override": address}
        self._files = S3FileSystem(scheme="http", allow_bucket_creation=True, **options)
        self._files.create_dir(_BUCKET)

    def uri(self, name: str) -> str:
        return f"s3a://{_BUCKET}/{name}"

    def upload(self, folder: Path, name: str) -> str:
        copy_files(str(folder), f"{_BUCKET}/{name}", LocalFileSystem(), self._files)
        return self.uri(name)

    def download(self, name: str, folder: Path) -> Path:
        copy_files(f"{_BUCKET}/{name}", str(folder), self._files, LocalFileSystem())
        return folder


@contextmanager
def local_s3(*faults: str) -> Iterator[S3]:
    """A server with one empty bucket, which jobs started meanwhile find; `faults` are server.py's options."""
    _install()
    environment = os.environ | {"PYTHONPATH": str(_STATE / "python")}
    command = [sys.executable, str(_SOURCE / "server.py"), *faults]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = f"127.0.0.1:{int(server.stdout.readline())}"
            with pytest.MonkeyPatch.context() as patch:
                for name, value in _found(address).items():
                    patch.setenv(name, value)
                yield S3(address)
        finally:
            server.kill()


def jars() -> list[str]:
    """Those of `s3a://`."""
    return sorted(str(jar) for jar in (_STATE / "jars").glob("*.jar"))


def _found(address: str) -> dict[str, str]:
    key = {"AWS_ACCESS_KEY_ID": _KEY, "AWS_SECRET_ACCESS_KEY": _KEY, "AWS_REGION": _REGION}
    return key | {"AWS_ENDPOINT_URL": f"http://{address}", "SPARK_DIST_CLASSPATH": f"{_STATE}/jars/*"}


def _install() -> None:
    fetched_jars("s3")
    packages = ROOT / "requirements" / "s3.lock"
    with fetching("s3") as folder:
        target = folder / "python"
        if not same(packages, target / packages.name):
            shutil.rmtree(target, ignore_errors=True)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
            subprocess.run([*pip, "--target", str(target), "-r", str(packages)], check=True)
            shutil.copy(packages, target)
