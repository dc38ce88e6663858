"""How much a job is about to read, as the sizes of local files show it, before anything of Spark has started."""

from __future__ import annotations

import argparse
import glob
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote, urlparse

# Bytes that Java reads. More is worth its second compiler: docs/operations.md has the measurements.
LITTLE = 32 * 1024 * 1024
# Python workers decide plain half messages and write them; of so many bytes that have landed Java reads about one.
BY_WORKERS = 100

_LANDED = ("half_messages", "op_messages")
_OTHERS = ("final_messages", "broker_discards", "resumes", "decisions/open=true")
# Null in each row that is no copy. If there are copies, Java reads all that has landed.
_MARKS = ("landed_check_times", "landed_prepared_offset")
_MOST_FOOTERS = 1_000
# The tables that a job reads as a whole. `explain` looks for a few rows, and its files' bounds skip the others.
_READ = {
    "report": ("decisions", "runs", "rejected"),
    "resume": ("trans_check_max_time", "resumes"),
    "end": ("decisions/open=true", "trans_check_max_time", "endings"),
    "audit": ("half_messages", "op_messages", "final_messages", "broker_discards"),
}
_ALWAYS_LITTLE = ("demo", "explain")
# A run pins what it reads before it is opened, and a landing lists its files before it commits.
_PINS_SECONDS, _LANDING_SECONDS = 10, 600
_MOST_LOG_FILES = 100


class Unknown(Exception):
    """Nobody can know the size from here."""


def is_little(job: str, arguments: Sequence[str], environ: Mapping[str, str], home: Path | None) -> bool:
    """Returns whether a job reads so little that compiling for speed costs more than it gives; False if unknown."""
    if job in _ALWAYS_LITTLE:
        return True
    try:
        return sum(_sizes(job, _Call.of(arguments, environ, home))) <= LITTLE
    except (Unknown, OSError, ValueError):
        return False


@dataclass(frozen=True)
class _Call:
    """The parts of a command line that show how much a job reads."""

    words: Sequence[str]
    paths: Sequence[str]
    root: str

    @staticmethod
    def of(arguments: Sequence[str], environ: Mapping[str, str], home: Path | None) -> _Call:
        parser = _Parser(add_help=False, allow_abbrev=False)
        for option in ("--half", "--op"):
            parser.add_argument(option, action="extend", nargs="+", default=[])
        for option in ("--warehouse", "--config"):
            parser.add_argument(option)
        parser.add_argument("--set", action="append", default=[])
        found, words = parser.parse_known_args(arguments)
        named = [each.removeprefix("warehouse=") for each in found.set if each.startswith("warehouse=")]
        root = found.warehouse or (named or [environ.get("HALFOP_WAREHOUSE")])[-1] or _configured(found.config, home)
        return _Call(words, [*found.half, *found.op], root)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Unknown(message)


def _configured(config: str | None, home: Path | None) -> str:
    """The warehouse that a file of settings names; the checkout's, if it names none."""
    file = Path(config) if config else home and home / "conf" / "halfop.yaml"
    if file is None:
        raise Unknown
    text = file.read_text()
    found = re.search(r"^warehouse:[ \t]*([^#\n]*)", text, re.MULTILINE)
    root = found[1].strip().strip("'\"") if found else ""
    if root not in ("", "null", "~"):
        return root
    if home is None:
        raise Unknown
    return str(home / "warehouse")


def _sizes(job: str, call: _Call) -> Iterator[int]:
    root = _local(call.root)
    if job in _READ:
        yield from (file.stat().st_size for table in _READ[job] for file in _data(root / table))
    elif job == "reconcile" and not any(word.startswith("--verify") for word in call.words):
        yield from _new_rows(root)
    elif job == "land" or (job == "follow" and "--once" in call.words):
        if not call.paths:  # a store or a broker
            raise Unknown
        yield from _new_files(call.paths, root)
        yield from _new_rows(root) if job == "follow" else ()
    else:
        raise Unknown


def _local(path: str) -> Path:
    parsed = urlparse(path)
    if parsed.scheme not in ("", "file"):
        raise Unknown
    return Path(unquote(parsed.path) if parsed.scheme else path)


def _data(folder: Path) -> Iterator[Path]:
    return folder.rglob("*.parquet")


# ---- what a landing reads ----


def _new_files(patterns: Iterable[str], root: Path) -> Iterator[int]:
    """The sizes of files that came after the last landing: earlier ones have landed, or were refused."""
    logs = _logs(root / "landed_files")
    after = logs[0].stat().st_mtime - _LANDING_SECONDS if logs else 0
    for file in (file for pattern in patterns for file in _files(pattern)):
        found = file.stat()
        if max(found.st_mtime, found.st_ctime) >= after:  # a file that is moved there keeps its own time
            yield found.st_size


def _files(pattern: str) -> Iterator[Path]:
    path = _local(pattern)
    for each in [path] if path.exists() else map(Path, glob.glob(str(path))):
        if each.is_dir():
            yield from (file for file in each.rglob("*") if file.is_file())
        else:
            yield each


# ---- what a run reads ----


def _new_rows(root: Path) -> Iterator[int]:
    """The bytes that Java reads of what came after the last run was opened, and of the open rows that it left."""
    after = _last_opened(root) - _PINS_SECONDS
    yield from (size for table in _OTHERS for _, size in _since(root / table, after))
    landed = {table: list(_since(root / table, after)) for table in _LANDED}
    size = sum(size for files in landed.values() for _, size in files)
    by_workers = size > LITTLE and no_copies([file for file, _ in landed["half_messages"]])
    yield size // BY_WORKERS if by_workers else size


def _since(folder: Path, after: float) -> Iterator[tuple[Path, int]]:
    """The files of a table that came later, with their sizes."""
    for file in _data(folder):
        found = file.stat()
        if found.st_mtime >= after:
            yield file, found.st_size


def no_copies(half_messages: Sequence[Path]) -> bool:
    """Returns whether there are half messages, and the files themselves show that none is a broker's copy."""
    from pyarrow import ArrowException  # noqa: PLC0415 - a quarter of a second, which only large runs spend
    from pyarrow.parquet import read_metadata  # noqa: PLC0415

    try:
        return 0 < len(half_messages) <= _MOST_FOOTERS and all(_all_null(read_metadata(f)) for f in half_messages)
    except ArrowException:
        return False


def _all_null(footer: Any) -> bool:
    names = [footer.schema.column(number).path for number in range(footer.num_columns)]
    columns = [names.index(mark) for mark in _MARKS if mark in names]
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    known = [(group.num_rows, group.column(column).statistics) for group in groups for column in columns]
    return len(columns) == len(_MARKS) and all(
        found is not None and found.has_null_count and found.null_count == rows for rows, found in known
    )


def _last_opened(root: Path) -> float:
    """When the last run that is closed was opened; 0 if there is none."""
    closed: set[int] = set()
    for log in _logs(root / "runs")[:_MOST_LOG_FILES]:
        for app, run in _markers(log):
            if app == "halfop.runs.close":
                closed.add(run)
            elif app == "halfop.runs.open" and run in closed:
                return log.stat().st_mtime
    return 0


def _logs(table: Path) -> list[Path]:
    """The commits in a table's log, the newest first."""
    return sorted((table / "_delta_log").glob("*[0-9].json"), reverse=True)


def _markers(log: Path) -> Iterator[tuple[str, int]]:
    with suppress(OSError):
        for line in log.read_text().splitlines():
            if '"txn"' in line:
                found = json.loads(line)["txn"]
                yield found["appId"], found["version"]
