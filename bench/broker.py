"""`land broker` from a real RocketMQ on this machine: messages a second, of half, op and final messages together.

bench/run broker [--messages 100000] [--version 5] [--rounds 2]
"""

from __future__ import annotations

import argparse
import logging
import shutil
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from halfop.landing.broker.land import BrokerRequest, land_broker
from halfop.landing.data_source import register
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.warehouse.session import spark_session
from halfop.warehouse.tables import Warehouse
from real_broker import Plan, RealBroker, broker

_NO_CHECKS = {"transactionCheckInterval": 3_600_000, "transactionTimeOut": 3_600_000}


def landed(warehouse: Warehouse, running: RealBroker) -> str:
    start = time.perf_counter()
    request = BrokerRequest(RemotingSettings(), timedelta(0), namesrv=running.namesrv)
    summary = land_broker(warehouse, request, logging.getLogger("bench"))
    took = time.perf_counter() - start
    count = sum(summary.rows_written.values())
    return f"{count} rows in {took:.1f} s: {count / took:,.0f} a second; {summary.seconds}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--version", type=int, choices=(4, 5), default=5)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    spark = spark_session("bench broker", **{"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    register(spark)
    work = Path(tempfile.mkdtemp(prefix="halfop-bench-"))
    try:
        with broker(options.version, work / "broker", _NO_CHECKS) as running:
            running.produce([Plan("warm", "C")] * 2_000)
            print("warm-up:", landed(Warehouse(spark, str(work / "warm")), running))
            start = time.perf_counter()
            plans = [Plan(f"topic-{n % 4}", "CCR"[n % 3], body=200) for n in range(options.messages)]
            running.produce(plans, threads=32)
            print(f"the producer sent {options.messages / (time.perf_counter() - start):,.0f} messages a second")
            time.sleep(5)
            for number in range(options.rounds):
                print(f"round {number}:", landed(Warehouse(spark, str(work / str(number))), running), flush=True)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
