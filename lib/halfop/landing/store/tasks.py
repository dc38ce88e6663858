"""A worker's part in a store's landing: it reads stretches once, checks them, and writes their rows to files."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from halfop.landing.survey import StretchSurvey, Surveyed
from halfop.landing.table_rows import Form, in_form, write_items
from halfop.rocketmq.batches import BATCH, OP
from halfop.rocketmq.store.stretch import Stretch
from halfop.warehouse.disk import DataFile, Disk
from halfop.warehouse.splits import PartWriter


class Rows(NamedTuple):
    """The rows that a task writes, below a folder: kinds in the forms of their tables, with the bounds they keep."""

    forms: Mapping[str, Form]
    folder: str
    searched: Mapping[str, Sequence[str]]


class Share(NamedTuple):
    """The work of one task."""

    stretches: Sequence[Stretch]
    skip_corrupt: bool
    rows: Rows


class Landed(NamedTuple):
    """The result of a task: the files that it has written, by kind.

    `rolled_back` are the paths of files, one a stretch, with the half messages that its ops name as rolled back:
    rightly, unless they were committed in a later stretch.
    """

    surveyed: Sequence[Surveyed]
    files: Mapping[str, Sequence[DataFile]]
    rolled_back: Sequence[str]


def land_share(share: Share, disk: Disk) -> Landed:
    rows = share.rows
    out = PartWriter(disk, {kind: f"{rows.folder}/{kind}" for kind in rows.searched}, rows.searched)
    surveyed, rolled_back = [], []
    for stretch in share.stretches:
        survey = _written(stretch, share.skip_corrupt, rows.forms, out)
        surveyed.append(survey.result())
        rolled_back.append(_write_rolled_back(disk, rows.folder, survey))
    return Landed(surveyed, out.close(), rolled_back)


def _written(stretch: Stretch, skip_corrupt: bool, forms: Mapping[str, Form], out: PartWriter) -> StretchSurvey:
    survey = StretchSurvey(stretch)
    for piece in survey.pieces(skip_corrupt):
        for kind, records in piece.kept.items():
            if kind != OP:
                out.write(kind, in_form(BATCH[kind](records), forms[kind]))
    for items in survey.items:
        write_items(out, items, forms[OP])
    return survey


def _write_rolled_back(disk: Disk, folder: str, survey: StretchSurvey) -> str:
    output = disk.create(f"{folder}/rolled-back-{uuid.uuid4()}")
    output.stream.write(survey.outcomes.rolled_back.tobytes())
    return output.close().path
