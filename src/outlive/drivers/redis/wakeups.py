"""Hints between hosts by PUBLISH and SUBSCRIBE, on one connection of their own.

Owns the listening connection: asks at its start and every half minute whether it is still alive,
calls itself deaf when it is not, and connects again. Only hosts listen, from the moment they open,
so that who subscribes hears at once. Losing hints costs latency, never work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from outlive.drivers.redis.epoch import Epoch
from outlive.drivers.redis.link import Link, connect
from outlive.drivers.redis.settings import RedisSettings
from outlive.drivers.redis.wire import Wire
from outlive.errors import StoreError
from outlive.names import HostId
from outlive.ports.driver import DriverContext
from outlive.ports.hearing import Listeners
from outlive.ports.wakeups import MISSED, Listener, Wakeup

# Often enough that a firewall which forgot the connection is found before people notice; rare
# enough to cost nothing.
_PROVE_EVERY_S = 30.0

# An answer takes a millisecond; a loaded server gets five seconds.
_PROVE_WITHIN_S = 5.0

# How long opening waits for the first proof; without one it goes on, deaf.
_START_WITHIN_S = 2.0

_BACKOFF_FIRST_S = 0.05
_BACKOFF_MOST_S = 5.0

# Waiter, position, topic.
_PARTS = 3


class RedisWakeups:
    """The ``Wakeups`` of one namespace."""

    def __init__(
        self, link: Link, settings: RedisSettings, context: DriverContext, epoch: Epoch
    ) -> None:
        self._link = link
        self._settings = settings
        self._context = context
        self._epoch = epoch
        self._bell = f"{settings.keys_of(context.namespace)}bell:"
        self._listeners = Listeners(context.logger)
        self._task: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()
        self._settled = asyncio.Event()
        self._hearing = False
        self._closed = False
        self._warned = False

    @property
    def deaf(self) -> bool:
        """Whether hints are known not to arrive now."""
        return not self._hearing

    @property
    def deaf_now(self) -> bool | None:
        """The same for people: ``None`` where nobody listens, as in a keeper."""
        return None if self._task is None else self.deaf

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` for each hint; see the port."""
        return self._listeners.add(listener)

    async def start(self) -> None:
        """Begin to listen; returns once hints arrive, or soon after if they do not."""
        if self._context.role != "host" or self._task is not None or self._closed:
            return
        self._task = asyncio.get_running_loop().create_task(self._listen())
        try:
            async with asyncio.timeout(_START_WITHIN_S):
                await self._settled.wait()
        except TimeoutError:
            return

    async def ring(self, wakeup: Wakeup, *, host: HostId | None = None) -> None:
        """Send a hint; see the port. It may be lost."""
        message = f"{wakeup.waiter} {wakeup.position} {wakeup.topic}"
        try:
            # The channel of all hosts is the one without a name.
            await self._link.call("PUBLISH", self._bell + (host or ""), message, write=False)
        except StoreError as error:
            self._context.logger.debug("could not send a notification: %s", error)

    async def close(self) -> None:
        """Stop listening. Repeatable."""
        self._closed = True
        self._hearing = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    # -- listening ------------------------------------------------------------------------------

    async def _listen(self) -> None:
        failures = 0
        while not self._closed:
            wire: Wire | None = None
            try:
                wire, _ = await connect(self._settings, self._context, self._epoch)
                channels = (self._bell, self._bell + self._context.host)
                wire.listen(self._on_reply, "SUBSCRIBE", *channels)
                while await self._proves(wire):
                    self._now_hearing()
                    failures = 0
                    await self._until_lost_or_due(wire)
                self._now_deaf("the server did not answer")
            except Exception as error:  # noqa: BLE001 - whatever it is, connect again
                self._now_deaf(str(error))
            finally:
                if wire is not None:
                    wire.abandon("listening has ended")
                    await wire.ended()
            pause = min(_BACKOFF_MOST_S, _BACKOFF_FIRST_S * 2 ** min(failures, 10))
            failures += 1
            await self._context.clock.sleep(pause * self._context.random.uniform(0.5, 1.0))

    async def _proves(self, wire: Wire) -> bool:
        """Whether the server answers on the listening connection."""
        if not wire.usable:
            return False
        self._heard.clear()
        wire.tell("PING")
        try:
            async with asyncio.timeout(_PROVE_WITHIN_S):
                await self._heard.wait()
        except TimeoutError:
            return False
        return True

    async def _until_lost_or_due(self, wire: Wire) -> None:
        try:
            async with asyncio.timeout(_PROVE_EVERY_S):
                await wire.ended()
        except TimeoutError:
            return

    def _on_reply(self, reply: Any) -> None:
        match reply:
            case ["message", str(), str(message)]:
                self._deliver(message)
            case ["pong", _]:
                self._heard.set()
            case Exception():
                self._now_deaf(str(reply))
            case _:
                # Confirmations of the subscriptions.
                return

    def _deliver(self, message: str) -> None:
        parts = message.split(" ", _PARTS - 1)
        if len(parts) != _PARTS or not (parts[0].isdecimal() and parts[1].isdecimal()):
            # A stranger published on our channel.
            return
        wakeup = Wakeup(parts[2], int(parts[0]), int(parts[1]))
        self._listeners.tell(wakeup)

    def _now_hearing(self) -> None:
        if self._warned:
            self._context.logger.info("notifications arrive again")
        again, self._hearing = self._settled.is_set() and not self._hearing, True
        self._warned = False
        self._settled.set()
        if again:
            self._listeners.tell(MISSED)

    def _now_deaf(self, why: str) -> None:
        heard, self._hearing = self._hearing, False
        self._settled.set()
        if heard and not self._closed:
            # Who waits for a ring must poll from now on.
            self._listeners.tell(MISSED)
        if not self._warned and not self._closed:
            self._warned = True
            self._context.logger.warning(
                "notifications do not arrive (%s): waiters poll instead", why
            )
