"""The one connection that all operations of a driver share, and the scripts that go through it.

Owns connecting, abandoning and reconnecting. A script goes out by its digest; a server that does
not know it says so before it has run anything, and is then sent the text.
"""

from __future__ import annotations

import asyncio
from typing import Any

from outlive.drivers.redis.epoch import Epoch
from outlive.drivers.redis.handshake import open_wire
from outlive.drivers.redis.scripts import Script
from outlive.drivers.redis.server import Server
from outlive.drivers.redis.settings import RedisSettings
from outlive.drivers.redis.translate import STALE, code_of, translate, translate_connect
from outlive.drivers.redis.wire import Lost, Wire, import_hiredis
from outlive.errors import OutliveError, StoreUnavailable, UsageError
from outlive.ports.driver import DriverContext
from outlive.process import current

# First and longest pause between attempts to connect, so that a fleet does not storm a server
# that comes back.
_BACKOFF_FIRST_S = 0.02
_BACKOFF_MOST_S = 1.0


class Link:
    """The connection of one driver, made again whenever it is lost."""

    def __init__(self, settings: RedisSettings, context: DriverContext, epoch: Epoch) -> None:
        self._settings = settings
        self._context = context
        self._epoch = epoch
        self._reply_error: type[Exception] = import_hiredis().ReplyError
        # A keeper whose caller gives up must not find the next renewal behind the same silence.
        self._abandons = context.role == "keeper"
        self._wire: Wire | None = None
        self._server: Server | None = None
        self._opening: asyncio.Task[Wire] | None = None
        self._pid = current.pid
        self._failures = 0
        self._retry_at = 0.0
        self._closed = False

    async def open(self) -> Server:
        """Connect, if there is no connection.

        Raises:
            StoreUnavailable: The server cannot be reached.
            ConfigurationError: The URL is wrong or the server is no place for leases.
        """
        await self._ready()
        assert self._server is not None
        return self._server

    async def run(self, script: Script, keys: int, *args: Any) -> Any:
        """Run ``script`` in one round trip; the first ``keys`` of ``args`` are keys.

        Raises:
            StoreUnavailable: Nothing was applied.
            OutcomeUnknown: The script writes and its reply was lost.
        """
        try:
            return await self._send("EVALSHA", script.digest, keys, *args)
        except self._reply_error as error:
            if code_of(error) != "NOSCRIPT":
                raise translate(error, write=script.writes) from None
        except Lost as error:
            raise translate(error, write=script.writes) from None
        return await self.call("EVAL", script.text, keys, *args, write=script.writes)

    async def call(self, *command: Any, write: bool) -> Any:
        """Run one command in one round trip; raises as ``run`` does."""
        try:
            return await self._send(*command)
        except (self._reply_error, Lost) as error:
            raise translate(error, write=write) from None

    async def adopt_again(self) -> None:
        """Tell the store its run once more, because its record of it is gone."""
        wire = await self._ready()
        assert self._server is not None
        try:
            await self._epoch.adopt(wire, self._server, lost=True)
        except (self._reply_error, Lost) as error:
            raise translate(error, write=True) from None

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that opened the driver."""
        return current.pid != self._pid

    async def close(self) -> None:
        """End the connection; calls under way end with an error. Repeatable."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.abandon("the driver is closed")
            await wire.ended()

    async def _send(self, *command: Any) -> Any:
        wire = self._wire
        if wire is None or not wire.usable or self.forked:
            wire = await self._ready()
        try:
            return await wire.send(*command)
        except asyncio.CancelledError:
            if self._abandons:
                wire.abandon("a caller was cancelled")
            raise
        except self._reply_error as error:
            if code_of(error) in STALE:
                wire.abandon("the server is no longer the primary")
            raise

    # -- connecting -----------------------------------------------------------------------------

    async def _ready(self) -> Wire:
        if self.forked:
            raise UsageError(
                "this driver was opened before the process was forked; its connection belongs to "
                "the parent: connect again in the child"
            )
        if self._closed:
            raise StoreUnavailable("the driver is closed")
        if self._wire is not None and self._wire.usable:
            return self._wire
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.get_running_loop().create_task(self._open())
            opening.add_done_callback(self._opened)
        try:
            # Who gives up waiting leaves the connection to those who come after. Not by `shield`:
            # from Python 3.14 on that tells of an error which comes when nobody waits.
            await asyncio.wait((opening,))
            return opening.result()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                why = (
                    "the driver is closed"
                    if self._closed
                    else "the attempt to connect was cancelled"
                )
                raise StoreUnavailable(why) from None
            if self._abandons and self._opening is opening:
                self._opening = None
                opening.cancel()
            raise

    def _opened(self, opening: asyncio.Task[Wire]) -> None:
        if self._opening is opening:
            self._opening = None
        if not opening.cancelled():
            # Whoever waits gets the error; where nobody does any more, it is of no interest.
            opening.exception()

    async def _open(self) -> Wire:
        clock = self._context.clock
        await clock.sleep(min(_BACKOFF_MOST_S, self._retry_at - clock.monotonic()))
        try:
            wire, self._server = await connect(self._settings, self._context, self._epoch)
        except OutliveError:
            pause = min(_BACKOFF_MOST_S, _BACKOFF_FIRST_S * 2 ** min(self._failures, 10))
            self._failures += 1
            self._retry_at = clock.monotonic() + pause * self._context.random.uniform(0.5, 1.0)
            raise
        self._failures = 0
        self._wire = wire
        return wire


async def connect(
    settings: RedisSettings, context: DriverContext, epoch: Epoch
) -> tuple[Wire, Server]:
    """A new connection, which belongs to the caller, to a store that knows its run.

    Raises:
        StoreUnavailable: The server cannot be reached, or takes no writes.
        ConfigurationError: The URL is wrong or the server is no place for leases.
    """
    wire, server = await open_wire(settings, context.host)
    try:
        async with asyncio.timeout(settings.connect_timeout_s):
            await epoch.adopt(wire, server)
    except BaseException as error:
        wire.abandon("the connection could not be prepared")
        await wire.ended()
        if isinstance(error, Exception):
            raise translate_connect(error, settings.shown) from None
        raise
    return wire, server
