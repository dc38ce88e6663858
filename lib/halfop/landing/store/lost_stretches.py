"""Lost ranges of a commit log as stretches of a store: left out of a landing, and read when they are sound again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from halfop.landing.lost import Ranges
from halfop.rocketmq.store.commitlog import log_files
from halfop.rocketmq.store.layout import StoreLayout
from halfop.rocketmq.store.stretch import Stretch


def present_again(root: str, lost: Ranges, before: int) -> Iterator[Stretch]:
    """Lost ranges before a physical offset that now are in one of the log's files; they may be sound again."""
    files = log_files(root)
    for since, upto in lost.of_log:
        file = next((file for file in files if file.first <= since and upto <= file.end), None)
        if file is not None and upto <= before:
            yield Stretch(root, file, since, upto, upto)


def without(layout: StoreLayout, lost: Sequence[tuple[int, int]]) -> StoreLayout:
    """The layout without the lost ranges, which land by themselves when the rest has.

    They may be sound by now. But a killed landing left them out, and some tables have its commit: so the other tables
    leave them out too.
    """
    return replace(layout, stretches=tuple(piece for each in layout.stretches for piece in _outside(each, lost)))


def _outside(stretch: Stretch, lost: Sequence[tuple[int, int]]) -> Iterator[Stretch]:
    at = stretch.start
    for since, upto in sorted(lost):
        if since < stretch.end and upto > at:
            if at < since:
                yield replace(stretch, start=at, end=since, fault=None, back=_back(stretch, at, lost))
            at = upto
    if at < stretch.end or (stretch.fault and at == stretch.end):
        yield replace(stretch, start=at, back=_back(stretch, at, lost))


def _back(stretch: Stretch, at: int, lost: Sequence[tuple[int, int]]) -> Stretch | None:
    """The log right before the stretch, if it still begins at the same place and nothing in between is lost."""
    back = stretch.back
    if back is None or at != stretch.start or any(since < back.end and upto > back.start for since, upto in lost):
        return None
    return back
