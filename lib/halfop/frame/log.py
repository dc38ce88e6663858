"""Logging to stderr: text for people or JSON lines for machines."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from halfop.frame.summary import json_line

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_fields: dict[str, object] = {}


@contextmanager
def logged_with(**fields: object) -> Iterator[None]:
    """Adds these fields to every record of the block, whatever thread logs it, unless the record has one of that name.

    They stay if the block fails: the error that ends a job is logged outside, and needs them most.
    """
    before = dict(_fields)
    _fields.update(fields)
    yield
    _fields.clear()
    _fields.update(before)


@contextmanager
def logged_apart() -> Iterator[None]:
    """Drops at its end the fields that a failure which the block has caught left: what follows is something else."""
    before = dict(_fields)
    yield
    _fields.clear()
    _fields.update(before)


def _add_fields(record: logging.LogRecord) -> bool:
    vars(record).update({name: value for name, value in _fields.items() if name not in vars(record)})
    return True


def escaped(text: str) -> str:
    """Newlines, control and other invisible characters as escapes: a message can't forge a line or drive a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname} " if record.levelno >= logging.WARNING else ""
        lines = [f"{self.formatTime(record, '%H:%M:%S')} {record.name}  {level}{escaped(record.getMessage())}"]
        if record.exc_info:
            lines += [escaped(line) for line in self.formatException(record.exc_info).splitlines()]
        return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, timezone.utc)
        fields = {"ts": at, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        trace = {"traceback": self.formatException(record.exc_info)} if record.exc_info else {}
        return json_line(fields | trace | {name: value for name, value in _extra(record).items() if name not in fields})


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    """A type of its own, by which a second configure finds the first's."""

    def __init__(self, json_lines: bool) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(JsonFormatter() if json_lines else TextFormatter())
        self.watched = not json_lines and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def format(self, record: logging.LogRecord) -> str:
        """Formats a record; on a terminal it clears the row first, because Spark's progress bar may stand there."""
        return ("\r\x1b[K" if self.watched else "") + super().format(record)


# PySpark logs the JVM's stack trace of each wrong query by them, though whoever started it gets the error.
_OF_PYSPARK = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_NEVER = logging.CRITICAL + 1
# PySpark's connection to Java logs an interrupt with its traceback; the job's last line says it, too.
_INTERRUPTED = "KeyboardInterrupt while sending command."


def _is_news(record: logging.LogRecord) -> bool:
    return record.msg != _INTERRUPTED


def watched() -> bool:
    """Returns whether the log goes to a terminal as text, so that progress may be shown there too."""
    return any(isinstance(handler, _Handler) and handler.watched for handler in logging.getLogger().handlers)


def configure(verbose: bool, json_lines: bool) -> None:
    """Logs halfop from INFO (verbose: DEBUG) and everything else from WARNING, Python's own warnings too."""
    handler = _Handler(json_lines)
    handler.addFilter(_is_news)
    handler.addFilter(_add_fields)
    root = logging.getLogger()
    root.handlers = [h for h in root.handlers if not isinstance(h, _Handler)] + [handler]
    logging.getLogger("halfop").setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.captureWarnings(True)
    for name in _OF_PYSPARK:
        logging.getLogger(name).setLevel(_NEVER)
