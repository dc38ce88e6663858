"""What a failed Spark job says of its cause."""

from __future__ import annotations

import re

from halfop.frame.errors import HalfopError, InputRefused

_OURS = re.compile(r"^halfop\.(?:\w+\.)*(\w+): (.+)$", re.MULTILINE)
_CAUSED = re.compile(r"^Caused by: (?:[\w$]+\.)*([\w$]+(?:: [^\n]*)?)", re.MULTILINE)


def innermost(error: BaseException) -> str:
    causes = _CAUSED.findall(str(error))
    return causes[-1] if causes else str(error).split("\n")[0]


def as_ours(error: Exception, where: str) -> HalfopError:
    """A worker's own error as if it had been raised here, else the innermost of Spark's."""
    name, text = [("", innermost(error)), *_OURS.findall(str(error))][-1]
    return InputRefused(where, None, text) if name == InputRefused.__name__ else HalfopError(f"{where}: {text}")
