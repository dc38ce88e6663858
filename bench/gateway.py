"""Durable transactions a second through a gateway: half message and commit, each answered after its fdatasync.

bench/run gateway [--transactions 60000] [--connections 256] [--rounds 3] [--java]. The bound holds for the median.
--java runs RocketMQ's own producer (16 threads) against the gateway and against a real broker with SYNC_FLUSH and with
ASYNC_FLUSH, in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from contextlib import closing
from pathlib import Path

from support.gateway.gateway_load import Generator
from support.gateway.gateways import RunningGateway, gateway
from systems.broker.real_broker import Plan, RealClients, broker

_BOUND = 10_000
_THREADS = 16
_NO_CHECKS = {"transactionCheckInterval": 3_600_000, "transactionTimeOut": 3_600_000}


def cpu_seconds(pid: int) -> float:
    """The CPU seconds that a process has used by now."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def loaded(running: RunningGateway, transactions: int, connections: int) -> float:
    """Prints a load; returns its transactions a second."""
    with closing(Generator(running.address, connections)) as generator:
        before = cpu_seconds(running.process.pid)
        load = generator.run(transactions)
    cpu = cpu_seconds(running.process.pid) - before
    told = {"transactions": transactions, "connections": connections, "a_second": round(load.a_second)}
    told |= {"p50_ms": load.percentile(0.5), "p99_ms": load.percentile(0.99), "refused": load.refused}
    print(json.dumps(told | {"cpu_us_each": round(cpu / transactions * 1e6, 1)}), flush=True)
    return load.a_second


def produced(clients: RealClients, transactions: int) -> float:
    """Transactions a second of RocketMQ's own producer, without its start."""
    clients.produce([Plan(f"topic-{n % 4}", body=200) for n in range(transactions)], threads=_THREADS)
    return transactions / clients.seconds


def beside_brokers(work: Path, transactions: int, rounds: int) -> None:
    """Prints the medians of the Java producer's transactions a second, through each in turn."""
    found: dict[str, list[float]] = {"gateway": [], "SYNC_FLUSH": [], "ASYNC_FLUSH": []}
    for number in range(rounds):
        folder = work / f"round-{number}"
        with gateway(folder / "gateway") as running:
            found["gateway"].append(produced(RealClients(5, folder, running.address), transactions))
        for flush in ("SYNC_FLUSH", "ASYNC_FLUSH"):
            (folder / flush).mkdir(parents=True)
            with broker(5, folder / flush, {**_NO_CHECKS, "flushDiskType": flush}) as real:
                found[flush].append(produced(real, transactions))
        print(json.dumps({name: round(rates[-1]) for name, rates in found.items()}), flush=True)
    print(json.dumps({f"java_{name}": round(statistics.median(rates)) for name, rates in found.items()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transactions", type=int, default=60_000)
    parser.add_argument("--connections", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--java", action="store_true")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="halfop-bench-"))
    try:
        with gateway(work / "gateway", "--set", f"gateway.open_messages={10**8}") as running:
            loaded(running, options.transactions // 10, options.connections)
            found = [loaded(running, options.transactions, options.connections) for _ in range(options.rounds)]
        if options.java:
            beside_brokers(work / "java", options.transactions // 3, options.rounds)
    finally:
        shutil.rmtree(work)
    a_second = statistics.median(found)
    print(json.dumps({"a_second": round(a_second), "bound": _BOUND}))
    raise SystemExit(1 if a_second < _BOUND else 0)


if __name__ == "__main__":
    main()
