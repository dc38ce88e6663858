"""A Containerfile's steps, as an engine takes them: what is copied, what is run, and how a container starts."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Image:
    """What a file makes: steps in their order (WORKDIR, COPY, RUN), each with its words; and how a container starts."""

    steps: list[tuple[str, list[str]]] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "0"
    entry: list[str] = field(default_factory=list)


def image(file: Path) -> Image:
    """Returns what a Containerfile makes."""
    made = Image()
    for word, rest in _instructions(file.read_text()):
        if word in ("WORKDIR", "COPY", "RUN"):
            made.folder = rest if word == "WORKDIR" else made.folder
            made.steps.append((word, _words(word, rest, made.folder)))
        else:
            _note(made, word, rest)
    return made


def _words(word: str, rest: str, folder: str) -> list[str]:
    """Of COPY the sources and the absolute target, of RUN the folder and the command."""
    if word == "COPY":
        *sources, target = shlex.split(rest)
        return [*sources, f"{folder}/{target}"]
    return [folder, rest] if word == "RUN" else [folder]


def _note(made: Image, word: str, rest: str) -> None:
    if word == "ENV":
        made.env |= dict(pair.split("=", 1) for pair in shlex.split(rest))
    elif word == "USER":
        made.user = rest
    elif word == "ENTRYPOINT":
        made.entry = json.loads(rest)
    elif word not in ("ARG", "FROM"):
        raise ValueError(f"the tests do not know {word} of a Containerfile")


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, rest.strip()
