"""The pages /metrics and /healthz, for Prometheus and for what restarts processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

_SECONDS, _LONGEST = 5.0, 8192
MOST_CONNECTIONS = 16  # and as many that wait to be accepted: of the files that are kept for all but producers
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
Page = Callable[[], tuple[HTTPStatus, bytes]]


async def serve_pages(host: str, number: int, metrics: Page, health: Page) -> asyncio.Server:
    """Serves the pages until the server is closed. A connection too many ends the oldest, so that none holds up all."""
    pages, there = {b"/metrics": metrics, b"/healthz": health}, dict[asyncio.StreamWriter, None]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while len(there) >= MOST_CONNECTIONS:
            oldest = next(iter(there))
            del there[oldest]
            oldest.transport.abort()
        there[writer] = None
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _SECONDS)
            status, body = _page(head, pages)
            line = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {_TEXT}\r\n"
            writer.write(f"{line}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
            await asyncio.wait_for(writer.drain(), _SECONDS)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            there.pop(writer, None)
            writer.close()

    return await asyncio.start_server(serve, host, number, limit=_LONGEST, backlog=MOST_CONNECTIONS)


def _page(head: bytes, pages: dict[bytes, Page]) -> tuple[HTTPStatus, bytes]:
    method, _, rest = head.partition(b" ")
    page = pages.get(rest.partition(b" ")[0].partition(b"?")[0])
    if method != b"GET":
        return HTTPStatus.METHOD_NOT_ALLOWED, b"GET alone\n"
    return page() if page else (HTTPStatus.NOT_FOUND, b"there are /metrics and /healthz\n")
