"""Short lives of a warehouse, each a few jobs: what they are given, and what has become of every message at the end."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from halfop.frame.cli import main
from halfop.landing.files import land as land_files
from halfop.landing.files import taking as ways_of_files
from halfop.landing.store import new_part as store_by_workers
from halfop.planning import by_workers as plan_by_workers
from halfop.warehouse import reading
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import SparkSession
from support.brokers import store_writer as w
from support.brokers.stores import transactions
from support.entry_points import job_of
from support.json_lines import T0, half, lines, op
from support.kills import MAINTAIN
from support.ways import BY_SPARK

NOW = T0 + 100_000
TOPICS = ("T", "U")


@dataclass(frozen=True)
class Place:
    """A warehouse's folder, on the disk that may lie, and what its jobs are given, which is not."""

    spark: SparkSession
    top: Path
    given: Path
    promise: Callable[[str], None] = lambda _: None  # told of each answer that somebody outside got

    @property
    def root(self) -> str:
        return str(self.top / "warehouse")


@dataclass(frozen=True)
class Done:
    status: int
    said: str
    printed: str = ""


Step = Callable[[Place], Done]


@dataclass(frozen=True)
class History:
    """`prepare` makes what is there before; then come the steps. A step that was cut off is called again.

    `after`: makes the steps after a crash, from what had been promised before it. `wanted`: the fates that such
    promises ask for; without it, all that came in the undisturbed life.
    """

    name: str
    prepare: Callable[[Place], None]
    steps: Sequence[Step]
    fates: Callable[[Place], Counter[str]]
    after: Callable[[Sequence[str]], Sequence[Step]] | None = None
    wanted: Callable[[Sequence[str]], Counter[str]] | None = None


# ---- jobs, in this process ----


def called(place: Place, job: str, *options: str) -> Done:
    """A job's status, and what it wrote to stderr and stdout."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(job_of(job), [*options, "--warehouse", place.root])
    return Done(status, err.getvalue(), out.getvalue())


def step_of(job: str, *options: str, ways: Callable[[], AbstractContextManager[None]] = nullcontext) -> Step:
    def step(place: Place) -> Done:
        with ways():
            return called(place, job, *(each.format(given=place.given, top=place.top) for each in options))

    return step


@contextmanager
def by_workers() -> Iterator[None]:
    """Rows are never few: Spark's workers land, decide and write them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "FEW", BY_SPARK)
        for module in (land_files, ways_of_files, plan_by_workers):
            patch.setattr(module, "are_few", lambda _: False)
        patch.setattr(store_by_workers, "_LITTLE", -1)
        yield


def at(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, timezone.utc).isoformat()


def reconciled(number: int, **ways: Any) -> Step:
    """The run of that number; open messages are asked about once and then discarded."""
    return step_of("reconcile", "--now", at(NOW + number * 100_000), "--set", "rules.transaction_check_max=1", **ways)


def landed(name: str, **ways: Any) -> Step:
    return step_of("land", "files", "--half", f"{{given}}/{name}.h.jsonl", "--op", f"{{given}}/{name}.o.jsonl", **ways)


# ---- what they are given ----


def _written(given: Path, name: str, numbers: range) -> None:
    """Of eight messages five are committed, one is rolled back, one is left open, one cannot be delivered."""
    if (given / f"{name}.h.jsonl").exists():
        return
    halves = [half(n, properties=_properties(n), store_timestamp=NOW, born_timestamp=NOW - 50_000) for n in numbers]
    commits = ",".join(str(n) for n in numbers if n % 8 < 5)
    rolled = ",".join(str(n) for n in numbers if n % 8 == 5)
    first = numbers.start
    lines(given / f"{name}.h.jsonl", *halves)
    lines(given / f"{name}.o.jsonl", op(first, commits), op(first + 1, rolled, outcome="ROLLBACK"))


def _properties(n: int) -> Mapping[str, str]:
    topic = "a b" if n % 8 == 7 else TOPICS[n % 2]
    return {"UNIQ_KEY": f"k{n}", "PGROUP": "g", "REAL_TOPIC": topic, "REAL_QID": "3"}


def _prepared(place: Place) -> None:
    """One landing and one run, so that tables exist, and two more files to land."""
    for name, numbers in [("first", range(8)), ("second", range(8, 24)), ("third", range(24, 40))]:
        _written(place.given, name, numbers)
    for step in (landed("first"), reconciled(0)):
        well(step(place))


def _with_store(place: Place) -> None:
    _prepared(place)
    if not (place.given / "store").exists():
        transactions(w.Store(place.given / "store"), range(40))


def _with_three_runs(place: Place) -> None:
    _prepared(place)
    for step in (landed("second"), reconciled(1), landed("third"), reconciled(2)):
        well(step(place))
    _written(place.given, "fourth", range(40, 56))


def well(done: Done) -> None:
    assert done.status == 0, done.said


# ---- what has become of every message ----


def fates(place: Place) -> Counter[str]:
    """Every delivery, discard, reject, and last decision of a message."""
    warehouse = KernelWarehouse(place.spark, place.root)
    found: Counter[str] = Counter()
    for topic in {row["directory"] for row in warehouse.rows("topics_index")}:
        for row in warehouse.rows(f"topics/{topic}"):
            found[
                f"delivered {row['topic']} {row['broker_name']}/{row['half_queue_offset']} {bytes(row['body'])!r}"
            ] += 1
    for row in warehouse.rows("trans_check_max_time"):
        found[f"discarded {row['broker_name']}/{row['queue_offset']} {row['reason']}"] += 1
    for row in warehouse.rows("rejected"):
        found[f"rejected {row['kind']} {row['reason']} {row['broker_name']}/{row['queue_offset']}"] += 1
    last: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in sorted(warehouse.rows("decisions"), key=lambda row: row["run_id"]):
        last[row["broker_name"], row["queue_id"], row["queue_offset"]] = row
    found.update(f"decided {key} {row['decision']} {row['reason']}" for key, row in last.items())
    for table in ("half_messages", "op_messages"):
        keys = ("broker_name", "queue_id", "queue_offset", *(["item"] if table == "op_messages" else []))
        found.update({f"landed {table} {tuple(row[c] for c in keys)}" for row in warehouse.rows(table)})
    return found


SMALL = History("small", _prepared, (landed("second"), reconciled(1)), fates)
WORKERS = History(
    "workers", _prepared, (landed("second", ways=by_workers), reconciled(1, ways=by_workers), reconciled(2)), fates
)
STORE = History(
    "store",
    _with_store,
    (step_of("land", "store", "--path", "{given}/store", "--broker-name", "s", ways=by_workers), reconciled(1)),
    fates,
)
KEPT = History("maintain", _with_three_runs, (step_of(*MAINTAIN), landed("fourth"), reconciled(3)), fates)
