"""Messages that hang: resumed, or ended by a plan of answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from halfop.api.calls import WarehouseCalls, refuse_failed_parts, refuse_text
from halfop.columns.keys import Key, as_key
from halfop.ending import plan as plans
from halfop.ending.apply import ApplyRequest, Resume, apply, resume_at_brokers
from halfop.ending.owner import Masters, owner_of
from halfop.ending.plan import EndingPlan
from halfop.ending.resolve import ResolveRequest, refused_beside, resolve, write_refused
from halfop.ending.selection import Selection, plan
from halfop.ending.table import Ending
from halfop.frame.errors import UsageError
from halfop.frame.summary import Summary, WithRows
from halfop.upkeep.resume import Resumed, ResumeSelection, resume
from halfop.warehouse.kernel import files_of


@dataclass(frozen=True)
class PlannedEnds:
    """A plan to end transactions, `refused`: those that business data says both of, and the summary."""

    summary: Summary
    plan: EndingPlan
    refused: pa.Table | None = None

    def write(self, path: str) -> None:
        """Writes the plan to a new file, Parquet by its suffix .parquet, and what it refuses to a file beside it.

        The summary then has their paths. No file is written without a row.
        """
        if self.refused is not None and len(self.refused):
            write_refused(self.refused, refused_beside(path))
            self.summary.extra["refused"] = str(Path(refused_beside(path)).absolute())
        if len(self.plan):
            plans.write(self.plan, path)
            self.summary.extra |= {"plan": str(Path(path).absolute()), "plan_id": self.plan.head.plan_id}


class Hanging(WarehouseCalls):
    """The methods that resume, and end, what hangs. Keys are half keys: `broker-a/0/4711`."""

    def resume(
        self, keys: Sequence[Key | str] = (), *, where: str | None = None, dry_run: bool = False
    ) -> WithRows[Resumed]:
        """Makes discarded messages open again: by their keys, or by a condition over table trans_check_max_time.

        >>> wh.resume(where="producer_group = 'orders'", dry_run=True).summary.extra["would_resume"]
        0
        """
        selection = ResumeSelection(_one_of(keys, where), where, self.settings.lock.wait, dry_run)
        with self._writing() as there, there.for_few_rows():
            return WithRows(*resume(there, selection))

    def resume_at_brokers(
        self,
        keys: Sequence[Key | str] = (),
        *,
        where: str | None = None,
        namesrv: str | None = None,
        broker: str | None = None,
        dry_run: bool = False,
    ) -> WithRows[Ending]:
        """Puts messages that their broker itself gave up back there, so that it asks again."""
        masters, end = self._masters(namesrv, broker), self.settings.end
        if masters is None:
            raise UsageError("which broker gave them up? Give namesrv or broker, as host:port")
        request = Resume(masters, end.brokers, _one_of(keys, where), where, end.limit, self.settings.lock.wait, dry_run)
        with self._writing() as there:
            warehouse = files_of(there, "resume at a broker")
            with warehouse.for_few_rows():
                return WithRows(*resume_at_brokers(warehouse, request))

    def plan_end(self, kind: plans.Kind, keys: Sequence[Key | str] = (), *, where: str | None = None) -> PlannedEnds:
        """Plans to end open or discarded transactions: by their keys, or by a condition over table decisions.

        Nothing is sent before `end`. Settings end.min_age and end.limit bound the plan.

        >>> wh = halfop.open(spark, root, {"end.min_age": "0s", "end.brokers": ["broker-a"]})
        >>> planned = wh.plan_end("ROLLBACK", ["broker-a/0/2"])
        >>> planned.plan.rows.num_rows
        1
        """
        if kind not in (plans.COMMIT, plans.ROLLBACK):
            raise UsageError(f"{kind!r}: expected {plans.COMMIT} or {plans.ROLLBACK}")
        chosen = Selection(kind, _one_of(keys, where), where, self.settings.end.min_age, self.settings.end.limit)
        with self._writing() as there:
            warehouse = files_of(there, "end")
            with warehouse.for_few_rows():
                return PlannedEnds(*plan(warehouse, chosen))

    def resolve(self, groups: Sequence[str] = (), *, discarded: bool = False) -> PlannedEnds:
        """Plans to end the open transactions of groups in resolve.groups (none named: all) as business data says."""
        refuse_text(groups=groups)
        end = self.settings.end
        request = ResolveRequest(self.settings.resolve.groups, groups, end.min_age, end.limit, discarded)
        with self._writing() as there:
            summary, found = resolve(files_of(there, "resolve"), request)
            return PlannedEnds(summary, found.plan, found.refused)

    def end(
        self,
        plan: EndingPlan | str | Path,
        *,
        namesrv: str | None = None,
        broker: str | None = None,
        no_index: bool = False,
    ) -> WithRows[Ending]:
        """Ends the transactions of a plan, or of a plan's file, in the brokers that own them; end.brokers allows them.

        Brokers that landed from files get op rows, and need neither namesrv nor broker. The summary has status 5 if
        not all could be ended.

        >>> wh = halfop.open(spark, root, {"end.min_age": "0s", "end.brokers": ["broker-a"]})
        >>> wh.end(wh.plan_end("ROLLBACK", ["broker-a/0/2"]).plan).rows[0].state
        'SENT'
        """
        made = plan if isinstance(plan, EndingPlan) else plans.read(str(plan))
        end, masters = self.settings.end, self._masters(namesrv, broker)
        request = ApplyRequest(made, end.brokers, end.limit, masters, no_index, self.settings.lock.wait)
        with self._writing() as there:
            warehouse = files_of(there, "end")
            with warehouse.for_few_rows():
                summary, endings = apply(warehouse, request)
        return WithRows(refuse_failed_parts(summary, endings), endings)

    def _masters(self, namesrv: str | None, broker: str | None) -> Masters | None:
        if namesrv is not None and broker is not None:
            raise UsageError("give namesrv or broker, not both")
        return owner_of(self.settings, namesrv, broker)


def _one_of(keys: Sequence[Key | str], where: str | None) -> list[Key]:
    """The half keys, if it is they that select."""
    if bool(keys) == (where is not None):
        raise UsageError('which messages? Give keys, as ["broker-a/0/4711"], or where, a condition of SQL')
    refuse_text(keys=keys)
    return [_key(each) for each in keys]


def _key(given: Key | str) -> Key:
    key = as_key(str(given))
    if key is None or not key.broker_name:
        raise UsageError(f"{given!r}: expected BROKER/QUEUE/OFFSET, as broker-a/0/4711")
    return key
