"""Who works: the user of this process, as records and messages name it."""

from __future__ import annotations

import getpass
import os
import socket


def user() -> str:
    """Returns the user's name; the number of a user that has no name, as containers on OpenShift have."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # Python 3.13 raises the latter
        return str(os.getuid())


def owner() -> str:
    """Returns the user and the machine."""
    return f"{user()}@{socket.gethostname()}"
