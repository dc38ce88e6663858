"""Mistakes to plant into runs, landings and their store, by name: a simulation must find each."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from halfop.ending import apply
from halfop.landing.files.land import _Landing
from halfop.planning import arrivals, run
from halfop.planning.plan import Plan
from halfop.runs import finish, reconcile, record
from halfop.sinks import staging
from halfop.sinks.write import Sinks
from halfop.warehouse.tables import Marker

from support.simulated_runs import world
from support.simulated_runs.memory import Piece, Tables, Version

Mistake = Callable[[], AbstractContextManager[Any]]


def _instead(owner: Any, name: str, text: str, other: str) -> Mistake:
    """A mistake in a function's source: another text in the place of one, wherever the function is imported."""

    @contextmanager
    def planted() -> Iterator[None]:
        function = getattr(owner, name)
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(text) == 1, f"{name} has {source.count(text)} times {text}"
        made: dict[str, Any] = {}
        exec(compile(source.replace(text, other), f"<{name}>", "exec"), vars(inspect.getmodule(function)), made)  # noqa: S102
        importers = [
            module for module in list(sys.modules.values()) if getattr(module, "__dict__", {}).get(name) is function
        ]
        with ExitStack() as every:
            for each in {id(each): each for each in (owner, *importers)}.values():
                every.enter_context(patch.object(each, name, made[name]))
            yield

    return planted


# ---- the store ----


def _whatever_marker(self: Tables, name: str, rows: Any, marker: Marker | None) -> bool:
    newest = self.newest(name)
    self.versions[name].append(Version((*self.versions[name][-1].pieces, Piece(newest + 1, rows)), marker))
    return True


_NO_MARKER = "Marker(app, run.run_id)"
_PAID = "run = replace(run, owed=pay(warehouse, run.owed, request.parked, summary))"
_PAID_BEFORE = "last = replace(last, owed=pay(warehouse, last.owed, request.parked, summary))"

PLANTED: Mapping[str, Mistake] = {
    # the order of a landing and of pins
    "half messages are pinned first, progress last": _instead(
        reconcile,
        "pinned_inputs",
        "*INPUTS",
        "*reversed(INPUTS)",
    ),
    "a queue's progress begins with its rows": _instead(world, "commits_of", "[*found, ", "[*found[1:], "),
    "progress lands before the rows": _instead(
        world,
        "commits_of",
        "[*found, Landed(PROGRESS, last, _LANDS)]",
        "[found[0], Landed(PROGRESS, last, _LANDS), *found[1:]]",
    ),
    "pins are not taken again when a queue has begun": _instead(
        run, "with_all_queues", "while _has_begun", "while False and _has_begun"
    ),
    "a run reads what has landed since": _instead(
        arrivals, "_arrived", "run.inputs[name])", "warehouse.version(name))"
    ),
    "a run looks at everything again": _instead(
        reconcile, "_open", "before=last.inputs if last else", "before=last.inputs if not last else"
    ),
    "a run begins where it ends": _instead(reconcile, "_open", "before=last.inputs if last", "before=inputs if last"),
    "a run leaves out a landing": _instead(
        arrivals, "_arrived", "run.inputs_before[name], run", "run.inputs_before[name] + 1, run"
    ),
    "progress of files lands before their rows": _instead(
        _Landing, "_write", "progress.rows_before(made, landed_at)", "progress.rows_after(made, landed_at)"
    ),
    "files are recorded before their rows": _instead(
        _Landing,
        "land",
        "made = self._write(",
        "self._record(new, kinds, taken, landed_at)\n        made = self._write(",
    ),
    # answers of operators
    "an answer lands before it is recorded": _instead(
        apply,
        "land_answers",
        'endings.record([clerk.ending(row, "INTENDED", sent=row.places[-1]) for row in todo])',
        "pass",
    ),
    "a second answer to a message lands": _instead(apply, "land_answers", "if row.key not in answered", "if True"),
    # runs one after the other
    "a run's instant may go back": _instead(reconcile, "_open", "max(now, last.now) if last else now", "now"),
    "a run opens while another driver's is open": _instead(reconcile, "_finish_open", "if closed:", "if True:"),
    "the open set is that of two runs before": _instead(
        arrivals, "_open_rows", "run.run_id - 1)", "max(run.run_id - 2, 1))"
    ),
    "a plan is made after the pins of another run": _instead(
        finish, "finish", 'marker("decisions", PLAN_APP) < run.run_id', 'marker("decisions", PLAN_APP) < run.run_id - 1'
    ),
    # commits that happen once
    "runs are recorded without a marker": _instead(record, "_write", f", {_NO_MARKER}", ""),
    "decisions are committed without a marker": _instead(
        Plan, "_written", 'commit("decisions", decided, marker)', 'commit("decisions", decided)'
    ),
    "messages are committed without a marker": _instead(
        staging, "_append", "Marker(target.app, whole.run.run_id)", "None"
    ),
    "rejects are committed without a marker": _instead(
        Sinks, "_write_rejects", ", Marker(_REJECTED_APP, self._run.run_id)", ""
    ),
    "a sink that has a run has every run": _instead(Sinks, "_due", ") < self._run.run_id", ") < 0"),
    # sinks that fail, or are parked
    "a run closes though a sink has failed": _instead(
        finish,
        "finish",
        "report_failed(summary, applied.failed)\n        return",
        "report_failed(summary, applied.failed)",
    ),
    "nothing is owed for a parked sink": _instead(
        finish, "finish", "run.owed, *[Debt(run.run_id, sink) for sink in applied.left_out]", "run.owed,"
    ),
    "the next run forgets what is owed": _instead(reconcile, "_open", "last.owed if last else ()", "()"),
    "debts are not paid before a run": _instead(reconcile, "_finish_open", _PAID_BEFORE, "pass"),
    "debts of a run that another driver has opened are not paid": _instead(reconcile, "_finish_opened", _PAID, "pass"),
    "a debt of which a part was paid is forgotten": _instead(
        finish, "pay", "debt for debt in owed if debt.sink in parked", "debt for debt in owed if not due"
    ),
    # the store
    "a marker counts only for its writer": lambda: patch.object(Tables, "append", _whatever_marker),
}
