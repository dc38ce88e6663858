"""What a broker does not give of a real topic: it is refused with the way to land all the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from halfop.frame.errors import InputRefused
from halfop.rocketmq.batches import FINAL
from halfop.rocketmq.wire.remoting import Corrupt, RefusedByBroker

_WAY_OUT = "to land the rest, leave this topic out: --topics with all others. Its ops land without an outcome"
_MENDED = {
    RefusedByBroker: "once the broker gives its messages, a call without --topics lands them, and outcomes",
    Corrupt: "`land store --skip-corrupt` of the broker's store lands what is sound of it",
}


@contextmanager
def leaving_out(kind: str) -> Iterator[None]:
    """Raises InputRefused, with the way out, if a broker answers about final messages so that none can be read.

    They are passed over by nobody but the user: that none was seen would be a rollback.
    """
    try:
        yield
    except (RefusedByBroker, Corrupt) as error:
        if kind != FINAL:
            raise
        problem = str(error).removeprefix(error.address).lstrip(": ")
        raise InputRefused(error.address, None, problem, f"{_WAY_OUT}; {_MENDED[type(error)]}") from error
