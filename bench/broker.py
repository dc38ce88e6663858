"""`land broker` from a real RocketMQ on this machine: messages a second, of half, op and final messages together.

bench/run broker [--messages 100000] [--version 5] [--rounds 3]. The bound holds for the median.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.session import spark_session
from halfop.warehouse.tables import Warehouse
from systems.broker.real_broker import Plan, RealBroker, broker

_BOUND = 50_000
_NO_CHECKS = {"transactionCheckInterval": 3_600_000, "transactionTimeOut": 3_600_000}


def landed(warehouse: Warehouse, running: RealBroker) -> float:
    """Prints a landing; returns its messages a second."""
    start = time.perf_counter()
    request = BrokerRequest(RemotingSettings(), timedelta(0), namesrv=running.namesrv)
    summary = land_broker(warehouse, request, logging.getLogger("bench"))
    took = time.perf_counter() - start
    count = sum(summary.rows_written.values())
    told = {"messages": count, "seconds": round(took, 2), "a_second": round(count / took)}
    print(json.dumps(told | {"phases": summary.seconds}), flush=True)
    return count / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--version", type=int, choices=(4, 5), default=5)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    spark = spark_session("bench broker", **{"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    work = Path(tempfile.mkdtemp(prefix="halfop-bench-"))
    try:
        with broker(options.version, work / "broker", _NO_CHECKS) as running:
            # A log's first message has place 0, which final messages cannot name; it is looked up by Spark.
            running.produce([Plan("topic-0", "R")])
            plans = [Plan(f"topic-{n % 4}", "CCR"[n % 3], body=200) for n in range(options.messages)]
            running.produce(plans, threads=32)
            time.sleep(5)
            landed(KernelWarehouse(spark, str(work / "warm")), running)
            found = [
                landed(KernelWarehouse(spark, str(work / str(number))), running) for number in range(options.rounds)
            ]
    finally:
        shutil.rmtree(work)
    a_second = statistics.median(found)
    print(json.dumps({"a_second": round(a_second), "bound": _BOUND}))
    raise SystemExit(1 if a_second < _BOUND else 0)


if __name__ == "__main__":
    main()
