"""What a worker does for a store's landing: it reads stretches once, checks them, and writes their rows to files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow.compute as pc

from halfop.landing.survey import StretchSurvey, Surveyed
from halfop.landing.table_rows import Form, in_form
from halfop.rocketmq.batches import BATCH, OP
from halfop.rocketmq.store.stretch import Stretch
from halfop.warehouse.actions import DataFile
from halfop.warehouse.disk import Disk
from halfop.warehouse.splits import PartWriter

UNSETTLED = "unsettled"  # op items whose outcome their stretch does not settle


class Rows(NamedTuple):
    """The rows that a task writes, below a folder: kinds in the forms of their tables, with the bounds they keep."""

    forms: Mapping[str, Form]
    folder: str
    searched: Mapping[str, Sequence[str]]


class Share(NamedTuple):
    """What one task does; without `rows` it only surveys."""

    stretches: Sequence[Stretch]
    skip_corrupt: bool
    rows: Rows | None


class Landed(NamedTuple):
    """What a task has found and written: files by kind."""

    surveyed: Sequence[Surveyed]
    files: Mapping[str, Sequence[DataFile]]


def land_share(share: Share, disk: Disk) -> Landed:
    if share.rows is None:
        return Landed([_surveyed(stretch, share.skip_corrupt) for stretch in share.stretches], {})
    rows = share.rows
    out = PartWriter(disk, {kind: f"{rows.folder}/{kind}" for kind in rows.searched}, rows.searched)
    surveyed = []
    for stretch in share.stretches:
        survey = _written(stretch, share.skip_corrupt, rows.forms, out)
        _write_rolled_back(disk, rows.folder, stretch, survey)
        surveyed.append(survey.result())
    return Landed(surveyed, out.close())


def _surveyed(stretch: Stretch, skip_corrupt: bool) -> Surveyed:
    survey = StretchSurvey(stretch)
    for _ in survey.pieces(skip_corrupt):
        pass
    return survey.result()


def _written(stretch: Stretch, skip_corrupt: bool, forms: Mapping[str, Form], out: PartWriter) -> StretchSurvey:
    survey = StretchSurvey(stretch)
    for piece in survey.pieces(skip_corrupt):
        for kind, records in piece.kept.items():
            if kind != OP:
                out.write(kind, in_form(BATCH[kind](records), forms[kind]))
    for items in survey.items:
        settled = pc.is_valid(items["outcome"])
        out.write(OP, in_form(items.filter(settled), forms[OP]))
        out.write(UNSETTLED, in_form(items.filter(pc.invert(settled)), forms[OP]))
    return survey


def _write_rolled_back(disk: Disk, folder: str, stretch: Stretch, survey: StretchSurvey) -> None:
    output = disk.create(rolled_back_file(folder, stretch.start))
    output.stream.write(survey.outcomes.rolled_back.tobytes())
    output.close()


def rolled_back_file(folder: str, start: int) -> str:
    """Half messages that the ops of one stretch name as rolled back: rightly, unless they were committed later."""
    return f"{folder}/rolled-back-{start}"
