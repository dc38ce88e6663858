"""The plots of a warehouse. Its import needs altair, so `Halfop.plot` imports it when somebody wants one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from halfop.api.calls import refuse_no_count
from halfop.charts import decided, life, played
from halfop.charts.look import Drawn
from halfop.simulation.simulate import Simulated
from halfop.warehouse.session import WITHOUT_CODEGEN
from halfop.warehouse.tables import Warehouse


class Plots:
    """Plots, each an altair chart with what it shows as its title; its rows are bounded whatever the tables hold."""

    def __init__(self, reading: Callable[..., AbstractContextManager[Warehouse]]) -> None:
        self._reading = reading

    def decided_by_run(self, runs: int = 12) -> Drawn:
        """Returns what each of the last runs decided."""
        refuse_no_count(runs=runs)
        with self._reading() as warehouse:
            return decided.by_run(warehouse, runs)

    def open_by_age(self) -> Drawn:
        """Returns the ages of the messages that the last run left open."""
        with self._reading() as warehouse:
            return decided.open_by_age(warehouse)

    def time_to_end(self) -> Drawn:
        """Returns how long producers took to end transactions, of up to 2,000 of them, drawn by lot."""
        with self._reading() as warehouse:
            return decided.time_to_end(warehouse)

    def life(self, key: str) -> Drawn:
        """Returns the events of one message's life, as `explain` lists them."""
        with self._reading(**WITHOUT_CODEGEN) as warehouse, warehouse.for_few_rows():
            return life.life(warehouse, key)

    # ---- what `simulate` returned ----

    def checks(self, of: Simulated) -> Drawn:
        """Returns how often each variant of a simulation asks producers, and how often it need not have."""
        return played.checks(of)

    def latency(self, of: Simulated) -> Drawn:
        """Returns how long each variant of a simulation takes to commit messages."""
        return played.latency(of)

    def discards(self, of: Simulated) -> Drawn:
        """Returns how many messages each variant of a simulation gives up, and how many of them wrongly."""
        return played.discards(of)

    def open_after_runs(self, of: Simulated) -> Drawn:
        """Returns how many messages are open after each run of a simulation, by its first and its last variant."""
        return played.open_after_runs(of)
