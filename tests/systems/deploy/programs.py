"""The programs that check deploy/: hadolint, kubernetes-validate and databricks-bundles in an environment, and helm."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.fetched import environment, fetching
from support.places import ROOT

_HELM = "helm.sh/helm/v3/cmd/helm@v3.18.6"
_SECONDS = 1200
needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="helm is built by go")


def program(name: str) -> str:
    """Returns the path of a program of the environment."""
    return str(environment("deploy") / name)


def helm() -> str:
    """Returns the path of helm, which Go builds from its own module."""
    with fetching("deploy") as folder:
        found = folder / "bin" / "helm"
        if not found.is_file():
            environ = os.environ | {"GOBIN": str(found.parent)}
            install = ["go", "install", _HELM]
            subprocess.run(install, env=environ, check=True, capture_output=True, timeout=_SECONDS)
    return str(found)


def said(*command: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """Returns what a program has said of deploy/, and its status."""
    words = list(map(str, command))
    return subprocess.run(
        words, cwd=ROOT / "deploy", input=given, capture_output=True, text=True, check=False, timeout=300
    )
