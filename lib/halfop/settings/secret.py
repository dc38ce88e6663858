"""Secrets among settings: settings are recorded with every run and shown in errors, so they hold none."""

from __future__ import annotations

import re

# Names that end with `id` name no secret, but where one is kept.
_NAME = r"(?:passw|passphrase|pwd|token|secret|credential|(?:access|account|api|private|shared)[_-]?key)[\w.-]*(?<!id)"
_NAMED = re.compile(rf"(?i){_NAME}$")
# name=value of a URL, "name": "value" of JSON, and user:password before a host (Oracle: user/password).
_SECRET = re.compile(
    rf"(?i)(?P<before>{_NAME}\s*=\s*|{_NAME}\"\s*:\s*\"?|://[^/@]*:(?=[^/@]*@)|:thin:[^/@]+/(?=[^@]*@))[^;&,)}}@\"\s]*"
)


def names_secret(name: str) -> bool:
    """Returns whether a value of this name is a secret."""
    return bool(_NAMED.search(name))


def holds_secret(text: str) -> bool:
    """Returns whether a URL has a password or a token in it."""
    return bool(_SECRET.search(text))


def redacted(text: str) -> str:
    """Returns a text to show, with *** in place of what is secret."""
    return _SECRET.sub(r"\g<before>***", text)
