"""Frames: found in a stream however it is cut, read in both forms, and refused before they cost memory."""

from __future__ import annotations

import struct

import pytest
from halfop.rocketmq.frames import ANSWER, BINARY, JSON, MAX_HEADER, BadFrame, Frame, Splitter
from halfop.rocketmq.names import RequestCode
from hypothesis import given
from hypothesis import strategies as st

MOST = 1 << 20
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
fields = st.dictionaries(texts, texts, max_size=6)


def frame(form: int = JSON, body: bytes = b"body", **given_fields: str) -> bytes:
    return Frame(RequestCode.SEND_MESSAGE_V2, 0, 7, given_fields, "remark", body, form=form).packed()


@given(st.lists(st.tuples(fields, st.sampled_from([JSON, BINARY]), st.binary(max_size=50)), max_size=5), st.data())
def test_frames_come_back_however_the_stream_is_cut(
    sent: list[tuple[dict[str, str], int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(Frame(10, 2, -5, each, "é", body, form=form).packed() for each, form, body in sent)
    splitter, found = Splitter(MOST), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        found += splitter.feed(stream[:cut])
        stream = stream[cut:]
    assert [(each.fields, each.form, each.body) for each in found] == sent
    assert all((each.code, each.flag, each.opaque, each.remark) == (10, 2, -5, "é") for each in found)
    assert splitter.held == 0


def test_an_answer_has_the_form_of_its_request() -> None:
    for form in (JSON, BINARY):
        (request,) = Splitter(MOST).feed(frame(form))
        (answered,) = Splitter(MOST).feed(request.answer(0, {"offset": "3"}))
        assert (answered.form, answered.opaque, answered.flag) == (form, request.opaque, ANSWER)
        assert answered.fields == {"offset": "3"}


def test_fields_of_clients_in_other_languages_are_texts() -> None:
    header = b'{"code":10,"flag":0,"opaque":1,"extFields":{"a":1,"b":true,"c":null,"d":"x"}}'
    sent = struct.pack(">II", 4 + len(header), len(header)) + header
    (request,) = Splitter(MOST).feed(sent)
    assert request.fields == {"a": "1", "b": "true", "d": "x"}


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">II", MOST + 1, 10),
        struct.pack(">II", 0x7FFFFFFF, 10),
        struct.pack(">II", 0xFFFFFFFF, 10),
        struct.pack(">II", 3, 0),
        struct.pack(">II", 20, 17),
        struct.pack(">II", MOST, MAX_HEADER + 1),
        struct.pack(">II", 6, 2 << 24 | 2) + b"{}",
        struct.pack(">II", 6, 2) + b"{}",
        struct.pack(">II", 6, 2) + b"[]",
        struct.pack(">II", 6, 1 << 24 | 2) + b"{}",
        struct.pack(">II", 4, 0),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
    ],
)
def test_what_no_client_sends_is_refused_by_its_first_bytes(sent: bytes) -> None:
    with pytest.raises(BadFrame):
        Splitter(MOST).feed(sent)
