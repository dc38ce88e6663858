"""The checkout that holds the default configuration and the default warehouse."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def checkout(environ: Mapping[str, str]) -> Path | None:
    """HALFOP_HOME, else the checkout this file lies in; None if halfop runs from a zip or an installed package."""
    if environ.get("HALFOP_HOME"):
        return Path(environ["HALFOP_HOME"])
    lib = Path(__file__).absolute().parents[2]
    return lib.parent if lib.name == "lib" and lib.parent.joinpath("conf").is_dir() else None
