"""A request that is answered with an error, as a broker answers it."""

from __future__ import annotations


class Refused(Exception):
    """The answer's code and remark."""

    def __init__(self, code: int, remark: str) -> None:
        self.code, self.remark = code, remark
        super().__init__(f"{code} {remark}")
