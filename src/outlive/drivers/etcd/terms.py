"""Leases of etcd for grants and places: given out, taken back, used again.

Owns those that nothing hangs on. One that a release left free is kept alive and used for the next
grant of the same ttl, which saves etcd two writes. Only a lease that is known to be free is ever
used again; whatever is in doubt is left to run out.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from outlive.drivers.etcd.connections import Connections
from outlive.drivers.etcd.operations import Term
from outlive.errors import OutliveError
from outlive.ports.driver import DriverContext

# Idle leases per ttl. A burst of releases larger than this is revoked, because idle leases cost
# the server memory.
_IDLE_MAX = 64

# Revocations under way at once. Beyond it a lease is left to run out by itself.
_REVOKING_MAX = 64

# How many leases a driver remembers to be alive; a forgotten one is not used again.
_KNOWN_MAX = 10_000

# etcd's ttl is a 64-bit number of seconds, but it refuses more than this.
TTL_MAX_S = 9_000_000_000


class Terms:
    """The leases of etcd of one driver."""

    def __init__(self, connections: Connections, context: DriverContext) -> None:
        self._connections = connections
        self._context = context
        # The shortest ttl that the server gives, as far as it is known.
        self._least_s = 1
        self._idle: dict[int, list[Term]] = {}
        # Until when each is surely alive, by this machine's clock.
        self._alive_until: OrderedDict[int, float] = OrderedDict()
        self._revoking: set[asyncio.Task[None]] = set()

    def seconds(self, duration_us: int) -> int:
        """The ttl to ask for: whole seconds, never shorter than asked, nor than is given."""
        return min(TTL_MAX_S, max(self._least_s, -(-duration_us // 1_000_000)))

    async def fresh(self, ttl_s: int) -> Term:
        """A new one. Its ttl is what the server gave, which may be more."""
        asked_at = self._context.clock.monotonic()
        term = await self._connections.grant(ttl_s)
        if term.ttl_s > ttl_s:
            self._least_s = max(self._least_s, term.ttl_s)
        self._note(term, asked_at)
        return term

    def idle(self, ttl_s: int) -> Term | None:
        """One that is free, if there is one; it must be kept alive before it is believed in.

        Only one with half its ttl left, so that the keep-alive surely finds it.
        """
        idle, now = self._idle.get(ttl_s), self._context.clock.monotonic()
        while idle:
            term = idle.pop()
            if self._alive_until.get(term.id, 0.0) > now + term.ttl_s / 2:
                return term
        self._idle.pop(ttl_s, None)
        return None

    async def keep_alive(self, term: Term) -> bool:
        """Count its ttl anew; false when it is gone."""
        asked_at = self._context.clock.monotonic()
        ttl_s = await self._connections.keep_alive(term.id)
        if ttl_s <= 0:
            self._alive_until.pop(term.id, None)
            return False
        self._note(term, asked_at)
        return True

    def give_back(self, term: Term) -> None:
        """Take back one that nothing hangs on."""
        idle = self._idle.setdefault(term.ttl_s, [])
        known = self._alive_until.get(term.id, 0.0) > self._context.clock.monotonic()
        if known and len(idle) < _IDLE_MAX:
            idle.append(term)
        else:
            self.revoke(term.id)

    def revoke(self, lease: int) -> None:
        """End one in the background, with whatever still hangs on it. It may fail: it runs out.

        0 is what etcd shows for a key that hangs on none.
        """
        if not lease:
            return
        self._alive_until.pop(lease, None)
        if len(self._revoking) < _REVOKING_MAX:
            task = asyncio.get_running_loop().create_task(self._revoke(lease))
            self._revoking.add(task)
            task.add_done_callback(self._revoking.discard)

    async def _revoke(self, lease: int) -> None:
        try:
            await self._connections.call(lambda wire: wire.revoke(lease), write=False)
        except OutliveError as error:
            self._context.logger.debug("a lease of etcd was not revoked and runs out: %s", error)

    def _note(self, term: Term, asked_at: float) -> None:
        self._alive_until[term.id] = asked_at + term.ttl_s
        self._alive_until.move_to_end(term.id)
        if len(self._alive_until) > _KNOWN_MAX:
            self._alive_until.popitem(last=False)

    async def close(self) -> None:
        """Stop revoking. Repeatable; what is left runs out."""
        for task in tuple(self._revoking):
            task.cancel()
        await asyncio.gather(*self._revoking, return_exceptions=True)
