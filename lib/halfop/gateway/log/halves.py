"""Half messages and their ends, read back from records of the log: all at once, for recovery."""

from __future__ import annotations

from itertools import starmap

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from halfop.gateway.log.messages import OUTCOMES, Half
from halfop.rocketmq import names
from halfop.rocketmq.buffers import Longs
from halfop.rocketmq.properties import Properties
from halfop.rocketmq.record import Records

Codes = NDArray[np.uint8]
_DIGITS = r"\A[0-9]{1,18}\z"


def halves_of(records: Records) -> list[Half]:
    """Half messages as records of the half topic have them."""
    properties = Properties(records)
    place = [records.longs(name) for name in ("queue_offset", "physical_offset", "size")]
    columns = [each.tolist() for each in (*place, records.store_ms, records.longs("born_ms"))]
    columns += [
        _shared(properties.strings(names.REAL_TOPIC)),
        properties.ints(names.REAL_QUEUE_ID).fill_null(0).to_pylist(),
        _shared(properties.strings(names.PRODUCER_GROUP)),
        properties.strings(names.UNIQ_KEY).to_pylist(),
        _shared(properties.strings(names.CHECK_IMMUNITY), None),
    ]
    return list(starmap(Half, zip(*columns, strict=True)))


def _shared(texts: pa.StringArray, missing: str | None = "") -> list[str | None]:
    """The texts as Python's, one object for all that are equal: there are few, and many messages stay open."""
    encoded = texts.dictionary_encode()
    known = [*encoded.dictionary.to_pylist(), missing]
    return [known[at] for at in encoded.indices.fill_null(len(known) - 1).to_pylist()]


def ends_of(records: Records) -> tuple[Longs, Codes]:
    """The half queue offsets that op records name, and how each ended: the place in OUTCOMES, plus one."""
    outcomes = pc.index_in(Properties(records).strings(names.END_OUTCOME), pa.array(OUTCOMES))
    bodies = records.bodies.cast(pa.string())
    known = pc.and_(pc.is_valid(outcomes), pc.match_substring_regex(bodies, _DIGITS))
    offsets = bodies.filter(known).cast(pa.int64()).to_numpy()
    return offsets, (outcomes.filter(known).to_numpy() + 1).astype(np.uint8)
