"""moto's S3 on a free port of loopback, which is stdout's first line. It serves one request at a time: moto looks
whether an object is there and then puts it, which is atomic only so.

server.py [--rival REGEX] [--unanswered REGEX] [--unconditional]; the first two befall an object of such a name, once a
match.
"""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from werkzeug.test import Client

Environ = dict[str, Any]
_EMPTY_COMMIT = b'{"commitInfo":{"timestamp":0,"operation":"WRITE","operationParameters":{}}}\n'
_NOTHING = "(?!)"


class Faults:
    """Around an application."""

    def __init__(self, app: Callable[..., Iterable[bytes]], rival: str, unanswered: str, unconditional: bool) -> None:
        self._app, self._rival, self._unanswered, self._unconditional = app, rival, unanswered, unconditional
        self._lock, self._befallen = Lock(), set[tuple[str, str]]()

    def __call__(self, environ: Environ, start: Callable[..., Any]) -> list[bytes]:
        if self._unconditional:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with self._lock:
            if self._befalls(self._rival, environ):
                Client(self._app).put(environ["PATH_INFO"], data=_EMPTY_COMMIT)
            if not self._befalls(self._unanswered, environ):
                return list(self._app(environ, start))
            list(self._app(environ, lambda *_: None))
        start("500 Internal Server Error", [("Content-Length", "0")])
        return []

    def _befalls(self, fault: str, environ: Environ) -> bool:
        found = re.match(fault, environ["PATH_INFO"])
        if environ["REQUEST_METHOD"] != "PUT" or not found or (fault, found[0]) in self._befallen:
            return False
        self._befallen.add((fault, found[0]))
        return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rival", default=_NOTHING, help="another's empty commit is put there just before")
    parser.add_argument("--unanswered", default=_NOTHING, help="it is put, but the answer is status 500")
    parser.add_argument("--unconditional", action="store_true", help="If-None-Match is ignored, as by some old stores")
    options = parser.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    moto = DomainDispatcherApplication(create_backend_app)
    app = Faults(moto, options.rival, options.unanswered, options.unconditional)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
