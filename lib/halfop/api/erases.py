"""Messages whose data is erased, by a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from halfop.api.calls import WarehouseCalls, refuse_text
from halfop.columns.keys import Key, as_key
from halfop.erasure import plan as plans
from halfop.erasure.erase import ErasedTable, erase, plan
from halfop.erasure.plan import ErasurePlan
from halfop.erasure.selection import ToErase
from halfop.frame.errors import UsageError
from halfop.frame.summary import Summary, WithRows
from halfop.warehouse.kernel import files_of


@dataclass(frozen=True)
class PlannedErasure:
    """A plan to erase messages, and the summary."""

    summary: Summary
    plan: ErasurePlan

    def write(self, path: str | Path) -> None:
        """Writes the plan to a new file, Parquet by its suffix .parquet; the summary then has its path."""
        plans.write(self.plan, str(path))
        self.summary.extra |= {"plan": str(Path(path).absolute()), "plan_id": self.plan.head.plan_id}


class Erasing(WarehouseCalls):
    """The methods that erase."""

    def plan_erase(self, keys: Sequence[Key | str] = (), *, where: str | None = None) -> PlannedErasure:
        """Plans to erase messages: by half keys or UNIQ_KEYs, or by a condition over the columns of half_messages.

        Nothing is removed before `erase`. Open messages are left out.

        >>> wh.plan_erase(where="keys = 'k1'").plan.head.tables
        {'half_messages': 1, 'topics/orders': 1}
        """
        if bool(keys) == (where is not None):
            raise UsageError('which messages? Give keys, as ["broker-a/0/4711"], or where, a condition of SQL')
        refuse_text(keys=keys)
        known = {str(each): as_key(str(each)) for each in keys}
        of_half = [key for key in known.values() if key is not None]
        wanted = ToErase(of_half, [text for text, key in known.items() if key is None], where)
        with self._writing() as there:
            warehouse = files_of(there, "erase")
            with warehouse.for_few_rows():
                return PlannedErasure(*plan(warehouse, wanted))

    def erase(self, made: ErasurePlan | str | Path) -> WithRows[ErasedTable]:
        """Erases what a plan, or a plan's file, names, table by table; decisions keep that the messages were there.

        >>> wh.erase(wh.plan_erase(["broker-a/0/1"]).plan).rows
        [ErasedTable(table='topics/orders', rows=1), ErasedTable(table='half_messages', rows=1)]
        """
        found = made if isinstance(made, ErasurePlan) else plans.read(str(made))
        with self._writing() as there:
            warehouse = files_of(there, "erase")
            with warehouse.for_few_rows():
                return WithRows(*erase(warehouse, found, self.settings))
