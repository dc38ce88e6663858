"""grpc_producer.py ENDPOINTS TOPIC PLAN TRUTH: what GrpcProducer.java does, by RocketMQ's Python client.

If TRUTH is there, it is what a process before this one knew of its messages.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from threading import Lock
from typing import Any

from rocketmq import (  # type: ignore[attr-defined]  # not tests/rocketmq
    ClientConfiguration,
    Credentials,
    Message,
    Producer,
    TransactionChecker,
    TransactionResolution,
)

UNDER_WAY, FAILED = -1, -2
ANSWERS = {
    "C": TransactionResolution.COMMIT,
    "R": TransactionResolution.ROLLBACK,
    "U": TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
}


class Checker(TransactionChecker):  # type: ignore[misc]
    def __init__(self, truth: Path) -> None:
        known = [line.split("\t") for line in truth.read_text().splitlines() if "\t" in line]
        self.asked = {key: len(plan) if sent == "true" else FAILED for key, plan, sent in known}
        self.lock = Lock()

    def check(self, message: Any) -> Any:
        plan, key = message.properties["plan"], next(iter(message.keys))
        with self.lock:
            if self.asked.get(key, FAILED) >= 0:
                self.asked[key] += 1
            asked = self.asked.get(key, len(plan))
        return ANSWERS[{FAILED: "R", UNDER_WAY: "U"}.get(asked, plan[min(max(asked, 0), len(plan) - 1)])]


def send(producer: Any, checker: Checker, topic: str, key: str, plan: str) -> bool:
    """Whether it was sent."""
    message, transaction = Message(), producer.begin_transaction()
    message.topic, message.body, message.keys = topic, b"body", key
    message.add_property("plan", plan)
    checker.asked[key] = UNDER_WAY
    try:
        producer.send(message, transaction)
    except Exception:
        checker.asked[key] = FAILED
        time.sleep(0.2)
        return False
    checker.asked[key] = 0
    try:
        if plan[0] != "U":
            (transaction.commit if plan[0] == "C" else transaction.rollback)()
    except Exception as error:
        print(f"{key} is left to be asked about: {error}", file=sys.stderr)
    return True


def main(endpoints: str, topic: str, plans: str, truth: str) -> None:
    checker = Checker(Path(truth))
    keys = [os.environ[name] for name in ("ROCKETMQ_ACCESS_KEY", "ROCKETMQ_SECRET_KEY") if name in os.environ]
    configuration = ClientConfiguration(endpoints, Credentials(*keys), request_timeout=5)
    producer = Producer(configuration, (topic,), checker=checker)
    producer.startup()
    number = 0
    with Path(truth).open("a") as file:
        for plan in Path(plans).read_text().split():
            sent = False
            while not sent:
                key, number = f"python-{number}", number + 1
                sent = send(producer, checker, topic, key, plan)
                file.write(f"{key}\t{plan}\t{str(sent).lower()}\n")
                file.flush()
        file.write("all\n")
    sys.stdin.read()
    producer.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
