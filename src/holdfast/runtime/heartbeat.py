"""The heartbeat: keeps this host's one session row alive, from the keeper.

A host that loses its session tells its features, opens a new session under a new id and goes on;
it never exits by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from holdfast.errors import HoldfastError, LeaseLost
from holdfast.model.session import HostSession
from holdfast.names import HostId
from holdfast.ports.driver import Driver
from holdfast.ports.host_store import HostStore
from holdfast.runtime.runtime import Runtime

_log = logging.getLogger("holdfast.heartbeat")

# Ended in one statement; more than this at once is a fleet restart, and the next beat goes on.
REAP_MAX = 100


class Heartbeat:
    """Renews a session at a third of its ttl. One write per host, however much it owns."""

    def __init__(self, runtime: Runtime, session: HostSession) -> None:
        self._runtime = runtime
        self.session = session
        self._ttl_s = session.ttl_us / 1e6
        self._due = 0.0
        self._opened = False
        self._renewed_at = runtime.clock.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._healthy_since = self._renewed_at
        self._reap_due = 0.0
        self._lost: list[Callable[[HostSession], None]] = []

    def opened(self) -> None:
        """The session was opened by the caller; the next beat renews it."""
        self._opened = True
        self._renewed_at = self._runtime.clock.monotonic()
        self._due = self._renewed_at + self._ttl_s / 3

    def on_lost(self, listener: Callable[[HostSession], None]) -> None:
        """Call ``listener`` on the keeper's thread with the session that was lost."""
        self._lost.append(listener)

    def age_s(self, now: float) -> float:
        """How long ago the last acknowledged heartbeat was sent."""
        return now - self._renewed_at

    def tick(self, now: float, driver: Driver) -> float:
        """Send a heartbeat if one is due and none is under way."""
        if driver.hosts is None:
            return now + self._ttl_s
        if self._task is not None and not self._task.done():
            return now + self._ttl_s / 3
        if now >= self._due:
            self._due = now + self._ttl_s / 3 * self._runtime.random.uniform(0.9, 1.1)
            self._task = self._runtime.spawn(self._beat(driver, now), name="holdfast-heartbeat")
        return self._due

    async def stop(self) -> None:
        """End the heartbeat under way. The session itself is closed by who opened it."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _beat(self, driver: Driver, sent_at: float) -> None:
        assert driver.hosts is not None
        try:
            async with asyncio.timeout(self._ttl_s / 3):
                if self._opened:
                    await driver.hosts.renew(self.session.id, self.session.ttl_us)
                else:
                    await driver.hosts.open(self.session)
                    self._opened = True
                if sent_at - self._renewed_at > self._ttl_s:
                    # A gap: the store was away, or the machine slept. Others were late as well.
                    self._healthy_since = sent_at
                self._renewed_at = sent_at
                await self._reap(driver.hosts, sent_at)
        except LeaseLost as error:
            self._replace(error)
        except (HoldfastError, TimeoutError) as error:
            # Try again soon; peers take over when the ttl has passed without success.
            self._due = sent_at + min(1.0, self._ttl_s / 10)
            _log.warning("heartbeat failed: %s", error, extra={"host": self.session.name})

    async def _reap(self, hosts: HostStore, now: float) -> None:
        """End the sessions of the dead, once per ttl.

        Only a host that has itself been healthy for a whole ttl may judge: after an outage every
        session is late at once, and the first to wake must not take everybody's work.
        """
        if now - self._healthy_since < self._ttl_s or now < self._reap_due:
            return
        self._reap_due = now + self._ttl_s
        for dead in await hosts.reap(limit=REAP_MAX):
            _log.info(
                "host %s (%s) is dead: its session ran out",
                dead.name,
                dead.id,
                extra={"host": self.session.name},
            )

    def _replace(self, error: HoldfastError) -> None:
        lost = self.session
        _log.error("this host lost its session: %s", error, extra={"host": lost.name})
        self.session = replace(lost, id=HostId(self._runtime.new_id()))
        self._opened = False
        self._due = 0.0
        for listener in self._lost:
            listener(lost)
