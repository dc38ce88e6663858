"""The tables that messages land in, by kind of message."""

from __future__ import annotations

from halfop.rocketmq.batches import DISCARD, FINAL, HALF, OP

# In the order of the commits: what refers to another row lands after it.
TABLES = {HALF: "half_messages", FINAL: "final_messages", DISCARD: "broker_discards", OP: "op_messages"}
# Op items whose outcome the messages that land with them do not settle.
UNSETTLED = "unsettled"
# The source of op rows that `end` has written for brokers which land by files: their offsets are no broker's.
RESOLVE = "RESOLVE"
