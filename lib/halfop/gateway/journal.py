"""What a gateway writes of requests: a line of the log for those it refuses, and the audit trail.

The log has one line in ten seconds for refusals that are alike, with how many there were, so that a client that tries
again and again fills no disk. The audit trail has a line of JSON for each END_TRANSACTION and each administration.
"""

from __future__ import annotations

import logging
from datetime import datetime
from io import FileIO

import orjson

from halfop.frame.errors import UsageError
from halfop.gateway.core.clients import Client
from halfop.gateway.core.effects import AccountShown, EndTaken, Instant, RefusedRequest
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import REQUEST_NAMES, AnswerCode, RequestCode

_EVERY = 10.0  # seconds
_MOST_KINDS = 100  # of refusals within that time; all others are one kind
_LONGEST = 200  # characters of what a client has sent
_OTHERS = (-1, -1, "")
_log = logging.getLogger("halfop.gateway")


class _Kind:
    """Refusals that are alike: until when their next line waits, how many have come since the last, the newest."""

    def __init__(self, until: float) -> None:
        self.until, self.more, self.line = until, 0, ""


class Refusals:
    """The log's lines about refused requests."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[int, int, str], _Kind] = {}

    def put(self, refused: RefusedRequest, now: Instant) -> None:
        """Logs a refusal, or counts it if one of its kind was logged a short time ago."""
        by_why = refused.remark if refused.code == AnswerCode.NO_PERMISSION else ""
        key = (refused.request.code, refused.code, by_why)
        if key not in self._kinds and len(self._kinds) >= _MOST_KINDS:
            key = _OTHERS
        known = self._kinds.get(key)
        if known is None:
            self._kinds[key] = _Kind(now.steady + _EVERY)
            _log.warning("refused: %s", _line(refused))
        else:
            known.more, known.line = known.more + 1, _line(refused)

    def tick(self, now: Instant) -> None:
        """Logs how many have come since the last line."""
        for key, kind in [each for each in self._kinds.items() if each[1].until <= now.steady]:
            if not kind.more:
                del self._kinds[key]
                continue
            _log.warning("refused: %s more of this kind, the last was %s", kind.more, kind.line)
            kind.more, kind.until = 0, now.steady + _EVERY


class Trail:
    """The audit trail, a file that is only appended to. Without a path nothing is written."""

    def __init__(self, path: str | None) -> None:
        """Opens the file. Raises UsageError."""
        self._path, self._file = path, _opened(path)
        self._lines, self._failed = list[bytes](), False

    def end(self, taken: EndTaken, at: datetime) -> None:
        """Writes that an END_TRANSACTION was taken."""
        half = taken.half
        place = {"queue_offset": half.queue_offset, "physical_offset": half.physical_offset}
        about = {"outcome": taken.outcome, "fate": taken.fate, "from_check": taken.from_check}
        of = {"topic": half.topic, "group": half.group, "uniq_key": half.uniq_key}
        self._write("END_TRANSACTION", at, {"accepted": True, **about, **of, **place, **_by(taken.client)})

    def refused(self, refused: RefusedRequest, at: datetime) -> None:
        """Writes that an END_TRANSACTION or an administration was refused."""
        about = {"accepted": False, "code": int(refused.code), "remark": refused.remark[:_LONGEST]}
        self._write(_name(refused.request.code), at, about | _of(refused))

    def shown(self, shown: AccountShown, at: datetime) -> None:
        """Writes that a client was shown an account."""
        self._write(_name(shown.request.code), at, {"accepted": True, "shown": shown.account, **_by(shown.client)})

    def administered(self, what: str, at: datetime, **about: object) -> None:
        """Writes what was done to the gateway itself."""
        self._write(what, at, {"accepted": True, **about})

    def flush(self) -> None:
        """Gives the lines to the system. If that fails they are lost, and the log says so."""
        if self._file is None or not self._lines:
            return
        lines, self._lines = self._lines, []
        try:
            self._file.write(b"".join(lines))
            self._failed = False
        except OSError as error:
            level = logging.DEBUG if self._failed else logging.ERROR
            _log.log(level, "gateway.audit_file %s: %s; %s lines are lost", self._path, error.strerror, len(lines))
            self._failed = True

    def reopen(self) -> None:
        """Opens the file again, so that the old one can be moved away. If that raises UsageError, the old one stays."""
        opened = _opened(self._path)
        self.close()
        self._file = opened

    def close(self) -> None:
        """Closes the file."""
        self.flush()
        if self._file is not None:
            self._file.close()

    def _write(self, what: str, at: datetime, about: dict[str, object]) -> None:
        if self._file is not None:
            self._lines.append(orjson.dumps({"ts": at, "what": what, **about}, option=orjson.OPT_APPEND_NEWLINE))


def _opened(path: str | None) -> FileIO | None:
    try:
        return open(path, "ab", buffering=0) if path else None
    except OSError as error:
        raise UsageError(f"gateway.audit_file {path}: {error.strerror}; give a file that can be appended to") from error


def _name(code: int) -> str:
    return REQUEST_NAMES.get(code, str(code))


def _line(refused: RefusedRequest) -> str:
    code = refused.request.code
    name = f"{code} {REQUEST_NAMES.get(code, '')}".strip()
    of = "".join(f", {what} {value}" for what, value in _of(refused).items() if value)
    return f"request {name}{of}: {refused.code} {refused.remark.strip()[:_LONGEST]}"


def _named(request: Frame) -> dict[str, object]:
    """The topic and the group that a request names; a send of version 2 calls them `b` and `a`."""
    fields = request.fields
    is_short = request.code == RequestCode.SEND_MESSAGE_V2
    topic = fields.get("b" if is_short else "topic", "")
    group = fields.get("a") if is_short else fields.get("producerGroup") or fields.get("consumerGroup")
    return {"topic": topic[:_LONGEST], "group": (group or "")[:_LONGEST]}


def _by(client: Client) -> dict[str, object]:
    return {"client": client.name, "account": client.account.access_key if client.account else None}


def _of(refused: RefusedRequest) -> dict[str, object]:
    return _named(refused.request) | {"client": refused.client.name, "account": refused.account}
