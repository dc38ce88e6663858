"""The tables that hold parts of messages, and what `erase` does to each; and the columns of texts that stay.

This is the one place where it is written, column by column: a test holds that no column of texts, bytes or maps of
schemas/ is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.warehouse.erasures import HALVES
from halfop.warehouse.schema import OF_A_TOPIC, table
from halfop.warehouse.tables import NO_TABLE, Warehouse


@dataclass(frozen=True)
class HalfColumns:
    """How a table names half messages, and which cells of their rows are emptied; none: whole rows are removed.

    `of_half`: the columns of half messages that have another name there, for a condition over them.
    """

    queue: str = "queue_id"
    offset: str = "queue_offset"
    cells: Sequence[str] = ()
    only: str = "true"
    of_half: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> dict[str, str]:
        """The columns of the half key, by their names in this table."""
        return {"broker_name": "broker_name", self.queue: "queue_id", self.offset: "queue_offset"}

    def left(self) -> Column:
        """The condition for rows of which something is left to remove."""
        filled = F.lit(not self.cells)
        for cell in self.cells:
            filled |= F.col(cell).isNotNull()
        return F.expr(self.only) & filled

    def as_halves(self, rows: DataFrame) -> DataFrame:
        """Returns rows with the columns of half messages that are there."""
        struct = table(HALVES).struct
        named = dict(self.of_half) | {of: name for name, of in self.key.items()}
        given = {f.name: named.get(f.name, f.name) for f in struct}
        return rows.select(
            *[F.expr(of).cast(struct[n].dataType).alias(n) for n, of in given.items() if _is_there(rows, of)]
        )


def _is_there(rows: DataFrame, expression: str) -> bool:
    return expression.partition("[")[0] in rows.columns


_COMMITTED = HalfColumns(
    queue="half_queue_id",
    offset="half_queue_offset",
    of_half={
        "uniq_key": "transaction_id",
        "real_topic": "topic",
        "real_queue_id": "queue_id",
        "commit_log_offset": "prepared_transaction_offset",
        "producer_group": "properties['PGROUP']",
    },
)
# In the order in which rows go: a half message last, because others are found by it.
PLACES: Mapping[str, HalfColumns] = {
    OF_A_TOPIC: _COMMITTED,
    "real_topics": _COMMITTED,
    "trans_check_max_time": HalfColumns(),
    "check_requests": HalfColumns(
        queue="half_queue_id",
        offset="tran_state_table_offset",
        of_half={"keys": "properties['KEYS']", "tags": "properties['TAGS']"},
    ),
    "endings": HalfColumns(cells=("evidence",)),
    "rejected": HalfColumns(offset="half_offset", cells=("detail",), only="kind = 'INPUT'"),
    HALVES: HalfColumns(),
}
# What names a transaction and says how it ended, what halfop itself has written, and who worked with it.
_NAMES = ("broker_name", "uniq_key", "producer_group")
STAYS: Mapping[str, Sequence[str]] = {
    "audit": ("audit_id", *_NAMES, "half_offsets", "finding", "real_topic", "detail", "inputs"),
    "broker_discards": _NAMES,
    "check_deliveries": ("request_id", "broker_name", "producer_group", "outcome", "client", "remark"),
    "decisions": (
        *_NAMES,
        *("real_topic", "decision", "reason", "check_immunity", "op", "copies", "pending_requests", "escaped_key"),
        *("copies_elsewhere", "copy_broker", "superseded_by_broker"),
    ),
    "endings": ("plan_id", "broker_name", "kind", "origin", "state", "remark", "by", "uniq_key"),
    "erasures": ("plan_id", "table_name", "broker_name", "by"),
    "final_messages": ("broker_name", "topic", "uniq_key"),
    "landed_files": ("path", "sha256", "kind"),
    "landing_progress": ("broker_name", "topic", "source", "life_of"),
    "op_messages": (*_NAMES, "tag", "body", "outcome", "source"),
    "rejected": ("kind", "reason", "broker_name", "range_topic", "sha256"),
    "resumes": ("broker_name", "owner"),
    "runs": (
        *("event", "owner", "settings", "rules_version", "inputs", "inputs_before", "slice"),
        *("counts", "seconds", "owed", "asks", "counts_delivered"),
    ),
    "topics_index": ("topic", "directory"),
}
# Tables that hold messages as a whole, which a condition over half messages can find.
MESSAGES = (OF_A_TOPIC, "real_topics", "trans_check_max_time", "check_requests", HALVES)


def places(warehouse: Warehouse, of: Sequence[str] = tuple(PLACES)) -> Iterator[tuple[str, HalfColumns]]:
    """Yields the tables there are of these, a topic's each by its folder, and how they name half messages."""
    for name in of:
        for each in _topics(warehouse) if name == OF_A_TOPIC else [name]:
            if warehouse.version(each) != NO_TABLE:
                yield each, PLACES[name]


def _topics(warehouse: Warehouse) -> list[str]:
    return sorted(f"topics/{row['directory']}" for row in warehouse.rows("topics_index"))


def keyed(place: HalfColumns, rows: DataFrame) -> DataFrame:
    """Returns rows of a table with the half keys that they name."""
    return rows.withColumns({of: F.col(name) for name, of in place.key.items() if name != of}).select(
        *HALF_KEY, *[name for name in rows.columns if name not in HALF_KEY]
    )
