"""Programs of Prometheus' own, where they are installed: Debian's packages of these names."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextmanager
def serving(program: str, *options: str) -> Iterator[str]:
    """One of Prometheus' own, where it is installed (Debian's packages of these names)."""
    if shutil.which(program) is None:
        pytest.skip(f"needs {program} on PATH")
    url = f"http://127.0.0.1:{free_port()}"
    address = f"--web.listen-address={url.removeprefix('http://')}"
    with subprocess.Popen([program, address, *options], stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 20
            while not answers(url):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield url
        finally:
            process.terminate()


def scraped(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:  # noqa: S310
        return [line for line in answer.read().decode().splitlines() if line.startswith("halfop_")]


def answers(url: str) -> bool:
    with suppress(OSError):
        scraped(url)
        return True
    return False
