"""How a request is refused."""

from __future__ import annotations

from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import AnswerCode
from halfop.rocketmq.requests import BadHeader, H


class Refused(Exception):
    """A request that is answered with an error, as a broker answers it: the code and the remark.

    `why` stands in the log instead of the remark.
    """

    def __init__(self, code: int, remark: str) -> None:
        self.code, self.remark, self.why = code, remark, remark
        super().__init__(f"{code} {remark}")


class NotSigned(Refused):
    """A request that no account has signed; its client is not to know why."""

    def __init__(self, remark: str, why: str) -> None:
        super().__init__(AnswerCode.NO_PERMISSION, remark)
        self.why = why


def header_of(kind: type[H], request: Frame) -> H:
    """Returns the request's header. Raises Refused if a field is missing, or no number."""
    try:
        return kind.read(request.fields)
    except BadHeader as error:
        raise Refused(AnswerCode.SYSTEM_ERROR, str(error)) from error
