"""The contents of stores in tests of landing them."""

from __future__ import annotations

from support.brokers import store_writer as w


def transactions(store: w.Store, numbers: range, commit: int = 2, op_ms: int = w.BORN_MS + 1) -> None:
    """Half messages, of which every second is committed, then one op message for all of them, stored at `op_ms`."""
    first = store.next_offsets.get(w.HALF_QUEUE, 0)
    places = [store.append(w.half(n)) for n in numbers]
    for n, place in zip(numbers, places, strict=True):
        if n % commit == 0:
            store.append(w.final(n, place))
    store.append(w.op("".join(f"{first + i}," for i in range(len(numbers))), store_ms=op_ms))
