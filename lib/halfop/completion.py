"""Completion of command lines in a shell: the script that shtab makes of the jobs' own parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

import shtab

from halfop.frame.cli import Job, parser_of_all
from halfop.settings.keys import KEYS
from halfop.submit import FLAGS, VALUED


def script(shell: str, jobs: Iterable[Job]) -> str:
    """Returns the script that completes jobs, their options and values, Spark's options, and settings after --set."""
    whole = parser_of_all(jobs)
    for option in VALUED.split():
        whole.add_argument(option)
    for option in FLAGS:
        whole.add_argument(option, action="store_true")
    for action in _actions(whole):
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        if "--set" in action.option_strings and action.metavar == "KEY=VALUE":
            action.choices = [f"{'.'.join(key)}=" for key in KEYS if not any(part.startswith("<") for part in key)]
    return shtab.complete(whole, shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The options and arguments of a parser and of its subcommands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)
