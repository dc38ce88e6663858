"""Requests that are answered with an error, as a broker answers them."""

from __future__ import annotations

from halfop.rocketmq.codes import AnswerCode
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.requests import BadHeader, H


class Refused(Exception):
    """The answer's code and remark."""

    def __init__(self, code: int, remark: str) -> None:
        self.code, self.remark = code, remark
        super().__init__(f"{code} {remark}")


def header_of(kind: type[H], request: Frame) -> H:
    """Returns the request's header. Raises Refused if a field is missing, or no number."""
    try:
        return kind.read(request.fields)
    except BadHeader as error:
        raise Refused(AnswerCode.SYSTEM_ERROR, str(error)) from error
