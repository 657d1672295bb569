"""Hints between hosts, by one watch of the namespace.

Owns the watch. Nobody rings for a lease: each host sees live keys and places go, and looks itself
whether one of its own waiters is now near the head. Only hosts watch, from the moment they open.
When the watch breaks they are deaf; when it is back, every key that somebody here waits for is
looked at, so that nothing that was missed matters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from outlive.drivers.etcd.connections import Connections
from outlive.drivers.etcd.decide import is_free
from outlive.drivers.etcd.folders import Folders
from outlive.drivers.etcd.interest import Interest
from outlive.drivers.etcd.operations import News, Put, Stored, Term
from outlive.drivers.etcd.terms import Terms
from outlive.drivers.etcd.wire import Watch
from outlive.errors import OutliveError, StoreError, StoreUnavailable
from outlive.model.turns import RING_DEPTH
from outlive.names import HostId
from outlive.ports.driver import DriverContext
from outlive.ports.hearing import Listeners
from outlive.ports.wakeups import Listener, Wakeup
from outlive.serialization import decode_json, encode_json

# How long opening waits for the watch to begin; without it the driver goes on, deaf.
_START_WITHIN_S = 2.0
_BEGIN_WITHIN_S = 5.0

_BACKOFF_FIRST_S = 0.05
_BACKOFF_MOST_S = 5.0

# Looks under way at once: each is one read.
_LOOKS_MAX = 16

# A hint that nobody heard is worth nothing after a minute. One lease of etcd carries all of them.
_BELL_TTL_S = 60

# A topic is a key of at most 512 bytes with a prefix.
_HINT_BYTES_MAX = 4_096


class EtcdWakeups:
    """The ``Wakeups`` of one namespace."""

    def __init__(
        self,
        connections: Connections,
        folders: Folders,
        terms: Terms,
        waiting: Interest,
        context: DriverContext,
    ) -> None:
        self._connections = connections
        self._folders = folders
        self._names = folders.names
        self._terms = terms
        self._context = context
        self._listeners = Listeners(context.logger)
        self._waiting = waiting
        self._due: dict[str, None] = {}
        self._some_due = asyncio.Event()
        self._settled = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._bell: tuple[Term, float] | None = None
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
        return self.deaf if self._tasks else None

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` for each hint; see the port."""
        if self._closed:
            raise StoreUnavailable("the driver is closed")
        return self._listeners.add(listener)

    async def ring(self, wakeup: Wakeup, *, host: HostId | None = None) -> None:
        """Send a hint; see the port. It may be lost."""
        message = {"topic": wakeup.topic, "waiter": wakeup.waiter, "position": wakeup.position}
        payload = encode_json(message, "a wake-up", limit=_HINT_BYTES_MAX)
        try:
            term = await self._bell_term()
            put = Put(self._names.bell(host), payload.encode(), term.id)
            await self._connections.transact((), (put,), write=False)
        except StoreError as error:
            if self._closed:
                raise
            self._context.logger.debug("a wake-up was not sent: %s", error)

    async def _bell_term(self) -> Term:
        now = self._context.clock.monotonic()
        if self._bell is None or self._bell[1] <= now:
            self._bell = (await self._terms.fresh(_BELL_TTL_S), now + _BELL_TTL_S / 2)
        return self._bell[0]

    async def start(self) -> None:
        """Begin to watch; returns once hints arrive, or soon after if they do not."""
        if self._context.role != "host" or self._tasks or self._closed:
            return
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._listen()), loop.create_task(self._look_around())]
        try:
            async with asyncio.timeout(_START_WITHIN_S):
                await self._settled.wait()
        except TimeoutError:
            return

    async def close(self) -> None:
        """Stop watching. Repeatable."""
        self._closed = True
        self._hearing = False
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
            self._tasks = []

    # -- watching -------------------------------------------------------------------------------

    async def _listen(self) -> None:
        failures = 0
        while not self._closed:
            watch: Watch | None = None
            try:
                watch = await self._begin()
                self._now_hearing()
                failures = 0
                while True:
                    self._on_news(await watch.next())
            except Exception as error:  # noqa: BLE001 - whatever it is, watch again
                self._now_deaf(f"{type(error).__name__}: {error}")
            finally:
                if watch is not None:
                    watch.close()
            pause_s = min(_BACKOFF_MOST_S, _BACKOFF_FIRST_S * 2 ** min(failures, 10))
            failures += 1
            await self._context.clock.sleep(pause_s * self._context.random.uniform(0.5, 1.0))

    async def _begin(self) -> Watch:
        """A watch that is known to have begun."""
        names = self._names
        async with asyncio.timeout(_BEGIN_WITHIN_S):
            watch = await self._connections.watch()
            try:
                await watch.add(names.leases, names.leases_end, puts=False, deletes=True)
                await watch.add(names.bells, names.bells_end, puts=True, deletes=False)
                begun = 0
                while begun < 2:  # noqa: PLR2004 - one answer for each range
                    news = await watch.next()
                    begun += news.ready
                    self._on_news(news)
            except BaseException:
                watch.close()
                raise
            return watch

    def _on_news(self, news: News) -> None:
        if news.ended:
            # Permission was taken away, or the member lost its leader.
            raise StoreUnavailable("etcd ended the watch")
        now_us = round(self._context.clock.monotonic() * 1e6)
        for item in news.deleted:
            part = self._names.part(item.key)
            if part is None:
                continue
            slot = part.rest.partition(b".")[0]
            if part.kind == b"live" and slot.isdigit():
                self._folders.sightings.freed(part.key, int(slot), item.modified, now_us)
            if part.key in self._waiting:
                self._due[part.key] = None
                self._some_due.set()
        for item in news.put:
            self._hear(item)

    def _hear(self, item: Stored) -> None:
        if item.key not in (self._names.bell(self._context.host), self._names.bell(None)):
            return
        try:
            message = decode_json(item.value)
            wakeup = Wakeup(message["topic"], int(message["waiter"]), int(message["position"]))
        except (ValueError, KeyError, TypeError):
            # Somebody else's key under our prefix.
            return
        self._listeners.tell(wakeup)

    # -- looking --------------------------------------------------------------------------------

    async def _look_around(self) -> None:
        while True:
            await self._some_due.wait()
            batch = list(self._due)[:_LOOKS_MAX]
            for key in batch:
                del self._due[key]
            if not self._due:
                self._some_due.clear()
            await asyncio.gather(*(self._look(key) for key in batch))

    async def _look(self, key: str) -> None:
        """Wake those of this host who stand near the head of a key that is free."""
        try:
            folder = await self._folders.read(key)
        except OutliveError as error:
            self._context.logger.debug("looking at the queue of %r: %s", key, error)
            return
        self._waiting.forget_silent(key)
        if not is_free(folder):
            return
        for position, place in enumerate(folder.counted()[:RING_DEPTH]):
            if place.host == self._context.host:
                self._listeners.tell(Wakeup(f"lease/{key}", place.id, position))

    def _now_hearing(self) -> None:
        if self._warned:
            self._context.logger.info("wake-ups arrive again")
        self._hearing = True
        self._warned = False
        self._settled.set()
        # What went while nobody listened was not seen.
        for key in self._waiting:
            self._due[key] = None
        self._some_due.set()

    def _now_deaf(self, why: str) -> None:
        self._hearing = False
        self._settled.set()
        if not self._warned and not self._closed:
            self._warned = True
            self._context.logger.warning("wake-ups do not arrive (%s), so waiters poll", why)
