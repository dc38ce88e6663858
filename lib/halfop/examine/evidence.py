"""What the tables that runs write to prove of decisions: who was delivered was committed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.warehouse.schema import table
from halfop.warehouse.tables import NO_TABLE, Warehouse

KEY = ["run_id", *HALF_KEY]
_OF_TOPIC = {"queue_id": "half_queue_id", "queue_offset": "half_queue_offset", "uniq_key": "transaction_id"}
_OF_TOPIC |= {"real_topic": "topic", "real_queue_id": "queue_id", "commit_log_offset": "prepared_transaction_offset"}
_OF_TOPIC |= {"decided_at": "committed_at"}
_OF_DISCARD = {"decided_at": "discarded_at"}
_OF_REQUEST = {"queue_id": "half_queue_id", "queue_offset": "tran_state_table_offset", "decided_at": "requested_at"}
_OF_REQUEST |= {"last_checked_at": "requested_at"}


def evidence(warehouse: Warehouse, topics: Sequence[str]) -> DataFrame:
    """Decisions in the form of their table, as topics, discards and questions show them."""
    group = F.try_element_at("properties", F.lit("PGROUP"))
    committed = {"decision": F.lit("COMMIT"), "reason": F.lit("PRODUCER"), "producer_group": group}
    parts = [_decisions(warehouse.read(name), _OF_TOPIC, committed) for name in (*topics, "real_topics")]
    discarded = {"decision": F.lit("DISCARD")}
    asked = {"decision": F.lit("CHECK"), "reason": F.lit("TIMEOUT"), "open": F.lit(True)}
    parts.append(_decisions(warehouse.read("trans_check_max_time"), _OF_DISCARD, discarded))
    parts.append(_decisions(warehouse.read("check_requests"), _OF_REQUEST, asked))
    return reduce(DataFrame.unionByName, parts)


def _decisions(rows: DataFrame, named: dict[str, str], said: dict[str, Column]) -> DataFrame:
    known: dict[str, Column] = {"open": F.lit(False), "repeated": F.lit(False), "check_times": F.lit(0)}
    known |= {name: F.col(name) for name in rows.columns if name != "landed_at"}
    known |= {name: F.col(of) for name, of in named.items()} | said
    struct = table("decisions").struct
    return rows.select(*[known.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in struct])


def lacking(warehouse: Warehouse, topics: Sequence[str]) -> DataFrame:
    """The proven decisions that `decisions` lacks."""
    shown = evidence(warehouse, topics)
    if warehouse.version("decisions") == NO_TABLE:
        return shown
    known = warehouse.read("decisions").where("decision <> 'EARLY_OP'").select(KEY)
    return shown.join(known, KEY, "left_anti").dropDuplicates(KEY)
