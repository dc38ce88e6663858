"""How many files the process may have open: connections are files, and the log must never lack one."""

from __future__ import annotations

import logging
import resource

from halfop.frame.errors import UsageError

_OWN = 512  # kept for the log, 256 files of queues, the tables, 32 connections to the pages
_log = logging.getLogger("halfop.gateway")


def room_for(connections: int) -> int:
    """How many connections there may be, at most so many; raises the process's limit as far as it may be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _number(hard)
    if _number(soft) < connections + _OWN:
        soft = int(min(connections + _OWN, most))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    room = int(min(connections, _number(soft) - _OWN))
    if room < 1:
        raise UsageError(f"the process may open only {soft} files, a gateway needs {_OWN} and more: raise `ulimit -n`")
    if room < connections:
        _log.warning(
            "gateway.max_connections is %s, but the process may open only %s files, so it takes %s: raise `ulimit -n`",
            *(connections, soft, room),
        )
    return room


def _number(limit: int) -> float:
    return float("inf") if limit == resource.RLIM_INFINITY else limit
