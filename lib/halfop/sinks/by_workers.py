"""Whole messages of a large run, written by Spark's Python workers straight from files to files."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from halfop.planning.counts import covers
from halfop.sinks.bodies import trimmed_before_those
from halfop.sinks.projections import HALF
from halfop.sinks.targets import Target, WholeMessages
from halfop.sinks.tasks import Place, Share, write_share
from halfop.warehouse.disk import DataFile
from halfop.warehouse.local import listed_files
from halfop.warehouse.parquet import arrow_schema, searched
from halfop.warehouse.schema import table
from halfop.warehouse.splits import Split
from halfop.warehouse.where import equal
from halfop.warehouse.workers import in_workers, ordered_parts


def written_by_workers(whole: WholeMessages) -> dict[int, list[DataFile]] | None:
    """Writes the messages that landed once into their tables' folders; None if Spark must read or write them."""
    if trimmed_before_those(whole.warehouse, whole.run, whole.digest.ranges(whole.decisions)) is not None:
        return None
    shares = _shares(whole)
    if shares is None:
        return None
    found: dict[int, list[DataFile]] = {}
    for written in in_workers(whole.warehouse, shares, write_share):
        for target, files in written.items():
            found.setdefault(target, []).extend(files)
    return found


def _shares(whole: WholeMessages) -> list[Share] | None:
    run, near = whole.run, covers(whole.digest.ranges(whole.decisions), "queue_offset")
    halves = listed_files(whole.warehouse, "half_messages", run.inputs["half_messages"], near)
    decided = listed_files(whole.warehouse, "decisions", None, equal("run_id", run.run_id))
    if not halves or decided is None:
        return None
    parts = ordered_parts(whole.warehouse, halves, whole.tasks, "broker_name", "queue_offset")
    decisions = [Split(file.path, 0, file.size) for file in decided]
    return [_share(whole, part, decisions) for part in parts]


def _share(whole: WholeMessages, halves: Sequence[Split], decisions: Sequence[Split]) -> Share:
    landed, decided = (arrow_schema(table(name).struct) for name in ("half_messages", "decisions"))
    payload = [decided.field(name) for name in whole.payload]
    places = {n: _place(whole, target) for n, target in whole.due.items()}
    return Share(halves, decisions, pa.schema([landed.field(name) for name in HALF]), payload, places, whole.about)


def _place(whole: WholeMessages, target: Target) -> Place:
    topic = target.topic if target.decision == "COMMIT" and whole.a_table_a_topic else None
    folder = whole.warehouse.files.qualified(whole.warehouse.path(target.path))
    return Place(target.decision, topic, folder, target.spec.names, searched(target.spec))
