"""A question counts when it was delivered (rules.count): for gateways, with runs, slices, --verify and explain."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from halfop.explain.explain import explain
from halfop.planning import by_workers
from halfop.planning.run import counts_delivered
from halfop.rules import questions
from halfop.runs.finish import idle
from halfop.runs.reconcile import Request
from halfop.runs.record import recorded
from halfop.runs.verify import verify
from halfop.simulation.simulate import Period, simulate
from halfop.warehouse.kernel import KernelWarehouse
from model import reference as m
from model.strategies import op_rows
from support import rows as r
from support.halves import half_at
from support.seeds import SEED

NOW, SECOND, MINUTE, HOUR = 1_750_000_000_000, 1_000, 60_000, 3_600_000
GATEWAY, FILES = ("gw", 0), ("f", 0)
SOURCES = {"gw": "GATEWAY", "f": "FILES"}
RULES = m.Settings(check_max=2)


class Both:
    """The warehouse and the model, which get the same, and decide the same in every run."""

    def __init__(self, warehouse: KernelWarehouse, rules: m.Settings = RULES) -> None:
        self.warehouse, self.rules, self.model = warehouse, rules, m.Model(rules)
        self.runs = 0

    def land(
        self,
        halves: list[m.Half],
        now: int,
        known: int,
        ops: Sequence[m.Op] = (),
        discards: Sequence[m.BrokerDiscard] = (),
    ) -> None:
        untils = dict.fromkeys([GATEWAY, FILES, *[(half.broker, half.queue) for half in halves]], known)
        r.land(self.warehouse, halves, ops, now, untils, sources=SOURCES, discards=discards)
        self.model.land(halves, ops, now, untils, sources=SOURCES, discards=discards)

    def run(self, now: int) -> list[str]:
        """The run's decision about each message, as `DECISION REASON CHECK_TIMES`."""
        self.runs += 1
        r.run(self.warehouse, self.rules, now)
        found = r.decisions(self.warehouse, self.runs)
        assert found == self.model.run(now)
        return [f"{d.decision} {d.reason} {d.check_times}" for d in found]

    def deliver(self, run: int, at: int, *keys: m.Key, often: int = 1) -> None:
        r.deliver(self.warehouse, [(run, key) for key in keys], at, often=often)
        for key in keys:
            self.model.deliver(run, key, at)

    def verify(self) -> None:
        """The last runs can be computed again, and the questions are those that the model asks."""
        assert r.requests(self.warehouse) == Counter(self.model.requests)
        last = range(max(1, self.runs - 1), self.runs + 1)
        assert {verify(self.warehouse, run)[0].status for run in last} == {0}


@pytest.mark.thorough
def test_a_gateway_s_questions_count_when_they_are_delivered(warehouse: KernelWarehouse) -> None:
    """The same message asked about by a gateway, which is down over several runs, and by files."""
    both, key = Both(warehouse), (*GATEWAY, 0)
    both.land([half_at(queue, 0, NOW) for queue in (GATEWAY, FILES)], NOW, NOW + HOUR)
    assert both.run(NOW + 10 * SECOND) == ["CHECK TIMEOUT 1", "CHECK TIMEOUT 0"]
    assert both.run(NOW + 20 * SECOND) == ["WAIT CHECKED_RECENTLY 1", "WAIT CHECKED_RECENTLY 0"]
    assert both.run(NOW + 80 * SECOND) == ["CHECK TIMEOUT 2", "CHECK TIMEOUT 0"]
    assert both.run(NOW + 150 * SECOND) == ["DISCARD CHECKED_TOO_OFTEN 2", "CHECK TIMEOUT 0"]
    assert recorded(warehouse, 1).delivered == {"f": False, "gw": True}
    asked = [request.check_times for request in both.model.requests if request.key == key]
    assert asked == [1, 1, 1], "each would be the first that counts"

    r.deliver(warehouse, [(4, key)], NOW + 151 * SECOND, "NO_PRODUCER")
    both.deliver(3, NOW + 152 * SECOND, key, often=3)
    assert both.run(NOW + 211 * SECOND) == ["WAIT CHECKED_RECENTLY 1"], "from the delivery of the question on"
    both.deliver(3, NOW + 211 * SECOND, key)
    assert both.run(NOW + 212 * SECOND) == ["CHECK TIMEOUT 1"], "a question counts once"
    both.deliver(6, NOW + 213 * SECOND, key)
    assert both.run(NOW + 272 * SECOND) == ["WAIT CHECKED_RECENTLY 2"], "the last one gets its time to be answered"
    assert both.run(NOW + 273 * SECOND) == ["DISCARD CHECKED_TOO_OFTEN 2"]
    both.verify()
    text = explain(warehouse, r.settings(RULES), "/".join(map(str, key)))[1]
    assert text.count(" SENT") == 5
    assert " NO_PRODUCER" in text
    last = Request(r.settings(RULES))
    assert (found := idle(warehouse, last.settings, last.now)) is not None
    assert not found.extra["runs"]
    r.deliver(warehouse, [(6, key)], NOW + HOUR)
    assert idle(warehouse, last.settings, last.now) is not None, (
        "a delivery that no open message waits for is nothing to do"
    )


def test_the_first_delivery_of_the_last_question_counts(warehouse: KernelWarehouse) -> None:
    both, key = Both(warehouse), (*GATEWAY, 0)
    both.land([half_at(GATEWAY, 0, NOW)], NOW, NOW + HOUR)
    both.run(NOW + 10 * SECOND)
    both.run(NOW + 80 * SECOND)
    for question, at in ((1, 81), (1, 100), (2, 85)):
        both.deliver(question, NOW + at * SECOND, key)
    assert both.run(NOW + 144 * SECOND) == ["WAIT CHECKED_RECENTLY 2"]
    (row,) = warehouse.read("decisions").where(f"run_id = {both.runs}").collect()
    assert row["pending_requests"] is None, "all have been counted"
    assert both.run(NOW + 145 * SECOND) == ["DISCARD CHECKED_TOO_OFTEN 2"]


def copy_of(half: m.Half, offset: int, times: str) -> m.Half:
    columns = {"offset": offset, "commit_log_offset": offset * 100, "store": NOW + offset * SECOND}
    return replace(half, check_times=times, **columns)  # type: ignore[arg-type]


def record_of(half: m.Half, at: int) -> m.BrokerDiscard:
    return m.BrokerDiscard(half.broker, half.queue, half.offset, half.uniq_key, half.group, half.born, 1, at)


COPIES = {
    "put back": ([(5, "1")], False, 2),
    "check times 0, and nothing was given up": ([(5, "0")], False, 1),
    "given up, and resumed by its broker": ([(5, "0")], True, 0),
    "given up, resumed, and put back since": ([(5, "0"), (7, "1")], True, 1),
}


@pytest.mark.thorough
def test_a_question_about_an_earlier_copy_counts(warehouse: KernelWarehouse) -> None:
    """A broker's resume forgets it, as every resume does. Each case has a queue of its own."""
    both, of = Both(warehouse), {queue: half_at(("gw", queue), 0, NOW, uniq_key=f"k{queue}") for queue in range(4)}
    by_files = half_at(FILES, 0, NOW)
    both.land([*of.values(), by_files], NOW, NOW + HOUR)
    assert Counter(both.run(NOW + 10 * SECOND)) == {"CHECK TIMEOUT 0": 4, "CHECK TIMEOUT 1": 1}
    landed = [copy_of(of[n], *copy) for n, (copies, _, _) in enumerate(COPIES.values()) for copy in copies]
    records = [record_of(of[n], NOW + 4 * SECOND) for n, (_, given_up, _) in enumerate(COPIES.values()) if given_up]
    both.land([*landed, copy_of(by_files, 5, "1")], NOW + 11 * SECOND, NOW + HOUR, discards=records)
    both.run(NOW + 11 * SECOND)
    (row,) = warehouse.read("decisions").where("run_id = 2 AND open AND broker_name = 'f'").collect()
    assert row["pending_requests"] is None
    both.deliver(1, NOW + 12 * SECOND, *[half.key for half in of.values()])
    told = both.run(NOW + 13 * SECOND)[-4:]
    assert [int(each.split()[-1]) for each in told] == [counted for *_, counted in COPIES.values()]
    both.verify()


@pytest.mark.thorough
def test_each_question_counts_and_explain_says_which_do_not(warehouse: KernelWarehouse) -> None:
    both, key = Both(warehouse), (*GATEWAY, 0)
    both.land([half_at(GATEWAY, 0, NOW)], NOW, NOW + HOUR)
    both.run(NOW + 10 * SECOND)
    both.run(NOW + 80 * SECOND)
    both.deliver(1, NOW + 11 * SECOND, key)
    both.run(NOW + 90 * SECOND)
    text = explain(warehouse, r.settings(RULES), "gw/0/0")[1]
    assert "a question counts when a producer was sent it (rules.count): 1 of 2 questions not known to be sent" in text
    assert "asked 1 time so far" in text
    assert "check 2 of 2 (line 11), not before" in text
    both.deliver(2, NOW + 91 * SECOND, key)
    assert both.run(NOW + 92 * SECOND) == ["WAIT CHECKED_RECENTLY 2"]


@pytest.mark.thorough
def test_what_is_resumed_begins_with_no_question(warehouse: KernelWarehouse) -> None:
    both, key = Both(warehouse), (*GATEWAY, 0)
    both.land([half_at(GATEWAY, 0, NOW)], NOW, NOW + 100 * HOUR)
    assert both.run(NOW + 10 * SECOND) == ["CHECK TIMEOUT 0"]
    assert both.run(NOW + 73 * HOUR) == ["DISCARD EXPIRED 0"], "rules.file_reserved_time counts whoever was asked"
    r.resume(warehouse, [key], NOW + 73 * HOUR)
    both.model.resume(key, NOW + 73 * HOUR)
    assert both.run(NOW + 74 * HOUR) == ["CHECK TIMEOUT 0"]
    both.deliver(1, NOW + 74 * HOUR, key)
    assert both.run(NOW + 75 * HOUR) == ["CHECK TIMEOUT 0"], "a question from before the resume"


@pytest.mark.thorough
def test_a_message_remembers_its_last_questions(warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row does not grow while nobody delivers anything. docs/rules.md says how many."""
    assert questions.MOST == 16
    monkeypatch.setattr(questions, "MOST", 2)
    both, key = Both(warehouse), (*GATEWAY, 0)
    both.land([half_at(GATEWAY, 0, NOW)], NOW, NOW + HOUR)
    for number in range(1, 5):
        both.run(NOW + number * MINUTE)
    (row,) = warehouse.read("decisions").where(f"run_id = {both.runs}").collect()
    assert len(row["pending_requests"]) == 2
    r.deliver(warehouse, [(1, key), (2, key)], NOW + HOUR)
    both.deliver(3, NOW + HOUR, key)
    assert both.run(NOW + 4 * MINUTE + SECOND) == ["WAIT CHECKED_RECENTLY 1"], "of the third alone"


@pytest.mark.thorough
def test_copies_that_become_one_remember_their_last_questions(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two copies that escaped to one broker, each asked about apart until their original lands."""
    monkeypatch.setattr(questions, "MOST", 2)
    both = Both(warehouse, replace(RULES, count="delivered", check_max=9))
    escaped = [half_at(GATEWAY, offset, NOW, uniq_key="k", wait="false") for offset in (3, 5)]
    both.land(escaped, NOW, NOW + HOUR)
    for number in range(1, 3):
        both.run(NOW + number * MINUTE)
    both.land([half_at(FILES, 0, NOW, uniq_key="k", store=NOW - SECOND)], NOW, NOW + HOUR)
    r.run(warehouse, both.rules, NOW + 2 * MINUTE + SECOND)
    (row,) = warehouse.read("decisions").where("run_id = 3 AND open").collect()
    asked = warehouse.read("check_requests").where("tran_state_table_offset = 5").orderBy("run_id").collect()
    assert row["pending_requests"] == [request["request_id"] for request in asked], "those of the live copy"


def some_questions(chance: random.Random, both: Both) -> list[tuple[int, m.Key]]:
    known = [(request.run, request.key) for request in both.model.requests]
    return [each for each in known if chance.random() < 0.3]


@pytest.mark.parametrize(
    ("count", "way"),
    [
        pytest.param("auto", "grouped", marks=pytest.mark.thorough),
        pytest.param("delivered", "by workers", marks=pytest.mark.slow),
    ],
)
def test_any_order_of_deliveries(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch, count: m.Count, way: str
) -> None:
    """Late, twice, by a clock that is wrong, about what has ended; with ops, copies, resumes and limits."""
    chance, both = random.Random(SEED), Both(warehouse, replace(RULES, count=count, checks_a_run=5))
    monkeypatch.setattr(by_workers, "are_few", lambda _: way == "grouped")
    now, told = NOW, set[str]()
    for number in range(5):
        offsets = range(number * 3, number * 3 + 3) if number < 3 else range(0)
        halves = [half_at(queue, offset, now - 10 * SECOND) for queue in (GATEWAY, FILES) for offset in offsets]
        halves += [replace(half_at(GATEWAY, 50, NOW - 10 * SECOND, uniq_key="k0"), check_times="1")] * (number == 3)
        ops = [
            op
            for half in halves
            if chance.random() < 0.3
            for op in op_rows(half.key[:2], half.offset, str(half.offset), ["COMMIT"], now)
        ]
        both.land(halves, now, now + HOUR, ops)
        for run, key in some_questions(chance, both):
            both.deliver(run, now + chance.choice([-30, 0, 10**6]) * SECOND, key, often=chance.choice([1, 2]))
        told |= set(both.run(now))
        now += chance.choice([SECOND, 30 * SECOND, 61 * SECOND])
    assert any(each.startswith("CHECK") for each in told)
    both.verify()


@pytest.mark.slow
def test_slices_count_what_one_run_counts(warehouse: KernelWarehouse) -> None:
    rules = replace(RULES, count="delivered")
    both = Both(warehouse, rules)
    halves = [half_at(GATEWAY, offset, NOW) for offset in range(8)]
    both.land(halves, NOW, NOW + HOUR)
    both.run(NOW + 10 * SECOND)
    both.deliver(1, NOW + 10 * SECOND, *[half.key for half in halves[::2]])
    both.land([half_at(GATEWAY, offset, NOW) for offset in range(8, 14)], NOW, NOW + HOUR)
    last = r.run(warehouse, rules, NOW + 80 * SECOND, 3).run_id or 0
    assert last > 2
    expected = [replace(d, run=last) for d in both.model.run(NOW + 80 * SECOND)]
    assert r.decisions(warehouse, last) == expected
    assert verify(warehouse, last)[0].status == 0


@pytest.mark.slow
def test_a_simulation_delivers_what_could_be_delivered_then(warehouse: KernelWarehouse) -> None:
    """One of two groups had no producer."""
    both = Both(warehouse)
    halves = [half_at(GATEWAY, 0, NOW), half_at(GATEWAY, 1, NOW, group="dead")]
    both.land(halves, NOW, NOW + HOUR)
    both.run(NOW + 10 * SECOND)
    r.deliver(warehouse, [(1, halves[0].key)], NOW + 11 * SECOND)
    r.deliver(warehouse, [(1, halves[1].key)], NOW + 11 * SECOND, "NO_PRODUCER")
    rules = r.settings(RULES).rules
    tried = {"now": rules, "written": rules.model_copy(update={"count": "written"})}
    outcomes = simulate(warehouse, tried, Period(until=r.instant(NOW + 5 * MINUTE)))
    assert [each.discards for each in outcomes] == [1, 2]
    assert [each.checks for each in outcomes] == [2 + 5, 2 + 2]


def test_settings_say_it_for_all() -> None:
    progress = [{"broker_name": broker, "source": source} for broker, source in SOURCES.items()]
    assert counts_delivered("auto", progress) == {"f": False, "gw": True}
    assert counts_delivered("written", progress) == {"f": False, "gw": False}
    assert counts_delivered("delivered", progress) == {"f": True, "gw": True}
