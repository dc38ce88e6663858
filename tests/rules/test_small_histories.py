"""Small histories of one UNIQ_KEY, all of them: the model and runs agree, and the order of landing changes no fate.

bench/run exhaustive plays all; here a fixed part of them is played by whole runs.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import pytest
from halfop.planning import history
from halfop.planning.arrivals import Arrivals
from halfop.planning.copies import arrived_late
from halfop.warehouse.tables import Warehouse
from model import fleet as f
from model import small_histories as s
from model.strategies import play
from support.seeds import SEED


# No multiples of what the enumeration repeats in: three runs, two outcomes, and so on.
@pytest.mark.parametrize(
    ("every", "escape"), [(1_777, 3_191), pytest.param(29, 17, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_runs_decide_what_the_model_decides(warehouse: Warehouse, every: int, escape: int) -> None:
    """Every so many of those of one broker, and of those that escape to another; half of them of gateways."""
    alone, escapes = s.up_to(5), s.up_to(5, of_escapes=True)
    some = [*islice(alone, SEED % every, None, every), *islice(escapes, SEED % escape, None, escape)]
    ships = f.with_gateways(s.histories(some), SEED)
    assert sum(len(sent) for ship in ships for sent in ship.played.sent) > len(ships) // 8
    f.assert_agrees(warehouse, s.CHARTER, ships)


@pytest.mark.parametrize(
    ("landed", "every"),
    [
        pytest.param("store", 193, marks=pytest.mark.thorough),
        pytest.param("store", 5, marks=pytest.mark.slow),
        pytest.param("files", 5, marks=pytest.mark.slow),
    ],
)
def test_runs_that_look_nothing_back(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, landed: str, every: int
) -> None:
    """A store lands nothing before what it has before it; one row that is late would have the whole run look back."""
    monkeypatch.setattr(history, "arrived_late", never_late)
    chosen = islice(s.up_to(5), SEED % every, None, every)
    some, charter = (s.of_stores(chosen), s.ASKING) if landed == "store" else (s.of_files(chosen), s.CHARTER)
    f.assert_agrees(warehouse, charter, f.fleet(some))
    assert len(some) > 90


def never_late(arrivals: Arrivals) -> bool:
    assert not arrived_late(arrivals)
    return False


@pytest.mark.slow
def test_runs_decide_what_the_model_decides_of_larger_ones(warehouse: Warehouse) -> None:
    ships = f.with_gateways(s.histories(s.larger(3_000, Random(SEED))), SEED)
    f.assert_agrees(warehouse, s.CHARTER, ships)


@pytest.mark.long
@pytest.mark.parametrize("of_escapes", [False, True], ids=["one broker", "two brokers"])
def test_any_order_of_landing_ends_with_the_same_fate(of_escapes: bool) -> None:
    """The fate is the model's; runs are held against it."""
    for rows in s.all_rows(of_escapes):
        if rows.number <= 4 and rows.agree:
            fates = {fate(rows, order) for order in s.orders(rows)}
            assert len(fates) <= 1, (rows, fates)


def fate(rows: s.Rows, order: tuple[int, ...]) -> object:
    """How each half message has ended, and how often each transaction was delivered."""
    model = play(s.history(rows, order)).model
    ended = {(key, known.status) for key, known in model.transactions.items() if known.status in ("COMMIT", "ROLLBACK")}
    delivered = Counter(min(model.transactions[row.key].copies) for row in model.delivered)
    return frozenset(ended), frozenset(delivered.items())
