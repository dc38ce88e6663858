"""The tables that a run writes to beside `decisions`, and the whole messages that it writes there."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from halfop.frame.errors import UsageError
from halfop.planning.digest import Digest
from halfop.planning.run import Run
from halfop.settings.model import Settings
from halfop.sinks.layout import laid_out, unfit_column
from halfop.sinks.projections import HALF, PAYLOAD, About, Form
from halfop.sinks.rebuilt import rebuilt_by
from halfop.values.columns import UnfitTable, form_of
from halfop.values.reading import Reading
from halfop.warehouse.lock import hold_rejected
from halfop.warehouse.rows import Stage
from halfop.warehouse.schema import OF_A_TOPIC, REJECTED, VALUE, TableSpec, comment, directories, table
from halfop.warehouse.spark_errors import OPERATIONAL_ERRORS, raise_mistake
from halfop.warehouse.tables import Marker, Warehouse, is_topic
from halfop.warehouse.where import Where

log = logging.getLogger("halfop.reconcile")

TOPIC_APP = "halfop.sink.topic"
SINK_TABLES = {"COMMIT": "topics", "DISCARD": "trans_check_max_time", "CHECK": "check_requests"}
WHOLE_TABLES = ("real_topics", "trans_check_max_time", "check_requests")
_MANY_NEW = 200
_SECONDS_A_TABLE, _FILES_A_TABLE = 0.03, 3  # on a local disk with two cores: bench/run topics
_COST = (
    "%d new topics: this run makes a table for each, which takes about %d s and %d files on a local disk, and more "
    "time elsewhere. Later runs put all topics into one table if they get topics.layout: single"
)
SINK_NAMES = ("topics/TOPIC", *WHOLE_TABLES, REJECTED)


@dataclass(frozen=True)
class Target:
    """A table that gets the `rows` messages decided so; of committed ones those of one topic, if each has its own."""

    decision: str
    path: str
    spec: TableSpec
    app: str
    rows: int
    topic: str = ""
    is_new: bool = False  # a topic that `topics_index` lacks
    reading: Reading | None = None
    unfit: Exception | None = None  # why it gets nothing

    @property
    def name(self) -> str:
        """The name that the summary shows and --park-sink takes."""
        return f"topics/{self.topic}" if self.topic else self.path


def app_of(name: str) -> str:
    """Returns the app id under which a table has the markers of runs that have written to it."""
    return TOPIC_APP if is_topic(name) else f"halfop.sink.{name}"


def make_sinks(warehouse: Warehouse) -> None:
    """Makes empty tables for readers, and for who asks. If one can't be made, only a run with rows for it fails."""
    for name in ("trans_check_max_time", "check_requests", "check_deliveries"):
        with suppress(*OPERATIONAL_ERRORS):
            warehouse.make(name)
    with suppress(*OPERATIONAL_ERRORS), hold_rejected(warehouse):
        warehouse.make(REJECTED)


def targets(warehouse: Warehouse, run: Run, digest: Digest, again: bool = False) -> list[Target]:
    """The tables that get messages of the run, or `again`, in their form now: values may have been made again."""
    found = _topics(warehouse, run, digest, again) if "COMMIT" in digest.counts else []
    others = [decision for decision in ("DISCARD", "CHECK") if decision in digest.counts]
    return found + [_whole_table(digest, decision, SINK_TABLES[decision]) for decision in others]


def _whole_table(digest: Digest, decision: str, name: str) -> Target:
    return Target(decision, name, table(name), app_of(name), digest.totals[decision])


def _topics(warehouse: Warehouse, run: Run, digest: Digest, again: bool) -> list[Target]:
    if run.settings.topics.layout == "single":
        return [_whole_table(digest, "COMMIT", "real_topics")]
    spec, app = table(OF_A_TOPIC), TOPIC_APP
    known = {row["topic"]: row["directory"] for row in warehouse.rows("topics_index")}
    new = directories(digest.topics, known)
    every = known | new
    found = [
        Target("COMMIT", f"topics/{every[topic]}", replace(spec, comment=comment(topic)), app, n, topic, topic in new)
        for topic, n in digest.topics.items()
    ]
    valued = [_with_values(warehouse, run, target, again) for target in found]
    own = run.settings.topics.own
    return [replace(each, spec=laid_out(each.spec, own[each.topic])) if each.topic in own else each for each in valued]


def _with_values(warehouse: Warehouse, run: Run, target: Target, again: bool) -> Target:
    """The target with the columns of its values, if its topic has a setting for them."""
    setting = rebuilt_by(warehouse, target.path, run.run_id) if again else None
    setting = setting or run.settings.topics.values.get(target.topic)
    if setting is None or setting.infers:
        return target
    try:
        spec, reading = form_of(target.topic, setting, warehouse.spec(target.path), run.run_id)
    except OPERATIONAL_ERRORS as error:  # an UnfitTable, or a log that cannot be read: other sinks go on
        raise_mistake(error)
        return replace(target, unfit=error)
    return replace(target, spec=replace(spec, comment=target.spec.comment), reading=reading)


def refuse_unfit(warehouse: Warehouse, settings: Settings) -> None:
    """Raises UsageError if a topic's setting cannot be used, or not with the values that its table has."""
    own = settings.topics.own
    known = {row["topic"]: row["directory"] for row in warehouse.rows("topics_index")} if own else {}
    for topic, each in own.items():
        try:
            form = warehouse.spec(f"topics/{known[topic]}") if topic in known else table(OF_A_TOPIC)
        except OPERATIONAL_ERRORS as error:
            raise_mistake(error)
            continue  # a run that writes to it tells of it
        try:
            if topic in settings.topics.values and not each.value.infers:
                form, _ = form_of(topic, each.value, form)
        except UnfitTable as error:
            raise UsageError(str(error)) from error
        if (problem := unfit_column(each, form)) is not None:
            raise UsageError(f"topics.{topic}.cluster_by: {problem}")


def index_topics(warehouse: Warehouse, run: Run, new: Sequence[Target]) -> None:
    """Writes the directories of new topics to `topics_index`, before a message goes there."""
    if len(new) >= _MANY_NEW:
        log.warning(_COST, len(new), math.ceil(len(new) * _SECONDS_A_TABLE), len(new) * _FILES_A_TABLE)
    if new:
        about = {"run_id": run.run_id, "created_at": run.now}
        named = sorted((target.topic, target.path.removeprefix("topics/")) for target in new)
        rows = [{"topic": topic, "directory": directory} | about for topic, directory in named]
        warehouse.commit("topics_index", rows, Marker(app_of("topics_index"), run.run_id))


def value_of(number: int) -> str:
    """The column of a table's values among rows of all tables."""
    return f"{VALUE}_{number}"


@dataclass(frozen=True)
class WholeMessages:
    """The tables are known by numbers."""

    warehouse: Warehouse
    run: Run
    digest: Digest
    due: Mapping[int, Target]
    stage: Stage  # of the bodies
    value_errors: dict[str, int] = field(default_factory=dict)  # written messages that do not fit, by topic
    without_values: list[str] = field(default_factory=list)  # topics that should have them

    def read(self, name: str, version: int | None, where: Where | None) -> DataFrame:
        return self.stage.take(self.warehouse.found(name, version, where).rows)

    @property
    def decisions(self) -> list[str]:
        return sorted({target.decision for target in self.due.values()})

    @property
    def payload(self) -> list[str]:
        """The columns of decisions that go into the tables."""
        return sorted({column for decision in self.decisions for column in PAYLOAD[decision]})

    @property
    def columns(self) -> list[str]:
        """The columns that the tables' rows are made of."""
        return [*HALF, "decision", *self.payload]

    def has_written(self, target: Target, misfits: int) -> None:
        """Notes messages that do not fit, and a topic without values whose table has them, or is to have them."""
        if misfits:
            self.value_errors[target.topic] = misfits
        if target.topic and not target.reading:
            due = target.topic in self.run.settings.topics.values
            if due or (not target.is_new and VALUE in self.warehouse.schema(target.path).names):
                self.without_values.append(target.topic)

    @property
    def rows(self) -> int:
        return sum(self.digest.totals[decision] for decision in self.decisions)

    @property
    def a_table_a_topic(self) -> bool:
        return self.run.settings.topics.layout == "per_topic"

    @property
    def forms(self) -> dict[int, Form]:
        """The forms of the rows if they are together: values of two topics are of two types."""
        return {
            n: Form(each.decision, each.reading, value_of(n)) if each.reading else Form(each.decision)
            for n, each in self.due.items()
        }

    @property
    def about(self) -> About:
        return About.of(self.run)
