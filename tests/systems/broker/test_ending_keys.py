"""`end` at a broker of version 4 that asks for keys (ACL 1.0): its signature leaves out a field of QUERY_MESSAGE."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from halfop.ending.plan import ROLLBACK
from halfop.rocketmq.wire.client import query_finals
from halfop.rocketmq.wire.remoting import Credentials, RefusedByBroker
from support.ending_rows import QUICK, Written, connected, delivered, end, open_still, originals, row_of

from systems.broker.real_broker import Plan, RealBroker, broker

pytestmark = pytest.mark.broker
ACL = """accounts:
- accessKey: halfop-key
  secretKey: halfop-secret
  admin: true
- accessKey: stranger-key
  secretKey: stranger-secret
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
"""
OURS = replace(QUICK, credentials=Credentials("halfop-key", "halfop-secret"))


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[RealBroker]:
    settings = {"aclEnable": True, "transactionCheckMax": 1000, "waitTimeMillsInTransactionQueue": 1000}
    with broker(4, tmp_path / "broker", settings, files={"conf/plain_acl.yml": ACL}) as running:
        yield running


def test_transactions_end_with_the_right_key_alone(asking: RealBroker, tmp_path: Path) -> None:
    asking.produce([Plan("keys", "U")] * 6, jvm=["-DaccessKey=halfop-key", "-DsecretKey=halfop-secret"])
    written = Written(tmp_path / "endings")
    with connected(asking, OURS) as there:
        rows = [row_of(half, ROLLBACK if n % 2 else "COMMIT") for n, half in enumerate(originals(there, "keys"))]
        for access, secret, why in (
            ("halfop-key", "wrong", r"(?i)check signature failed"),
            ("nobody", "halfop-secret", "No acl config for nobody"),
            ("stranger-key", "stranger-secret", r"(?i)no permission|no default permission"),
        ):
            with pytest.raises(RefusedByBroker, match=why):
                end(asking, rows, written, settings=replace(QUICK, credentials=Credentials(access, secret)))
        assert not delivered(there, "keys"), "nothing was sent"
        end(asking, rows, written, settings=OURS)
        assert written.states() == {"VERIFIED": 6}
        assert delivered(there, "keys") == {row.uniq_key: 1 for row in rows if row.kind == "COMMIT"}
        assert open_still(there, "keys") == []
        assert there.remote.answer(query_finals("keys", rows[0].uniq_key)).code == 0
