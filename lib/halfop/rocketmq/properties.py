"""Message properties, `name \\x01 value \\x02 …`: of one message, and of many records at once."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from halfop.rocketmq.buffers import Bytes, Ints, Longs, Mask, cut, parse_int, parse_long
from halfop.rocketmq.record import Records

_NAME_ENDS, _VALUE_ENDS = 1, 2
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def packed(properties: Mapping[str, object]) -> str:
    """Returns properties in RocketMQ's text form."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def unpacked(text: str) -> dict[str, str]:
    """Returns the properties that RocketMQ's text form holds, as `Properties` reads them."""
    found = {}
    for entry in text.split("\x02"):
        name, mark, value = entry.partition("\x01")
        if value and name and mark:
            found[name] = value
    return found


class Properties:
    """The properties of records as MessageDecoder reads them.

    The last entry of a repeated name counts; an entry without name or value does not.
    """

    def __init__(self, records: Records) -> None:
        text, firsts = _text(records)
        starts, self._names, self._values = _entries(text)
        self._offsets = np.searchsorted(starts, firsts)
        self._encode()
        self._keep(_last_of_each(self._owners, self._codes))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def map(self) -> pa.MapArray:
        """All properties, one map<string, string> a record."""
        return pa.MapArray.from_arrays(pa.array(self._offsets.astype(np.int32)), self._names, self._values)

    def strings(self, name: str) -> pa.StringArray:
        """One property by record; null if the record has none of that name."""
        found = np.flatnonzero(self._codes == self._known.get(name, -1))
        if len(found) == len(self):
            return self._values.take(pa.array(found))
        entries = np.full(len(self), -1, np.int32)
        entries[self._owners[found]] = found
        return self._values.take(pa.array(entries, mask=entries < 0))

    def ints(self, name: str) -> pa.Int32Array:
        """One property as a whole number; null if a record has none, or if it is no Java int."""
        encoded = self.strings(name).dictionary_encode()
        return pa.array([parse_int(text) for text in encoded.dictionary.to_pylist()], pa.int32()).take(encoded.indices)

    def longs(self, name: str) -> pa.Int64Array:
        """One property as a whole number; null if a record has none, or if it is no Java long."""
        return pa.array(map(parse_long, self.strings(name).to_pylist()), pa.int64())

    def _encode(self) -> None:
        """Numbers each entry's record and its name."""
        encoded = self._names.dictionary_encode()
        self._known = {name: code for code, name in enumerate(encoded.dictionary.to_pylist())}
        self._codes = encoded.indices.to_numpy()
        self._owners = np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self._offsets))

    def _keep(self, entries: Mask | None) -> None:
        if entries is not None:
            kept = np.concatenate([[0], np.cumsum(entries)])
            self._offsets = kept[self._offsets]
            self._names, self._values = (each.filter(pa.array(entries)) for each in (self._names, self._values))
            self._encode()


def decoded(text: bytes) -> str:
    """UTF-8 as Java decodes it: one replacement character for an encoded surrogate; Python has three."""
    return _SURROGATE.sub("\ufffd".encode(), text).decode(errors="replace")


def strings(texts: pa.BinaryArray) -> pa.StringArray:
    """The texts, each `decoded`."""
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([decoded(text) for text in texts.to_pylist()], pa.string())


def _text(records: Records) -> tuple[Bytes, Longs]:
    """All properties in valid UTF-8, each record's between value ends, and the positions where each record's begin."""
    regions = cut(records.buffer, records.properties_at - 1, records.properties_length + 1)
    text, offsets = _joined(regions)
    if len(text) and text.max() > 127 and not _is_utf8(text):
        text, offsets = _joined(
            pa.array([b"\x02" + decoded(each[1:]).encode() for each in regions.to_pylist()], pa.binary())
        )
    return text, offsets + 1


def _joined(regions: pa.BinaryArray) -> tuple[Bytes, Longs]:
    """Regions' first bytes, which belong to no entry, become value ends; one more comes last."""
    offsets = np.frombuffer(regions.buffers()[1], np.int32)[: len(regions) + 1]
    text = np.empty(offsets[-1] + 1, np.uint8)
    text[:-1] = np.frombuffer(regions.buffers()[2] or b"", np.uint8)[: offsets[-1]]
    text[offsets] = _VALUE_ENDS
    return text, offsets.astype(np.int64)


def _is_utf8(text: Bytes) -> bool:
    whole = pa.BinaryArray.from_buffers(
        pa.binary(), 1, [None, pa.array([0, len(text)], pa.int32()).buffers()[1], pa.py_buffer(text)]
    )
    try:
        whole.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _entries(text: Bytes) -> tuple[Ints, pa.StringArray, pa.StringArray]:
    """Positions of entries, their names and their values. A name ends at the first \\x01, a value at the \\x02."""
    ends, marks = (np.flatnonzero(text == byte).astype(np.int32) for byte in (_VALUE_ENDS, _NAME_ENDS))
    filled = np.flatnonzero(np.diff(ends) > 1)
    start, end = ends[filled] + 1, ends[filled + 1]
    if len(marks) == len(start) and ((marks > start) & (marks < end - 1)).all():
        name_end = marks
    else:
        first = np.append(marks, text.size)[np.searchsorted(marks, start)]
        whole = (first > start) & (first < end - 1)
        start, name_end, end = start[whole], first[whole].astype(np.int32), end[whole]
    names, values = cut(text, start, name_end - start), cut(text, name_end + 1, end - name_end - 1)
    return start, names.view(pa.string()), values.view(pa.string())


def _last_of_each(owners: Ints, codes: Ints) -> Mask | None:
    """Marks entries that are the last of their name in their record; None if all are."""
    keys = owners * np.int64(codes.max(initial=0) + 1) + codes
    in_order = np.sort(keys, kind="stable")
    if not (in_order[1:] == in_order[:-1]).any():
        return None
    order = np.argsort(keys, kind="stable")
    keep = np.ones(len(keys), np.bool_)
    keep[order[:-1]] = keys[order[1:]] != keys[order[:-1]]
    return keep
