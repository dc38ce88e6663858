"""What a mistyped name was most likely to be. ./spark-submit.sh runs this file by itself: WRONG KNOWN… as arguments."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Returns `; did you mean …?` to end a message with; nothing if no known name is near."""
    close = difflib.get_close_matches(wrong, sorted(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


if __name__ == "__main__":
    sys.stdout.write(did_you_mean(sys.argv[1], sys.argv[2:]))
