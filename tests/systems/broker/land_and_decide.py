"""The lake follows a real broker: what is new lands, and a run decides."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from halfop.landing.broker.request import BrokerRequest
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.model import Settings
from halfop.settings.topics import TopicSettings
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import functions as F
from support.brokers.rewinds import land_running
from support.ending_rows import QUICK

from systems.broker.real_broker import RealBroker


def followed(warehouse: KernelWarehouse, running: RealBroker, accept: bool = False) -> dict[str, tuple[str, str]]:
    """Lands what is new and decides; returns the last decision and its reason by UNIQ_KEY."""
    request = BrokerRequest(QUICK, timedelta(0), broker=running.address, accept_rewind=accept)
    assert land_running(warehouse, request).status == 0
    summary = reconcile(
        warehouse,
        Request(Settings(topics=TopicSettings(layout="single", decompress=False)), datetime.now(timezone.utc)),
    )
    assert summary.status == 0, summary
    decided = warehouse.read("decisions").where(F.col("decision") != "SUPERSEDED").groupBy("uniq_key")
    rows = decided.agg(F.max_by(F.struct("decision", "reason"), "run_id").alias("last")).collect()
    return {row["uniq_key"]: tuple(row["last"]) for row in rows}
