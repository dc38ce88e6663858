"""Every small history of one UNIQ_KEY: runs decide what the model decides, and the order of landing changes no fate.

bench/run exhaustive [--rows 5] [--escapes] [--gateways | --stores | --files | --in-memory] [--batch 20000] [--every N]
                     [--skip N]

Histories of fewer rows come first, so the first that fails is a smallest one. --escapes: those in which the message
escapes to a second broker. --gateways: half of them are of gateways, which deliver some of the questions. --stores,
--files: only those that a store, or files, may land so that runs look nothing back. --in-memory: by the rules on frames
in memory, without Delta. --every takes each Nth, after --skip of them, also of the rows of which all orders are
compared. Status 1 if one fails.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from backlog import quiet_session
from halfop.planning import counts
from halfop.warehouse.kernel import KernelWarehouse
from model import fleet as f
from model import small_histories as s
from pyspark.sql import SparkSession
from rules.test_small_histories import fate
from support.rules import against_model as model

Batch = list[tuple[s.Rows, tuple[int, ...]]]


def batches(args: argparse.Namespace) -> Iterator[Batch]:
    chosen = islice(s.up_to(args.rows, args.escapes), args.skip, None, args.every)
    while batch := list(islice(chosen, args.batch)):
        yield batch


def fates(args: argparse.Namespace) -> int:
    """Compares all orders of the same rows by the model; returns their number."""
    number, few = 0, (rows for rows in s.all_rows(args.escapes) if rows.number <= args.rows)
    for rows in islice(few, args.skip, None, args.every):
        if rows.agree:
            orders = list(s.orders(rows))
            number += len(orders)
            if len({fate(rows, order) for order in orders}) > 1:
                raise SystemExit(f"the order of landing decides: {rows}")
    return number


def play(spark: SparkSession, batch: Batch, how: str, seeded: int) -> int:
    """Returns the number of histories that it played."""
    histories = {"stores": s.of_stores, "files": s.of_files}.get(how, s.histories)(batch)
    ships = f.with_gateways(histories, seeded) if how == "gateways" else f.fleet(histories)
    if how == "in-memory":
        model.assert_agrees(spark, model.played_ships(s.SETTINGS, ships))
        return len(ships)
    folder = Path(tempfile.mkdtemp(prefix="halfop-exhaustive-"))
    f.assert_agrees(KernelWarehouse(spark, str(folder)), s.ASKING if how == "stores" else s.CHARTER, ships)
    shutil.rmtree(folder)
    return len(ships)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5)
    parser.add_argument("--escapes", action="store_true")
    how = parser.add_mutually_exclusive_group()
    for name in ("gateways", "stores", "files", "in-memory"):
        how.add_argument(f"--{name}", dest="how", action="store_const", const=name)
    parser.add_argument("--batch", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0)
    args = parser.parse_args()
    pytest.MonkeyPatch().setattr(counts, "_MOST_RANGES", 8)  # thousands of brokers, which no cluster has
    spark, begun, played = quiet_session(), time.monotonic(), 0
    for batch in batches(args):
        played += play(spark, batch, args.how, played)
        print(
            json.dumps({"played": played, "rows": batch[-1][0].number, "s": round(time.monotonic() - begun)}),
            flush=True,
        )
    # by the model alone, so once is enough
    print(json.dumps({"played": played, "orders_compared": 0 if args.how else fates(args)}))


if __name__ == "__main__":
    main()
