"""Paths on the file systems that Hadoop reads: their forms, and what a file system answers about them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlparse

from py4j.protocol import Py4JJavaError

from halfop.frame.errors import InputRefused
from halfop.frame.trouble import missing_client


def one_form(uri: str) -> str:
    """The URI in Hadoop's own form: it writes a local file's with one slash or with three."""
    return re.sub(r"\Afile:/+", "file:/", uri)


def shown_path(uri: str) -> str:
    """The path as a user would write it."""
    parsed = urlparse(uri)
    return unquote(parsed.path) if parsed.scheme == "file" else unquote(uri)


@contextmanager
def refusing(path: str) -> Iterator[None]:
    """Turns an error of the file system into an InputRefused that names the path."""
    try:
        yield
    except Py4JJavaError as error:
        raise InputRefused(path, None, _cause(error)) from error


def _cause(error: Py4JJavaError) -> str:
    java = error.java_exception
    return missing_client(error) or f"{java.getClass().getSimpleName()}: {java.getMessage()}"
