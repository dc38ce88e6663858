"""Finds the known name that a mistyped one is most like."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(wrong: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Returns the known name that is most like the wrong one in any case; None if all are less like it."""
    names = sorted(known)
    lowered = [name.lower() for name in names]
    close = difflib.get_close_matches(wrong.lower(), lowered, n=1, cutoff=cutoff)
    return names[lowered.index(close[0])] if close else None


def did_you_mean(wrong: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Returns `; did you mean …?` to end a message with; nothing if no known name is near."""
    close = nearest(wrong, known, cutoff)
    return "" if close is None else f"; did you mean {close}?"
