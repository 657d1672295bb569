"""One connection: how long and how large the part of it may be that no route has seen yet.

Owns the time between requests. uvicorn waits without end for the head of a request, and its faster
parser takes one of any size; whoever has no token could hold all connections and the memory too.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from outlive.server import limits
from outlive.server.problems import MEDIA_TYPE, Problem

_log = logging.getLogger("outlive.server")


class Connection(AutoHTTPProtocol):
    """Closes itself when a head does not arrive in time, or is too large.

    What is left of a body after its answer counts as well: a refused request must not be a way to
    go on sending.
    """

    # Of the base, which is one of two classes, by what is installed; both have these.
    client: tuple[str, int] | None
    cycle: Any
    transport: asyncio.Transport

    _unseen_bytes = 0
    _giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the first head is awaited from now on."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came, unless it is more than anybody will look at."""
        before = self.cycle
        # Asked before: the last part of a body is one that a route sees, too.
        seen = before is not None and before.more_body and not before.response_complete
        super().data_received(data)
        request = self.cycle
        under_way = request is not None and not request.response_complete
        in_body = request is not None and request.more_body
        if seen or request is not before:
            self._unseen_bytes = 0
        else:
            self._unseen_bytes += len(data)
        if under_way:
            self._wait_no_more()
        else:
            self._wait()
        most = limits.HEAD_BYTES_MAX + (limits.BODY_BYTES_MAX if in_body else 0)
        if self._unseen_bytes > most:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP as everything else is refused, and hang up."""
        del msg
        address = self.client[0] if self.client else "unknown"
        _log.warning("a request from %s is not valid HTTP", address, extra={"address": address})
        body = Problem("invalid-request", "The request is not valid HTTP/1.1.").document()
        head = (
            f"HTTP/1.1 400 Bad Request\r\nContent-Type: {MEDIA_TYPE}\r\nCache-Control: no-store\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _wait(self) -> None:
        if self._giving_up is None:
            loop = asyncio.get_running_loop()
            self._giving_up = loop.call_later(limits.HEAD_TIMEOUT_S, self.transport.abort)

    def _wait_no_more(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
