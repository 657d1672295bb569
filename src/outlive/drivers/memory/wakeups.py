"""Wake-ups between the drivers of one memory store, across event loops and threads.

Owns who listens. A listener runs only on the event loop that opened its driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from outlive.drivers.memory.rows import PlaceRow, Space
from outlive.errors import StoreUnavailable
from outlive.names import HostId
from outlive.ports.wakeups import Listener, Wakeup


class MemoryWakeups:
    """The ``Wakeups`` of one open driver."""

    def __init__(self, space: Space, host: HostId, logger: logging.Logger) -> None:
        self._space: Space | None = space
        self._host = host
        self._logger = logger
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Listener] = []

    @property
    def deaf(self) -> bool:
        """Never, while open: there is no connection to lose."""
        return self._space is None

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` for each hint meant for this host or for all; see the port."""
        space = self._space
        if space is None:
            raise StoreUnavailable("the memory store is closed")
        # The list is replaced, never changed: a delivery under way goes over the one it began.
        with space.lock:
            if not self._listeners:
                space.listening.setdefault(self._host, []).append(self)
            self._listeners = [*self._listeners, listener]
        return self._unsubscriber(listener)

    def _unsubscriber(self, listener: Listener) -> Callable[[], None]:
        done = False

        def unsubscribe() -> None:
            nonlocal done
            space = self._space
            if done or space is None:
                return
            done = True
            with space.lock:
                left = list(self._listeners)
                left.remove(listener)
                self._listeners = left
                if not left:
                    self._stop_listening(space)

        return unsubscribe

    async def ring(self, wakeup: Wakeup, *, host: HostId | None = None) -> None:
        """Send a hint to one host or to all; see the port."""
        space = self._space
        if space is None:
            raise StoreUnavailable("the memory store is closed")
        with space.lock:
            if host is None:
                meant = [peer for peers in space.listening.values() for peer in peers]
            else:
                meant = list(space.listening.get(host, ()))
        for peer in meant:
            peer.deliver(wakeup)

    def ring_place(self, place: PlaceRow, wakeup: Wakeup) -> None:
        """Send a hint to the host of a place in a queue."""
        self.ring_host(place.host, wakeup)

    def ring_host(self, host: HostId, wakeup: Wakeup) -> None:
        """Send a hint to one host; nothing happens once this driver is closed."""
        space = self._space
        if space is None:
            return
        with space.lock:
            meant = list(space.listening.get(host, ()))
        for peer in meant:
            peer.deliver(wakeup)

    def deliver(self, wakeup: Wakeup) -> None:
        """Hand the hint to the driver's own loop; a loop that is closed loses it."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._dispatch, wakeup)

    def _dispatch(self, wakeup: Wakeup) -> None:
        for listener in self._listeners:
            try:
                listener(wakeup)
            except Exception:
                # One broken listener must not cost the others their hint.
                self._logger.exception("a notification listener failed")

    def close(self) -> None:
        """Stop listening. Repeatable."""
        space = self._space
        if space is None:
            return
        self._space = None
        with space.lock:
            self._listeners = []
            self._stop_listening(space)

    def _stop_listening(self, space: Space) -> None:
        peers = space.listening.get(self._host, [])
        if self in peers:
            peers.remove(self)
        if not peers:
            space.listening.pop(self._host, None)
