"""One connection that speaks the protocol of Redis, with many requests under way at once.

Owns the bytes in both directions and who gets which reply; knows no command. A lone request is
written at once. Requests that come while others are under way are written together at the end of
the loop's turn. No request has a timer of its own: replies come in order, so that a connection
that has said nothing for the time limit is dead for all who wait on it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from outlive.errors import ConfigurationError, StoreUnavailable, UsageError

# Callers that wait here hold memory and a promise; a line this long means the store is far behind.
PENDING_MAX = 10_000


def import_hiredis() -> Any:
    """The parser of the protocol, imported on first use.

    Raises:
        ConfigurationError: It is not installed.
    """
    try:
        import hiredis
    except ImportError:
        raise ConfigurationError(
            "the Redis driver needs hiredis: pip install 'outlive[redis]'"
        ) from None
    return hiredis


class Lost(Exception):
    """The connection ended before the reply came; ``sent`` is false if the request never left."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.why = why
        self.sent = sent


class Wire(asyncio.Protocol):
    """One connection. ``usable`` turns false for ever when it ends."""

    def __init__(self, timeout_s: float) -> None:
        hiredis = import_hiredis()
        self._pack = hiredis.pack_command
        self._protocol_error: type[Exception] = hiredis.ProtocolError
        self.reply_error: type[Exception] = hiredis.ReplyError
        # A record that somebody else damaged must not end the connection.
        self._reader: Any = hiredis.Reader(encoding="utf-8", errors="backslashreplace")
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._outbox: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self._listener: Callable[[Any], None] | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self.usable = False

    # -- requests -------------------------------------------------------------------------------

    def send(self, *command: Any) -> asyncio.Future[Any]:
        """Send ``command``; the future is its reply, or ``reply_error``, or ``Lost``.

        Raises:
            StoreUnavailable: Too many wait already. Nothing was sent.
            UsageError: The command holds text that is not valid Unicode. Nothing was sent.
        """
        transport = self._transport
        if transport is None or not self.usable:
            raise Lost("the connection was closed", sent=False)
        waiting = self._waiting
        if len(waiting) >= PENDING_MAX:
            raise StoreUnavailable(f"{PENDING_MAX} operations are already waiting for Redis")
        try:
            data = self._pack(command)
        except UnicodeEncodeError:
            raise UsageError("a value cannot be stored: it is not valid Unicode") from None
        future: asyncio.Future[Any] = self._loop.create_future()
        if waiting:
            if not self._outbox:
                self._loop.call_soon(self._flush)
            self._outbox.append(data)
        else:
            self._heard_at = self._loop.time()
            transport.write(data)
            if self._timer is None:
                self._timer = self._loop.call_later(self._timeout_s, self._look)
        waiting.append(future)
        return future

    def listen(self, listener: Callable[[Any], None], *command: Any) -> None:
        """Send ``command`` and give every reply from now on to ``listener``; for subscribing.

        Nothing may be under way.
        """
        assert not self._waiting
        self._listener = listener
        self.tell(*command)

    def tell(self, *command: Any) -> None:
        """Send ``command`` on a connection that listens; its reply goes to the listener."""
        if self._transport is not None and self.usable:
            self._transport.write(self._pack(command))

    def _flush(self) -> None:
        if self._outbox and self._transport is not None and self.usable:
            self._transport.write(b"".join(self._outbox))
            self._outbox.clear()

    # -- the end --------------------------------------------------------------------------------

    def abandon(self, why: str) -> None:
        """End the connection at once; whoever waits on it gets ``Lost``. Repeatable."""
        if self._transport is not None:
            self._transport.abort()
        self._fail(why)

    async def ended(self) -> None:
        """Return when the connection has ended."""
        await asyncio.shield(self._ended)

    def _fail(self, why: str) -> None:
        self.usable = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        unsent = len(self._outbox)
        self._outbox.clear()
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(Lost(why, sent=len(self._waiting) >= unsent))

    def _look(self) -> None:
        """Find out whether the server still answers."""
        self._timer = None
        if not self._waiting:
            return
        silent_s = self._loop.time() - self._heard_at
        if silent_s >= self._timeout_s:
            self.abandon("no reply in time")
        else:
            self._timer = self._loop.call_later(self._timeout_s - silent_s, self._look)

    # -- called by the transport ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; see asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.usable = True

    def data_received(self, data: bytes) -> None:
        """Hand each reply to whom it belongs; see asyncio."""
        reader, waiting = self._reader, self._waiting
        self._heard_at = self._loop.time()
        try:
            reader.feed(data)
            # False is no value of this version of the protocol; it means that bytes are missing.
            while (reply := reader.gets()) is not False:
                if self._listener is not None:
                    self._listener(reply)
                elif not waiting:
                    self.abandon("the server sent an unexpected message")
                    return
                else:
                    future = waiting.popleft()
                    if future.done():
                        continue
                    if isinstance(reply, self.reply_error):
                        future.set_exception(reply)
                    else:
                        future.set_result(reply)
        except self._protocol_error:
            self.abandon("the reply is not in the Redis protocol")

    def eof_received(self) -> bool:
        """Send nothing more to a server that has hung up; see asyncio."""
        self.usable = False
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits; see asyncio."""
        self._fail("the connection was closed" if exc is None else type(exc).__name__)
        if not self._ended.done():
            self._ended.set_result(None)
