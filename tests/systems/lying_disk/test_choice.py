"""Which calls are made to fail: of each kind as many as asked for, the same ones for the same seed."""

from __future__ import annotations

import pytest

from systems.lying_disk.choice import chosen
from systems.lying_disk.shim import Call, Fault

_RUNS, _TOPIC, _PART = "/warehouse/runs/#.json", "/warehouse/topics/T/#.json", "/warehouse/runs/part#.parquet"
_WRITE, _READ = Call("write", _RUNS), Call("read", _RUNS)
_STEPS = [[_WRITE, *[_READ] * 3, *[_WRITE] * 4, Call("read", _TOPIC), Call("read", _PART)], [_WRITE]]
_NAMES = ("write", "read")
_READS = {(0, _RUNS, 1), (0, _RUNS, 2), (0, _RUNS, 3), (0, _TOPIC, 1)}


def _members(call: str, seed: int, of_each: int = 1) -> set[tuple[int, str, int]]:
    found = chosen(_STEPS, of_each, seed, _NAMES)
    return {(step, fault.files, fault.number) for step, fault in found if fault.call == call}


@pytest.mark.parametrize("seed", range(5))
def test_each_kind_is_chosen_once(seed: int) -> None:
    first_last_other_step = {(0, _RUNS, 1), (0, _RUNS, 5), (1, _RUNS, 1)}
    assert len(_members("write", seed) - first_last_other_step) == 1
    assert first_last_other_step < _members("write", seed)
    assert len(_members("read", seed) & _READS) == len(_members("read", seed) - _READS) == 1


def test_seeds_and_a_greater_number_reach_every_call() -> None:
    writes = {*((0, _RUNS, number) for number in range(1, 6)), (1, _RUNS, 1)}
    for call, wanted in (("write", writes), ("read", _READS | {(0, _PART, 1)})):
        assert _members(call, 0, of_each=9) == set().union(*(_members(call, seed) for seed in range(99))) == wanted


def test_a_seed_chooses_the_same_whatever_the_order_of_calls() -> None:
    found = chosen(_STEPS, 1, 7, _NAMES)
    assert found == chosen([calls[::-1] for calls in _STEPS], 1, 7, _NAMES) != chosen(_STEPS, 1, 8, _NAMES)


def test_each_call_of_these_names_fails_with_each_error() -> None:
    found = chosen([[_WRITE, Call("mkdir", "")]], 1, 7, _NAMES)
    assert sorted(found) == [(0, Fault(*_WRITE, 1, error)) for error in ("EIO", "ENOSPC")]
