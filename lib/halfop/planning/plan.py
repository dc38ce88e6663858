"""The plan: all that a run decides, in one atomic commit to `decisions`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.planning.inputs import Inputs
from halfop.rules import cases as c
from halfop.warehouse.schema import table

PLAN_APP = "halfop.plan"


class Plan:
    """What follows from a run's pinned inputs. Evaluating it twice gives the same rows."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._rules = inputs.rules

    def _cases(self, halves: DataFrame) -> DataFrame:
        i = self._inputs
        return c.cases(halves, i.resumes if i.any_resumes else None, i.queues, self._rules)

    @cached_property
    def decisions(self) -> DataFrame:
        run = self._inputs.run
        rows = c.decisions(self._cases(self._inputs.to_decide), self._rules)
        if run.slice.of > 1:
            rows = rows.unionByName(c.carried_over(self._inputs.open_outside, self._rules), allowMissingColumns=True)
        if self._inputs.superseded is not None:
            rows = rows.unionByName(self._inputs.superseded, allowMissingColumns=True)
        return rows.withColumn("run_id", F.lit(run.run_id).cast("bigint")).select(table("decisions").names)

    @contextmanager
    def rejects(self) -> Iterator[DataFrame]:
        """Ops, halves and resumes that no decision shows."""
        i = self._inputs
        rows = c.may_have_rejects(self._cases(i.halves_and_ops)).persist()
        try:
            found = [c.rejected_ops(rows, self._rules), c.faulty_ops(i.ops_of_slice), c.reused_keys(rows)]
            if i.any_resumes:
                found.append(c.refused_resumes(rows, i.resumes))
            yield reduce(DataFrame.unionByName, found)
        finally:
            rows.unpersist()

    def commit(self) -> None:
        """Open rows apart from ended ones: the next run reads the former alone."""
        i = self._inputs
        i.warehouse.append_once("decisions", self.decisions, PLAN_APP, i.run.run_id)
