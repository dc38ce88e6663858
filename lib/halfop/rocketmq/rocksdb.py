"""Signs of a broker that keeps its transactions in RocksDB alone, whose half and op messages have another form.

RocketMQ does that from 5.4 on, with transRocksDBEnable=true and transWriteOriginTransHalfEnable=false: an op names its
half message by its place in the log, and its body is one zero byte.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from halfop.rocketmq.names import HALF_TOPICS, OP_TOPICS
from halfop.rocketmq.properties import Properties, decoded
from halfop.rocketmq.record import Records

TOPICS = (HALF_TOPICS[1], OP_TOPICS[1])
QUEUES = tuple((topic, 0) for topic in TOPICS)
_BODY = pa.scalar(b"\0", pa.binary())
_PLACE = "TRANS_OFFSET"


def is_configured(settings: Mapping[str, str]) -> bool:
    """Returns whether a broker's settings, by its own names, let it keep transactions in RocksDB alone."""
    return settings.get("transRocksDBEnable") == "true" and settings.get("transWriteOriginTransHalfEnable") == "false"


def has_such(topics: pa.DictionaryArray, ops: Records | None) -> bool:
    """Returns whether some records, with these topics and these op messages among them, were written in that form."""
    if any(decoded(topic) in TOPICS for topic in topics.dictionary.to_pylist()):
        return True
    if ops is None or not (wanted := pc.equal(ops.bodies, _BODY).to_numpy(zero_copy_only=False)).any():
        return False
    return bool(pc.any(pc.is_valid(Properties(ops.select(wanted)).strings(_PLACE))).as_py())
