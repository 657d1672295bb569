"""The heartbeat: keeps this host's one session row alive, from the keeper.

A host that loses its session tells its features, which cancel what they run, opens a new session
under a new id and goes on; it never exits by itself. The session counts as lost here before the
store can give its work to others: by our own clock, and whether or not the store answers.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import replace

from outlive.errors import LeaseLost, OutliveError
from outlive.model.session import HostSession
from outlive.names import HostId
from outlive.ports.driver import Driver
from outlive.ports.host_store import HostStore
from outlive.runtime.runtime import Runtime
from outlive.runtime.session import LiveSession, safe_s
from outlive.runtime.watchdog import Watchdog

_log = logging.getLogger("outlive.host")

# Sessions lost one after the other while the store was away; each is ended when it is back. Beyond
# this they end by their ttl alone.
_FORSAKEN_MAX = 10

Listener = Callable[[LiveSession], None]


class Heartbeat:
    """Renews a session at a third of its ttl. One write per host, however much it owns."""

    def __init__(
        self,
        runtime: Runtime,
        session: HostSession,
        *,
        drift: float,
        watchdog: Watchdog | None = None,
        stall_limit_s: float = math.inf,
        log: logging.Logger = _log,
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._ttl_s = session.ttl_us / 1e6
        self._safe_s = safe_s(self._ttl_s, drift)
        self._watchdog = watchdog
        self._stall_limit_s = stall_limit_s
        self.session = session
        self.live = LiveSession(session.id, runtime.clock, self._safe_s)
        self._due = 0.0
        self._renewed_at = runtime.clock.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._forsaken: list[HostId] = []
        self._lost: list[Listener] = []
        self.healthy_since = self._renewed_at
        # Counts how often a session of ours was ended for good: its work can be taken at once.
        self.handed_over = 0
        # Whether the newest heartbeat failed: its end is told as loudly.
        self._failing = False

    @property
    def ttl_s(self) -> float:
        """How long peers wait for a host that died."""
        return self._ttl_s

    def opened(self, asked_at: float) -> None:
        """The session was opened by the caller, at ``asked_at``; the next beat renews it."""
        self.live.accept(asked_at)
        self._renewed_at = asked_at
        self._due = asked_at + self._ttl_s / 3

    def on_lost(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with each session that is lost, on the keeper's thread.

        What is returned ends it.
        """
        # Replaced, not changed: the keeper's thread may be walking it.
        self._lost = [*self._lost, listener]

        def end() -> None:
            self._lost = [each for each in self._lost if each is not listener]

        return end

    def doubt(self, session: LiveSession) -> None:
        """The store refused ``session``: ask for it now. Wake the keeper after this."""
        if session is self.live:
            self._due = 0.0

    def age_s(self, now: float) -> float:
        """How long ago the last acknowledged heartbeat was sent."""
        return now - self._renewed_at

    def tick(self, now: float, driver: Driver) -> float:
        """Give up a session whose time ran out; send a heartbeat if one is due."""
        if driver.hosts is None:
            return now + self._ttl_s
        live, stalled = self.live, self._stalled(now)
        if live.opened and now >= live.deadline:
            self._lose("expired", f"not renewed within {self._ttl_s:g} s")
        elif live.opened and stalled:
            self._lose(
                "stalled", f"the event loop was blocked for {self._stall_limit_s:g} s (stall_limit)"
            )
        if self._task is not None and not self._task.done():
            return min(now + self._ttl_s / 3, self._deadline())
        if stalled:
            # A host whose loop does not turn runs nothing, and must not look alive.
            return now + self._ttl_s / 3
        if now >= self._due:
            self._due = now + self._ttl_s / 3 * self._runtime.random.uniform(0.9, 1.1)
            beat = self._beat(driver.hosts, self.live, now)
            self._task = self._runtime.spawn(beat, name="outlive-heartbeat")
        return min(self._due, self._deadline())

    async def stop(self) -> None:
        """End the heartbeat under way. The session itself is closed by who opened it."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    def _deadline(self) -> float:
        return self.live.deadline if self.live.opened else math.inf

    def _stalled(self, now: float) -> bool:
        watchdog = self._watchdog
        if watchdog is None:
            return False
        return watchdog.loop_closed or watchdog.stalled_s(now) >= self._stall_limit_s

    async def _beat(self, hosts: HostStore, live: LiveSession, sent_at: float) -> None:
        try:
            async with asyncio.timeout(self._ttl_s / 3):
                if live.opened:
                    await hosts.renew(live.id, self.session.ttl_us)
                else:
                    await self._end_forsaken(hosts)
                    sent_at = self._runtime.clock.monotonic()
                    await hosts.open(self.session)
        except LeaseLost as error:
            if live is self.live:
                self._lose(error.reason, str(error))
        except (OutliveError, TimeoutError) as error:
            # Try again soon; peers take over when the ttl has passed without success.
            self._due = sent_at + min(1.0, self._ttl_s / 10)
            self._failing = True
            said = str(error) or "no answer from the store in time"
            self._log.warning("heartbeat failed, will retry: %s", said)
        else:
            if self._failing:
                self._failing = False
                self._log.warning("heartbeats succeed again")
            if not live.opened:
                self._log.info("opened a new session", extra={"session": live.id})
            if live.accept(sent_at):
                if sent_at - self._renewed_at > self._ttl_s:
                    # A gap: the store was away, or the machine slept. Others were late as well.
                    self.healthy_since = sent_at
                self._renewed_at = sent_at

    async def _end_forsaken(self, hosts: HostStore) -> None:
        """Let others have the work of our lost sessions at once; we have stopped it already."""
        while self._forsaken:
            await hosts.close(self._forsaken[-1])
            self._forsaken.pop()
            self.handed_over += 1

    def _lose(self, reason: str, why: str) -> None:
        lost = self.live
        self._log.error(
            "this host lost its session: %s; other hosts take over its jobs and flows",
            why,
            extra={"session": lost.id, "reason": reason},
        )
        lost.lost = reason
        self._forsaken = [*self._forsaken[-_FORSAKEN_MAX + 1 :], lost.id]
        self.session = replace(self.session, id=HostId(self._runtime.new_id()))
        self.live = LiveSession(self.session.id, self._runtime.clock, self._safe_s)
        self._due = 0.0
        for listener in self._lost:
            listener(lost)
