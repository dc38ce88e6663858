"""Generated brokers that lose the end of their log: what stands ends once, as its own ops say, delivered once."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pytest
from halfop.landing.files.land import FilesRequest, land_files
from halfop.warehouse.kernel import KernelWarehouse
from model import reference as m
from model.strategies import half_lines, op_lines
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from support import rows as r
from support.brokers import store_writer as w
from support.brokers.losing import Losing
from support.brokers.rewinds import SECOND, land
from support.seeds import SEED

NOW = w.BORN_MS + 3_600 * SECOND
RULES = m.Settings(transaction_timeout=48 * 3_600_000)  # nobody is asked
OPEN = ("WAIT", "CHECK")


def brokers(number: int) -> list[Losing]:
    return [Losing(f"broker-{n}", Random(SEED * 1_000 + n), n * 1_000) for n in range(number)]


def lives(broker: Losing, number: int) -> None:
    """What happens to a broker before a landing: it may lose something before, in, or after its traffic."""
    broker.live()
    if number and broker.chance.random() < 0.6:
        broker.lose()
        broker.live()


def decided(warehouse: KernelWarehouse) -> tuple[dict[int, str], Counter[int]]:
    """By half message: its last decision, and how often it has ended."""
    rows = warehouse.read("decisions").where("decision <> 'EARLY_OP'").groupBy("uniq_key")
    ends = F.count_if(F.col("decision").isin("COMMIT", "ROLLBACK")).alias("ends")
    superseded = F.col("decision") == "SUPERSEDED"
    last = F.max_by(F.when(~superseded, F.struct("decision", "reason")), F.when(~superseded, F.col("run_id")))
    names, copies = F.count_distinct("broker_name").alias("names"), F.count_if(superseded).alias("copies")
    found = rows.agg(last.alias("last"), ends, names, copies).collect()
    assert all(row["names"] == 1 or row["copies"] for row in found)
    assert all(row["last"][1] == "LOST_BY_BROKER" for row in found if row["last"][0] == "DISCARD")
    last_of = {int(row["uniq_key"], 16): "OPEN" if row["last"][0] in OPEN else row["last"][0] for row in found}
    return last_of, Counter({int(row["uniq_key"], 16): row["ends"] for row in found})


def assert_fates(warehouse: KernelWarehouse, fates: dict[int, str], lost: Iterable[int] = ()) -> None:
    """`lost` may be open still."""
    found, ends = decided(warehouse)
    for n in lost:
        if fates[n] == "DISCARD" and found.get(n) == "OPEN":
            fates[n] = "OPEN"
    assert found == fates
    assert max(ends.values()) == 1
    delivered = Counter(int(d.transaction_id or "", 16) for d in r.delivered(warehouse).elements())
    assert delivered == Counter(n for n, fate in fates.items() if fate == "COMMIT")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_stores(spark: SparkSession, warehouse: KernelWarehouse, tmp_path: Path) -> None:
    fleet, rounds = brokers(6), 5
    for number in range(rounds):
        for broker in fleet:
            lives(broker, number)
            store = broker.store(tmp_path / f"{broker.name}-{number}")
            land(warehouse, store, accept=True, broker=broker.name)
            broker.land()
        r.run(warehouse, RULES, NOW + number * SECOND)
        fates = {n: fate for broker in fleet for n, fate in broker.fates(finals=True).items()}
        assert_fates(warehouse, fates)
    assert "DISCARD" in fates.values()
    assert copies_of_an_earlier_life(warehouse)


@pytest.mark.slow
def test_files(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    """Files show a loss only by another message under the key of a lost one."""
    fleet = brokers(30)
    for number in range(3):
        for broker in fleet:
            lives(broker, number)
        request = exported(tmp_path / str(number), fleet)
        land_files(warehouse, request, logging.getLogger("halfop.test"))
        for broker in fleet:
            broker.land()
        r.run(warehouse, RULES, NOW + number * SECOND)
    fates = {n: fate for broker in fleet for n, fate in broker.fates(finals=False).items()}
    assert_fates(warehouse, fates, [n for n, fate in fates.items() if fate == "DISCARD"])
    assert "LOST_BY_BROKER" in {row["reason"] for row in warehouse.rows("decisions")}
    assert copies_of_an_earlier_life(warehouse)


def copies_of_an_earlier_life(warehouse: KernelWarehouse) -> int:
    return warehouse.read("decisions").where("superseded_by_broker IS NOT NULL").count()


def exported(folder: Path, fleet: Sequence[Losing]) -> FilesRequest:
    """All that the brokers have now."""
    folder.mkdir()
    halves = half_lines(half for broker in fleet for half in broker.halves())
    ops = op_lines(op for broker in fleet for op in broker.ops())
    for name, rows in (("half.jsonl", halves), ("op.jsonl", ops)):
        (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return FilesRequest([str(folder / "half.jsonl")], [str(folder / "op.jsonl")], accept_rewind=True)
