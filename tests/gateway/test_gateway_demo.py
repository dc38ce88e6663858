"""`demo --gateway`: a newcomer sees a transaction that is asked about and answered, and one that nobody answers for."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from halfop.frame.output import TextOutput
from halfop.gateway_demo import OVERRIDES, play
from halfop.settings.load import load_settings
from halfop.warehouse.kernel import KernelWarehouse

pytestmark = pytest.mark.slow


def test_its_transactions_end_as_it_says(
    warehouse: KernelWarehouse, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(warehouse, load_settings(None, OVERRIDES, {}), tmp_path, TextOutput())
    said = capsys.readouterr().out
    answered = Counter(re.findall(r"was asked about (order \d), and answers (\w+)", said))
    assert answered == {("order 3", "COMMIT"): 1, ("order 4", "UNKNOWN"): 3}
    assert sorted(row["body"] for row in warehouse.read("topics/orders").collect()) == [b"order 1", b"order 3"]
    (given_up,) = warehouse.read("trans_check_max_time").collect()
    assert (given_up["body"], given_up["check_times"]) == (b"order 4", 3)
