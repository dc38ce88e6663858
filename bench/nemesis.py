"""A system of real processes under faults of all kinds at once, and a judgement of what all its parties wrote down.

A gateway and a broker 5.5, producers behind networks of their own, `follow`, `end`, `resume`, `maintain` and a reader
of the topics (tests/support/nemesis). When the time is up all is healed, what is open is asked about or ended, and
the history is checked (tests/support/histories): the bound is no finding.

bench/run nemesis [--seconds 3600] [--seed N] [--planted] [--keep]. Needs root or user namespaces, and libfaketime,
for all kinds of faults; what is missing is said. --planted: faults in the topics themselves must be found.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from deltalake import DeltaTable
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.remoting import RemotingSettings
from programs.reading import Reader
from support.gateway.gateways import pulled
from support.histories.check import check
from support.histories.events import Acknowledged, Consumed, Decided, Event, Fates, Journal, Meant, Sent, history
from support.nemesis.faults import Nemesis
from support.nemesis.machine import Machine, enter
from support.nemesis.planted import plant
from support.nemesis.system import BROKERS, System
from systems.broker.real_broker import fetched

_SETTLE_SECONDS = 3600
_OPERATOR_SAYS = {"hang_commit": "COMMIT", "hang_rollback": "ROLLBACK"}


def decided(system: System) -> dict[str, str]:
    """The last decision about each transaction."""
    path, columns = str(system.warehouse / "decisions"), ["uniq_key", "decision", "run_id"]
    table = DeltaTable(path).to_pyarrow_table(columns=columns).to_pylist() if DeltaTable.is_deltatable(path) else []
    rows = sorted(table, key=lambda row: row["run_id"])
    return {row["uniq_key"]: row["decision"] for row in rows if row["decision"] != "SUPERSEDED"}


def open_still(system: System) -> dict[str, str]:
    """The last decision about each transaction that has not ended; all that was acknowledged must end."""
    found = decided(system)
    acknowledged = {event.key: "NONE" for event in history(system.history) if isinstance(event, Acknowledged)}
    return {key: each for key, each in (acknowledged | found).items() if each not in ("COMMIT", "ROLLBACK")}


def settle(system: System, nemesis: Nemesis) -> float:
    """Lets producers only answer, and operators end what is left, until all has ended; returns how long it took."""
    (system.folder / "settle").touch()
    start = time.monotonic()
    while (left := open_still(system)) and time.monotonic() < start + _SETTLE_SECONDS:
        if any(decision == "DISCARD" and not key.startswith("hang") for key, decision in left.items()):
            nemesis.resume()
        for outcome in ("commit", "rollback"):
            if any(key.startswith(f"hang_{outcome}") for key in left):
                nemesis.end(outcome)
        nemesis.supervise()
        time.sleep(5)
    time.sleep(5)  # what has been decided last is delivered
    return time.monotonic() - start


def consumed(system: System) -> list[Event]:
    """What the broker delivered."""
    with closing(Broker(system.broker_address, RemotingSettings())) as broker:
        return [Consumed(BROKERS, row["UNIQ_KEY"]) for row in pulled(broker, BROKERS)]


def meant(system: System, events: list[Event]) -> list[Event]:
    """What producers decided, and what operators said of the others."""
    sent = [event.key for event in events if isinstance(event, Sent)]
    by_operators = [
        Meant("operator", key, _OPERATOR_SAYS[kind])
        for key in sent
        if (kind := key.partition("-")[0]) in _OPERATOR_SAYS
    ]
    return [*Fates(system.folder / "fates").meant(), *by_operators]


def collected(system: System, planted: bool) -> tuple[list[Event], set[tuple[str, str]]]:
    """The whole history, and what was planted: all parts have ended but the broker."""
    events = list(history(system.history))
    events += [*meant(system, events), *consumed(system)]
    events += [Decided(*each) for each in decided(system).items()]
    wanted = plant(system.warehouse / "topics" / "gateways", events) if planted else set()
    last = system.folder / "last"
    last.mkdir()
    Reader(system.warehouse, Journal(last, "last")).look()
    return [*events, *history(last)], wanted


def run(folder: Path, seconds: float, seed: int, planted: bool) -> dict[str, object]:
    """Plays; returns what is printed."""
    machine = Machine(folder, networks=2)
    print(json.dumps({"seed": seed, "folder": str(folder), "left_out": machine.left_out}), flush=True)
    system = System(machine, folder, seed)
    nemesis = Nemesis(system, seed)
    try:
        system.start()
        nemesis.begin()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            nemesis.wait(min(5.0, end - time.monotonic()))
        nemesis.heal()
        settling = settle(system, nemesis)
        for part in system.parts.values():
            part.stop(_SETTLE_SECONDS)  # a run at work is finished
        events, wanted = collected(system, planted)
    finally:
        system.close()
    kinds, found = Counter(type(event).__name__ for event in events), check(events)
    held = {finding[:2] for finding in found} == wanted
    if not held:  # disks of its own end with this process
        shutil.copytree(system.disk, folder / "lake-kept")
        shutil.copytree(system.store, folder / "store-kept")
    for finding in found:
        print(json.dumps(finding._asdict(), ensure_ascii=False), flush=True)
    return {
        "seed": seed,
        "seconds": seconds,
        "settled_s": round(settling),
        "transactions": kinds["Sent"],
        "acknowledged": kinds["Acknowledged"],
        "ends_acknowledged": kinds["Ended"],
        "delivered": sum(event.outcome == "COMMIT" for event in events if isinstance(event, Meant)),
        "looks": kinds["Read"],
        "faults": dict(nemesis.done),
        "jobs": dict(nemesis.jobs),
        "ended_by_themselves": dict(sum((part.ended for part in system.parts.values()), Counter[str]())),
        "left_out": machine.left_out,
        "findings": dict(Counter(finding.name for finding in found)),
        "bound": 0,
        "held": held,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the folder of logs and tables, as after a finding")
    given = parser.parse_args()
    fetched("5.5", ("Server", "Producer", "Consumer"))  # while there is a network
    enter()
    folder = Path(tempfile.mkdtemp(prefix="halfop-nemesis-"))
    told = run(folder, given.seconds, given.seed, given.planted)
    print(json.dumps(told))
    if told["held"] and not given.keep:
        for disk in filter(Path.is_mount, folder.iterdir()):
            subprocess.run(["umount", "--lazy", str(disk)], check=True)  # noqa: S607
        shutil.rmtree(folder)
    raise SystemExit(0 if told["held"] else 1)


if __name__ == "__main__":
    main()
