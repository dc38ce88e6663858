"""How a request is refused."""

from __future__ import annotations

from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import AnswerCode
from halfop.rocketmq.requests import BadHeader, H


class Refused(Exception):
    """A request that is answered with an error, as a broker answers it: the code and the remark.

    `why` stands in the log instead of the remark, if the client is not to know it.
    """

    def __init__(self, code: int, remark: str, why: str | None = None) -> None:
        self.code, self.remark, self.why = code, remark, why or remark
        super().__init__(f"{code} {remark}")


def header_of(kind: type[H], request: Frame) -> H:
    """Returns the request's header. Raises Refused if a field is missing, or no number."""
    try:
        return kind.read(request.fields)
    except BadHeader as error:
        raise Refused(AnswerCode.SYSTEM_ERROR, str(error)) from error
