"""How many files the process may have open: connections are files, and the log must never lack one."""

from __future__ import annotations

import logging
import resource

_OWN = 512  # of the log, the queues, the tables, the pages
_log = logging.getLogger("halfop.gateway")


def room_for(connections: int) -> int:
    """How many connections there may be, at most so many; raises the process's limit as far as it may be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _number(hard)
    if _number(soft) < connections + _OWN:
        soft = int(min(connections + _OWN, most))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    room = max(int(min(connections, _number(soft) - _OWN)), 1)
    if room < connections:
        _log.warning(
            "gateway.max_connections is %s, but the process may open only %s files, so it takes %s: raise `ulimit -n`",
            *(connections, soft, room),
        )
    return room


def _number(limit: int) -> float:
    return float("inf") if limit == resource.RLIM_INFINITY else limit
