"""`land broker`: messages of running brokers, up to their queues' ends at the time of asking."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from halfop.frame.errors import HalfopError, is_transient
from halfop.frame.summary import Summary
from halfop.landing import progress
from halfop.landing.again import refuse_unknown
from halfop.landing.broker.one import BrokerLanding, Shared
from halfop.landing.broker.request import BrokerRequest, addresses
from halfop.landing.progress import next_instant
from halfop.landing.staged import staging
from halfop.landing.table_rows import TABLES
from halfop.warehouse.lock import hold
from halfop.warehouse.progress import TABLE as PROGRESS
from halfop.warehouse.spark_errors import log_failure
from halfop.warehouse.tables import Warehouse

_THREADS = 8


def land_broker(warehouse: Warehouse, request: BrokerRequest, log: logging.Logger) -> Summary:
    """Lands what is new in all brokers, at the same time. A broker that fails stops no other; the summary names it."""
    summary = Summary("land")
    locked = hold(warehouse, "landing", request.wait)
    with summary.shown_in_failure(), locked, warehouse.for_few_rows(), staging(warehouse) as files:
        warehouse.make(PROGRESS, *TABLES.values())
        shared = Shared(warehouse, request, summary, next_instant(warehouse), files)
        landings = [BrokerLanding(shared, address) for address in addresses(request)]
        landings = _asked_again(request, landings)
        with ThreadPoolExecutor(_THREADS) as pool:
            errors = list(pool.map(BrokerLanding.land, landings))
        summary.extra["known_until"] = progress.summary_of(progress.known_until(warehouse, progress.of_ops(warehouse)))
        summary.extra["lost_ranges"] = sum(landing.lost_ranges for landing in landings)
    _report_failed(summary, {each.broker_name: e for each, e in zip(landings, errors, strict=True) if e}, log)
    return summary


def _asked_again(request: BrokerRequest, landings: list[BrokerLanding]) -> list[BrokerLanding]:
    """The landings of brokers that --again names; all of them without it."""
    names = [name for landing in landings for name in landing.lives.names]
    refuse_unknown(request.again, names, request.namesrv or str(request.broker))
    wanted = {each.broker_name for each in request.again}
    return [each for each in landings if not wanted or wanted & {*each.lives.names}]


def _report_failed(summary: Summary, failed: Mapping[str, HalfopError], log: logging.Logger) -> None:
    if failed:
        lines = {name: log_failure(log, f"broker {name}", error, str(error)) for name, error in failed.items()}
        status = max(error.exit_status for error in failed.values())
        summary.add_failed("failed_brokers", lines, all(map(is_transient, failed.values())), status)
