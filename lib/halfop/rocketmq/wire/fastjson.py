"""Reads the JSON that RocketMQ's servers write with fastjson: keys that are numbers come without quotes."""

from __future__ import annotations

import json
import re
from typing import Any

# a string is kept as it is; what follows { or , and comes before : is a key
_STRING_OR_KEY = re.compile(r'("(?:[^"\\]|\\.)*")|([{,]\s*)(-?\d+)(\s*:)')


def loads(text: bytes) -> Any:
    """Raises ValueError for what is no JSON even then. Number keys become strings, as JSON's are."""
    decoded = text.decode()
    try:
        return json.loads(decoded)
    except json.JSONDecodeError:
        return json.loads(_STRING_OR_KEY.sub(lambda found: found[1] or f'{found[2]}"{found[3]}"{found[4]}', decoded))
