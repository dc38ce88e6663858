"""What a gateway acknowledged, and whether its log has that, once, whatever ended the process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from halfop.gateway.log.log import StoreForm
from halfop.rocketmq.store.layout import STRETCH

from support.brokers.store_reader import read_all
from support.gateway.gateway_log import MIDDLE, Waiting


def acknowledged(output: bytes) -> list[list[str]]:
    """The lines that the appender wrote after a flush; the last one may be cut."""
    return [line.split() for line in output.decode().split("\n")[:-1]]


def check(folder: Path, told: list[list[str]], form: StoreForm = MIDDLE) -> None:
    """All that was acknowledged is there, once; no transaction has two final messages, and none has the wrong end."""
    gateway = Waiting(folder, form=form)
    gateway.close()
    found = read_all(folder, size=STRETCH)
    assert found.faults == []
    outcome = {row["uniq_key"]: gateway.log._state.outcome(row["queue_offset"]) for row in found.rows.get("half", [])}
    half_keys = Counter(row["uniq_key"] for row in found.rows.get("half", []))
    final_keys = Counter(row["uniq_key"] for row in found.rows.get("final", []))
    assert set(half_keys.values()) <= {1}
    assert set(final_keys.values()) <= {1}
    for what, key, *said in told:
        assert key in half_keys
        if what == "end":
            assert [outcome[key]] == said
    assert {key for key, ended in outcome.items() if ended == "COMMIT"} == set(final_keys)
    ops = [int(row["body"]) for row in found.rows.get("op", [])]
    assert len(ops) == len(set(ops)) == sum(ended is not None for ended in outcome.values())
