"""The bodies of a topic as values of a column, wherever they are written: a function over an Arrow column."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import NamedTuple

import pyarrow as pa

from halfop.values.misfit import Misfit

_AT_ONCE = 256


class Reading(NamedTuple):
    """How bodies become values: by the topic's setting, as rows of the table's type, which may have more fields."""

    format: str
    schema: str
    message: str
    kind: pa.DataType

    def values(self, bodies: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Returns the values, and the reasons why some are null: a body that does not fit has no value at all."""
        read = _reader(self.format, self.schema, self.message)
        found: list[pa.Array] = [pa.array([], self.kind)]
        reasons: list[pa.Array] = [pa.array([], pa.string())]
        with _no_garbage():
            for start in range(0, len(bodies), _AT_ONCE):  # as objects of Python only a few at a time
                values, why = self._some(read, bodies.slice(start, _AT_ONCE))
                found.append(values)
                reasons.append(why)
        return pa.concat_arrays(found), pa.concat_arrays(reasons)

    def _some(self, read: Callable[[bytes], object], bodies: pa.Array) -> tuple[pa.Array, pa.Array]:
        found: list[object] = []
        reasons: list[str | None] = []
        for body in bodies.to_pylist():
            try:
                value, reason = _value(read, body), None
            except Misfit as misfit:
                value, reason = None, str(misfit)
            found.append(value)
            reasons.append(reason)
        return self._as_arrow(found, reasons), pa.array(reasons, pa.string())

    def _as_arrow(self, found: list[object], reasons: list[str | None]) -> pa.Array:
        """The values as Arrow takes them; one that its type cannot hold is a misfit, too."""
        try:
            return pa.array(found, self.kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            for n, value in enumerate(found):
                if not self._fits(value):
                    found[n], reasons[n] = None, "a number, time or text is beyond what its column's type holds"
            return pa.array(found, self.kind)

    def _fits(self, value: object) -> bool:
        try:
            pa.array([value], self.kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            return False
        return True


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Nothing within refers to itself, and looking for such objects would take a seventh of the time."""
    looked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looked:
            gc.enable()


def _value(read: Callable[[bytes], object], body: bytes | None) -> object:
    if body is None:
        raise Misfit("there is no body")
    return read(body)


@cache
def _reader(form: str, schema: str, message: str) -> Callable[[bytes], object]:
    """What reads a body; a process makes it once, and imports only what its format needs."""
    if form == "text":
        return _text
    found: Callable[[bytes], object] = import_module(f"halfop.values.{form}_bodies").reader(schema, message)
    return found


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Misfit(f"no UTF-8 from byte {error.start} on") from None
