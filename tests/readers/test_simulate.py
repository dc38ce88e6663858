"""simulate: known figures of a history made by hand, and the same decisions as runs that really took place."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from chispa import assert_df_equality
from halfop.frame.cli import main
from halfop.frame.errors import UsageError
from halfop.rules.settings_columns import RuleColumns
from halfop.settings.model import RuleSettings
from halfop.simulation.history import UnaskedHistory
from halfop.simulation.play import Outcome, Play
from halfop.simulation.replay import Replay, Schedule, stage
from halfop.simulation.simulate import FOLDER, Period, scheduled, scratch, simulate
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.signals import interrupted_once
from hypothesis import strategies as st
from model import fleet as f
from model import reference as m
from model.strategies import OUTCOMES, START, Charter, Land, Run, all_ops, op_rows, play, pools
from model.strategies import History as Told
from pyspark.sql import SparkSession
from support import rows as r
from support.entry_points import job_of
from support.halves import half_at
from support.seeds import SEED

SECOND = 1_000
QUEUE = ("b", 0)
RULES = m.Settings()


def at(seconds: float) -> int:
    return START + int(seconds * SECOND)


def half(offset: int, born: float, **columns: Any) -> m.Half:
    """A half message that was born so many seconds after START."""
    return half_at(QUEUE, offset, at(born), **columns)


def op(names: int, stored: float, outcome: str = "COMMIT", **columns: Any) -> list[m.Op]:
    return op_rows(QUEUE, int(stored), str(names), [outcome], at(stored), **columns)


@pytest.fixture(scope="module")
def landed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> KernelWarehouse:
    """0 is ended late by its producer, 1 at once, 2 in answer to the first question, 3 to the second, 4 never.

    halfop asked at 20 s and at 80 s.
    """
    warehouse = KernelWarehouse(spark, str(tmp_path_factory.mktemp("simulate") / "warehouse"))
    halves = [half(0, 1), half(1, 2), half(2, 2), half(3, 2), half(4, 2)]
    r.land(warehouse, halves, op(1, 3), at(20), {QUEUE: at(20)})
    r.run(warehouse, RULES, at(20))
    r.land(warehouse, [], [*op(2, 23, from_check=True), *op(0, 25)], at(80), {QUEUE: at(80)})
    r.run(warehouse, RULES, at(80))
    r.land(warehouse, [], op(3, 85, "ROLLBACK", from_check=True), at(100), {QUEUE: at(100)})
    return warehouse


def at_instant(seconds: float) -> Any:
    return r.instant(at(seconds))


def rules(**changed: Any) -> RuleSettings:
    return r.settings(RULES).rules.model_copy(update=changed)


def figures(outcome: Outcome) -> tuple[int, ...]:
    o = outcome
    return o.checks, o.needless_checks, o.discards, o.wrong_discards, o.commits, o.rollbacks, o.open_at_end


@pytest.mark.thorough
def test_every_figure_of_a_small_history_is_known(landed: KernelWarehouse) -> None:
    variants = {
        "now": rules(),
        "patient": rules(transaction_timeout=timedelta(seconds=20)),
        "once": rules(transaction_check_max=1),
    }
    now, patient, once = simulate(landed, variants, Period(every=timedelta(seconds=20)))
    assert figures(now) == (6, 1, 0, 0, 3, 1, 1)
    assert (now.commit_p50, now.commit_p90, now.commit_p99) == pytest.approx((38, 38.8, 38.98))
    assert figures(patient) == (4, 0, 0, 0, 3, 1, 1)
    assert figures(once) == (4, 1, 2, 1, 3, 0, 0)
    assert [each.name for each in (now, patient, once)] == list(variants)
    assert not list(Path(landed.root).glob(f"{FOLDER}*")), "nothing is left of it"


def test_half_messages_that_landed_later_are_played_too(warehouse: KernelWarehouse) -> None:
    """Then a run asks how far each queue had landed before, and for ops that it rejected, as of 0."""
    r.land(warehouse, [half(1, 1)], [*op(1, 2), *op(0, 3)], at(20), {QUEUE: at(20)})
    r.land(warehouse, [half(0, 41), half(2, 41)], op(2, 42), at(80), {QUEUE: at(80)})
    (now,) = simulate(warehouse, {"now": rules()}, Period(every=timedelta(seconds=20)))
    assert figures(now) == (0, 0, 0, 0, 3, 0, 0)


def test_paths_are_no_patterns(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = KernelWarehouse(spark, str(tmp_path / "a b[1]{x}*?\\"))
    r.land(warehouse, [half(0, 2)], [], at(20), {QUEUE: at(20)})
    r.run(warehouse, RULES, at(20))
    r.land(warehouse, [], op(0, 23, from_check=True), at(80), {QUEUE: at(80)})
    (now,) = simulate(warehouse, {"now": rules()}, Period(every=timedelta(seconds=20)))
    assert figures(now) == (1, 0, 0, 0, 1, 0, 0)


@pytest.mark.thorough
def test_a_warehouse_that_may_only_be_read_is_left_alone(
    landed: KernelWarehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = Path(landed.root).stat().st_mtime_ns
    (now,) = simulate(landed, {"now": rules()}, Period(every=timedelta(seconds=20)))
    assert figures(now) == (6, 1, 0, 0, 3, 1, 1)
    assert Path(landed.root).stat().st_mtime_ns == before, "nothing was made there"
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_simulation_has_left_goes_with_the_next(warehouse: KernelWarehouse) -> None:
    """It holds keys and addresses, and no table's retention reaches it; one of today may be at work."""
    an_hour_ago, two_days_ago = time.time() - 3_600, time.time() - 2 * 86_400
    for name, at in (("dead", two_days_ago), ("at-work", an_hour_ago)):
        written = Path(warehouse.root, f"{FOLDER}-{name}", "landed", "half_messages", "part.parquet")
        written.parent.mkdir(parents=True)
        written.touch()
        os.utime(written, (at, at))
    Path(warehouse.root, f"{FOLDER}-begun").mkdir()
    with scratch(warehouse):
        assert {path.name for path in Path(warehouse.root).iterdir()} == {f"{FOLDER}-at-work", f"{FOLDER}-begun"}


@pytest.mark.thorough
def test_an_interrupt_ends_it_at_once_and_leaves_nothing(landed: KernelWarehouse, spark: SparkSession) -> None:
    """While runs are played: to the end they would take minutes."""

    def interrupt() -> None:
        while not list(Path(landed.root).glob(f"{FOLDER}*/0/decisions")):
            pass
        os.kill(os.getpid(), signal.SIGINT)

    Thread(target=interrupt, daemon=True).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupted_once(spark):
        simulate(landed, {"now": rules(), "once": rules(transaction_check_max=1)}, Period(every=timedelta(seconds=0.2)))
    assert time.monotonic() - start < 45
    assert not list(Path(landed.root).glob(f"{FOLDER}*"))
    spark.sparkContext.setLogLevel("ERROR")  # as conftest has it


def test_a_landing_that_claims_the_future_is_not_played_into_it(warehouse: KernelWarehouse) -> None:
    claimed = int(time.time() * 1_000) + 3_650 * 86_400_000
    r.land(warehouse, [half(0, 1)], [], at(20), {QUEUE: claimed})
    spread = scheduled(warehouse, Period(), rules())
    assert spread is not None
    assert spread.instants[-1] <= r.instant(claimed) - timedelta(days=3_649)


def test_too_many_runs_are_spread_or_refused(landed: KernelWarehouse) -> None:
    spread = scheduled(landed, Period(most_steps=2), rules(transaction_check_interval=timedelta(seconds=10)))
    assert spread is not None
    assert spread.every == timedelta(seconds=50)
    assert spread.instants == [at_instant(50), at_instant(100)]
    with pytest.raises(UsageError, match="give --every 50s, a shorter --from and --to, or --max-steps"):
        scheduled(landed, Period(every=timedelta(seconds=10), most_steps=2), rules())
    with pytest.raises(UsageError, match="nothing lies between"):
        scheduled(landed, Period(since=at_instant(200)), rules())


@pytest.mark.slow
def test_a_brokers_own_questions_are_left_out(warehouse: KernelWarehouse) -> None:
    """It asked about 0 at 30 s and 60 s and got the second answer; 3 it gave up; of 5 a copy's delivery is known."""

    def copy(of: int, offset: int, stored: float, times: int) -> m.Half:
        return half(offset, 1, uniq_key=f"k{of}", store=at(stored), check_times=str(times))

    halves = [
        half(0, 1),
        copy(0, 1, 30, 1),
        copy(0, 2, 60, 2),
        half(3, 1),
        copy(3, 4, 30, 1),
        half(5, 1),
        copy(5, 6, 20, 1),
    ]
    finals = [m.Final("b", 200, "T", 1, 0, "k0", at(62)), m.Final("b", 600, "T", 1, 1, "k5", at(21))]
    discards = [m.BrokerDiscard("b", 0, 0, "k3", "g", at(1), 1, at(40))]
    r.land(warehouse, halves, op(2, 62), at(80), {QUEUE: at(80)}, finals=finals, discards=discards)
    (found,) = simulate(warehouse, {"now": rules(transaction_check_interval=timedelta(seconds=20))})
    assert figures(found) == (2 + 4 + 1, 1, 0, 0, 2, 0, 1)
    assert (found.commit_p50, found.commit_p99) == pytest.approx((49, 58.8))


# ---- the very settings and instants ----

PROPERTY = m.Settings(
    6_000, check_max=2, check_interval=20_000, file_reserved_time=3_600_000, groups={"g2": m.Override(1_000)}, ask=True
)
INSTANTS = [
    START + n
    for n in (-1_000_000, 0, 6_001, 7_000, 12_000, 26_000, 32_500, 60_000, 66_001, 90_000, 1_100_000, 1_130_000)
]


@st.composite
def in_time(draw: st.DrawFn) -> Told:
    """Rows that land with the first run after they were stored, and whose op logs are known until then."""
    pool = draw(pools(PROPERTY))
    ends = {each.key: draw(st.sampled_from(OUTCOMES)) for each in pool}
    ops = [replace(each, from_check=each.from_check and None) for each in draw(all_ops(PROPERTY, pool, ends, True))]
    listed = {(each.broker, each.queue) for each in pool if draw(st.booleans())}
    steps: list[Land | Run] = []
    for before, now in zip([0, *INSTANTS], INSTANTS, strict=False):
        halves = tuple(each for each in pool if before < each.store <= now)
        said = tuple(each for each in ops if before < each.store <= now)
        steps += [Land(halves, said, now, dict.fromkeys(listed, now)), Run(now)]
    return Told(PROPERTY, tuple(steps))


def with_answers(ship: f.Ship) -> Told:
    """Every other op that came after a question answers it."""
    asked: dict[m.Key, int] = {}
    for now, decisions in zip(INSTANTS, ship.played.runs, strict=True):
        for each in decisions:
            if each.decision == "CHECK":
                asked.setdefault(each.key, now)

    def answer(op: m.Op) -> m.Op:
        since = asked.get((op.broker, op.queue, op.half_offset if op.half_offset is not None else -1))
        answers = op.from_check is None and since is not None and since < op.store and op.offset % 2 == 0
        return replace(op, from_check=True) if answers else op

    steps = [
        replace(step, ops=tuple(map(answer, step.ops))) if isinstance(step, Land) else step
        for step in ship.history.steps
    ]
    return replace(ship.history, steps=tuple(steps))


def lands_again(history: Told) -> bool:
    """An op that named an unknown place in a log, and lands again: long after it was stored."""
    return any(op.names_a_place for step in history.steps if isinstance(step, Land) for op in step.ops)


@pytest.mark.slow
def test_the_very_settings_and_instants_decide_what_the_runs_decided(
    warehouse: KernelWarehouse, tmp_path: Path
) -> None:
    asking = [ship for ship in f.fleet(f.generated(in_time(), 80, SEED)) if not lands_again(ship.history)]
    told = [with_answers(ship) for ship in asking]
    ships = [f.Ship(ship.prefix, history, play(history)) for ship, history in zip(asking, told, strict=True)]
    f.sail(warehouse, Charter(PROPERTY, (), 0), ships)
    settings = r.settings(PROPERTY).rules
    schedule = Schedule([r.instant(now) for now in INSTANTS])
    history = UnaskedHistory(warehouse, RuleColumns(settings, schedule.instants[-1]))
    assert not history.answers.isEmpty()
    landed = stage(history, schedule, f"{tmp_path}/landed")
    replay = Replay(warehouse.spark, f"{tmp_path}/played", landed=landed)
    Play("now", settings, replay).play()
    real, played = (each.read("decisions").drop("run_id") for each in (warehouse, replay))
    assert {row["decision"] for row in real.select("decision").distinct().collect()} >= {"CHECK", "DISCARD", "EARLY_OP"}
    assert_df_equality(played, real, ignore_row_order=True, ignore_nullable=True)


@pytest.mark.usefixtures("logging_as_before")
def test_a_page_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(job_of("simulate"), ["--out", str(tmp_path / "none" / "x.html")]) == 2
    assert "there is no folder" in capsys.readouterr().out
