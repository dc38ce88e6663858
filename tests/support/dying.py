"""A driver that dies in the middle of a function."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Killed(BaseException):
    """No handler of ours may catch it: it stands for a driver that has died."""


@contextmanager
def dying(patch: pytest.MonkeyPatch, owner: object, name: str, after: bool, at_call: int = 1) -> Iterator[None]:
    """Dies in the nth call of a function, before it does anything or after it has done all."""
    real: Callable[..., Any] = getattr(owner, name)
    calls = itertools.count(1)

    def fatal(*args: Any, **options: Any) -> Any:
        dies = next(calls) == at_call
        if after or not dies:
            result = real(*args, **options)
        if dies:
            raise Killed
        return result

    with patch.context() as p:
        p.setattr(owner, name, fatal)
        yield
