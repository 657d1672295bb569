"""All that this host owns: the one place where a tenure is renewed, released, guarded or lost.

Called from the application's loop and from the keeper's. Owns the order of things: first the
local state says "not ours", then the store is told, then the user's functions hear of it.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from typing import Any

from outlive.errors import Fenced, LeaseLost, OutliveError, StoreError, UsageError
from outlive.leases.events import AtRisk, Handlers, LeaseEvent, Lost, Released, Renewed, RenewFailed
from outlive.leases.tenure import ALIVE, HELD, Tenure
from outlive.model.lease import Grant
from outlive.ports.lease_store import LeaseStore
from outlive.runtime.backoff import Backoff
from outlive.runtime.runtime import Runtime
from outlive.serialization import encode_json
from outlive.telemetry import Reading, Telemetry, bind_host, combine, events

# State is a cursor or a counter that goes with a key, not a document: it is rewritten by every
# renewal that carries it, and Azure blob metadata, the tightest place for it, holds 8 KiB in all.
STATE_BYTES_MAX = 4 * 1024

# A release that cannot be delivered is worth a few seconds of trying; after that the ttl does it.
RELEASE_TRIES_S = 5.0


class Ownership:
    """The tenures of one host, and what may be done with them."""

    def __init__(
        self,
        runtime: Runtime,
        store: LeaseStore,
        *,
        host: str,
        telemetry: Telemetry,
        log: logging.Logger | None = None,
    ) -> None:
        self.runtime = runtime
        self.host = host
        self.log = log or bind_host(host).logger("outlive.leases")
        # Also the guard: nothing a listener raises may come between a loss and its owner.
        self.telemetry = combine(telemetry, log=self.log)
        self.handlers = Handlers()
        self._store = store
        self._tenures: dict[str, Tenure] = {}
        self._later: set[asyncio.Task[Any]] = set()
        self._unwatch = self.telemetry.watch(self)

    def __len__(self) -> int:
        return len(self._tenures)

    def tenures(self) -> list[Tenure]:
        """What is owned now, as far as known."""
        return list(self._tenures.values())

    def find(self, owner: str | None) -> Tenure | None:
        """The tenure of ``owner``, if it is one of ours."""
        return None if owner is None else self._tenures.get(owner)

    def readings(self) -> Iterable[Reading]:
        """How many leases are held, and the seconds since the renewal longest ago among them.

        For gauges: safe from any thread. What a fork carried over is not held here.
        """
        pid = self.runtime.pid()
        asked = [tenure.asked_at for tenure in self.tenures() if tenure.pid == pid]
        now = self.runtime.clock.monotonic()
        age_s = max(0.0, now - min(asked)) if asked else 0.0
        return ((events.LEASES_HELD, len(asked), {}), (events.SINCE_RENEWAL, age_s, {}))

    def begin(self, tenure: Tenure) -> None:
        """Take a fresh grant into the books."""
        grant = tenure.grant
        self._tenures[grant.owner] = tenure
        if self.telemetry.tracing:
            self.telemetry.began(
                "outlive.lease.hold",
                grant.owner,
                host=self.host,
                key=grant.key,
                token=grant.token,
            )

    def is_held(self, tenure: Tenure) -> bool:
        """Whether the owner may act now. Finds a deadline that passed unnoticed."""
        if tenure.phase is not HELD:
            return False
        if tenure.pid != self.runtime.pid():
            key = tenure.grant.key
            tenure.lose(
                LeaseLost(
                    key, "forked", f"lease {key!r} belongs to the parent process of this fork"
                )
            )
            return False
        if self.runtime.clock.monotonic() >= tenure.deadline:
            self.lose(tenure, tenure.expired())
            return False
        return True

    def expires_at(self, tenure: Tenure) -> datetime:
        """When others may take the key if no renewal follows, by this machine's wall clock."""
        return self._by_wall(tenure.asked_at + tenure.plan.ttl_s)

    def acquired_at(self, tenure: Tenure) -> datetime:
        """When the grant was asked for, by this machine's wall clock; the same at each call."""
        if tenure.acquired_at is None:
            tenure.acquired_at = self._by_wall(tenure.granted_at)
        return tenure.acquired_at

    def _by_wall(self, monotonic_s: float) -> datetime:
        clock = self.runtime.clock
        return clock.now() + timedelta(seconds=monotonic_s - clock.monotonic())

    def why_not(self, tenure: Tenure) -> LeaseLost:
        """The error to raise for a tenure that is not held; a fresh one each time."""
        if tenure.error is not None:
            return copy.copy(tenure.error)
        key = tenure.grant.key
        return LeaseLost(key, "released", f"lease {key!r} was released by its owner")

    def lose(self, tenure: Tenure, error: LeaseLost) -> None:
        """Mark ``tenure`` lost and tell everybody who asked. Safe from any thread, final."""
        if not tenure.lose(error):
            return
        self._tenures.pop(tenure.grant.owner, None)
        self._tell_all(tenure, error)

    def _tell_all(self, tenure: Tenure, error: LeaseLost) -> None:
        self._measure_loss(tenure, error.reason)
        self.log.warning("%s", error, extra=self._fields(tenure, reason=error.reason))
        event = Lost(
            **self._identity(tenure),
            reason=error.reason,
            error=error,
            last_renewed_at=self._by_wall(tenure.asked_at),
        )
        self._post(tenure, self._tell_lost, tenure, event)

    def abandon(self, tenure: Tenure) -> None:
        """The handle was dropped without release: stop renewing, and say where it came from."""
        key = tenure.grant.key
        if tenure.pid != self.runtime.pid():
            return
        if tenure.lose(LeaseLost(key, "abandoned", f"the handle of lease {key!r} was dropped")):
            self._tenures.pop(tenure.grant.owner, None)
            self._measure_loss(tenure, "abandoned")
            filename, line = tenure.origin
            self.log.warning(
                "lease %r was dropped without release; it was acquired at %s:%d, expires in %g s",
                key,
                filename,
                line,
                tenure.plan.ttl_s,
                extra=self._fields(tenure, reason="abandoned"),
            )

    def tell(self, tenure: Tenure, kind: type[LeaseEvent], **fields: Any) -> None:
        """Deliver an event on the loop that acquired the lease, if anybody listens."""
        if tenure.handlers or self.handlers:
            event = kind(**self._identity(tenure), **fields)
            self._post(tenure, self._deliver, tenure, event)

    async def renew_now(self, tenure: Tenure, state: object = None) -> None:
        """Renew on the caller's own connection; see ``Lease.renew``."""
        text = None if state is None else encode_json(state, "state", limit=STATE_BYTES_MAX)
        if not self.telemetry.tracing:
            await self.renew(tenure, self._store, state=text)
            return
        with self.telemetry.span("outlive.lease.renew", **self._attributes(tenure)):
            await self.renew(tenure, self._store, state=text)

    async def renew(self, tenure: Tenure, store: LeaseStore, *, state: str | None = None) -> None:
        """Renew once, through ``store``.

        Raises:
            LeaseLost: It was lost, now or before.
            StoreError: No answer; nothing changed locally.
        """
        clock = self.runtime.clock
        asked_at = clock.monotonic()
        try:
            grant = await store.renew(tenure.grant, tenure.plan.ttl_us, state=state)
        except LeaseLost as error:
            if tenure.phase in ALIVE:
                self.lose(tenure, error)
            raise
        now = clock.monotonic()
        if not tenure.accept(grant, asked_at, now):
            if tenure.phase in ALIVE:
                # Too late: the owner has stopped believing. Give the key to others at once.
                self.lose(tenure, tenure.expired())
                self.later(self._release_quietly(store, grant))
            raise self.why_not(tenure)
        if self.telemetry.active:
            self.telemetry.record(events.LEASE_RENEW, now - asked_at)
        self.log.debug(
            "renewed lease %r", grant.key, extra={"key": grant.key, "token": grant.token}
        )
        self.tell(
            tenure,
            Renewed,
            version=grant.version,
            renewals=tenure.renewals,
            ttl_s=tenure.plan.ttl_s,
            expires_at=self.expires_at(tenure),
        )

    def renew_failed(self, tenure: Tenure, error: BaseException, *, will_retry: bool) -> None:
        """Book a failed renewal attempt."""
        self.telemetry.record(events.LEASE_RENEW_FAILURES)
        if self.telemetry.tracing:
            self.telemetry.noted(
                tenure.grant.owner,
                "renew_failed",
                attempt=tenure.attempt,
                error=str(error) or type(error).__name__,
            )
        self.log.warning(
            "renewal %d of lease %r failed: %s",
            tenure.attempt,
            tenure.grant.key,
            error or type(error).__name__,
            extra=self._fields(tenure, attempt=tenure.attempt),
        )
        self.tell(tenure, RenewFailed, attempt=tenure.attempt, error=error, will_retry=will_retry)

    def at_risk(self, tenure: Tenure, remaining_s: float) -> None:
        """Say that a lease is about to expire unless a renewal succeeds."""
        self.log.warning(
            "lease %r expires in %.1f s unless it is renewed",
            *(tenure.grant.key, remaining_s),
            extra=self._fields(tenure),
        )
        self.tell(tenure, AtRisk, remaining_s=remaining_s)

    def release(self, tenure: Tenure) -> Coroutine[Any, Any, None]:
        """Release; see ``Lease.release``."""
        # Not a coroutine function itself: without tracing, one layer less on the hot path.
        return self._traced_release(tenure) if self.telemetry.tracing else self._release(tenure)

    async def _traced_release(self, tenure: Tenure) -> None:
        with self.telemetry.span("outlive.lease.release", **self._attributes(tenure)):
            await self._release(tenure)

    async def _release(self, tenure: Tenure) -> None:
        if tenure.pid != self.runtime.pid():
            return
        if self.runtime.clock.monotonic() >= tenure.deadline:
            self.lose(tenure, tenure.expired())
            return
        if not tenure.finish():
            return
        self._tenures.pop(tenure.grant.owner, None)
        if self.telemetry.active:
            # Counted when given up, not when delivered: a caller that is cancelled in between
            # has released as well.
            self.telemetry.record(events.LEASE_RELEASES)
            if self.telemetry.tracing:
                self.telemetry.ended(tenure.grant.owner, "released", error=False)
        try:
            await self._store.release(tenure.grant)
        except asyncio.CancelledError:
            # The caller goes, the release does not: it goes on by itself, with its own deadline.
            self.later(self._release_quietly(self._store, tenure.grant))
            raise
        except UsageError:
            # Called where it cannot wait (inside one's own write transaction): it follows later.
            self.later(self._release_quietly(self._store, tenure.grant))
            raise
        except Fenced as error:
            # It had been lost before, unnoticed: whoever relied on it must hear of it.
            tenure.lost_at_release(error)
            self._tell_all(tenure, error)
            return
        except StoreError:
            await self._release_again(self._store, tenure.grant)
        grant = tenure.grant
        self.log.debug(
            "released lease %r", grant.key, extra={"key": grant.key, "token": grant.token}
        )
        self.tell(tenure, Released)

    async def release_or_later(self, tenure: Tenure) -> None:
        """Release; if the store does not answer, the log says so and the ttl ends it."""
        try:
            await self.release(tenure)
        except StoreError as error:
            self.log.warning(
                "could not release lease %r: %s; it expires by its ttl",
                tenure.grant.key,
                error,
                extra=self._fields(tenure),
            )

    async def guard(self, tenure: Tenure, tx: object) -> None:
        """Guard; see ``Lease.guard``."""
        try:
            await self._store.guard(tenure.grant, tx)
        except LeaseLost as error:
            self.lose(tenure, error)
            raise

    async def close(self, closer: object) -> None:
        """Release all that is owned and wait for what goes on by itself. Repeatable."""
        await asyncio.gather(*(self._give_back(tenure, closer) for tenure in self.tenures()))
        here = asyncio.get_running_loop()
        while mine := [task for task in list(self._later) if task.get_loop() is here]:
            await asyncio.wait(mine)
        self._unwatch()

    async def _give_back(self, tenure: Tenure, closer: object) -> None:
        """Release at close. What runs under the lease is cancelled and awaited first."""
        try:
            # One who closes from inside the block has nobody else to wait for.
            if tenure.block is None or tenure.caller is closer:
                await self.release(tenure)
                return
            key, grant = tenure.grant.key, tenure.grant
            self.lose(
                tenure,
                LeaseLost(key, "closed", f"lease {key!r} ended because its connection was closed"),
            )
            left_s = tenure.deadline - self.runtime.clock.monotonic()
            await asyncio.wait([tenure.block], timeout=max(0.0, left_s))
            if tenure.block.done():
                await self._release_again(self._store, grant)
        except StoreError as error:
            self.log.warning(
                "could not release lease %r at close: %s; it expires by its ttl",
                tenure.grant.key,
                error,
                extra=self._fields(tenure),
            )

    def later(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run something to its end beside the caller, on its loop; ``close`` waits for it."""
        task = self.runtime.spawn(coroutine, name="outlive-lease-cleanup")
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _release_quietly(self, store: LeaseStore, grant: Grant) -> None:
        try:
            await self._release_again(store, grant)
        except OutliveError as error:
            self.log.warning(
                "could not release lease %r: %s; it expires by its ttl",
                grant.key,
                error,
                extra={"key": grant.key},
            )

    async def _release_again(self, store: LeaseStore, grant: Grant) -> None:
        clock = self.runtime.clock
        until = clock.monotonic() + min(RELEASE_TRIES_S, grant.ttl_us / 1e6)
        backoff = Backoff(0.05, 0.5, self.runtime.random)
        while True:
            try:
                await store.release(grant)
            except Fenced:
                # An earlier try whose reply was lost did it, or the lease was taken over.
                return
            except StoreError:
                pause_s = backoff.next_s()
                if clock.monotonic() + pause_s >= until:
                    raise
                await clock.sleep(pause_s)
            else:
                return

    def _tell_lost(self, tenure: Tenure, event: Lost) -> None:
        for callback in tenure.lost_callbacks or ():
            callback(event.error)
        self._deliver(tenure, event)

    def _deliver(self, tenure: Tenure, event: LeaseEvent) -> None:
        if tenure.handlers is not None:
            tenure.handlers.deliver(event)
        self.handlers.deliver(event)

    def _post(self, tenure: Tenure, function: Callable[..., None], *args: object) -> None:
        try:
            tenure.loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The loop has closed: nobody is left to hear of it.
            self.log.debug(
                "dropped an event of lease %r: its event loop is closed", tenure.grant.key
            )

    def _identity(self, tenure: Tenure) -> dict[str, Any]:
        grant = tenure.grant
        return {
            "key": grant.key,
            "id": grant.owner.rpartition("/")[2],
            "lease": None if tenure.handle is None else tenure.handle(),
            "token": grant.token,
            "owner": grant.owner,
            "at": self.runtime.clock.now(),
        }

    def _fields(self, tenure: Tenure, **more: object) -> dict[str, object]:
        return {**self._attributes(tenure), **more}

    def _attributes(self, tenure: Tenure) -> dict[str, str | int]:
        grant = tenure.grant
        return {"host": self.host, "key": grant.key, "token": grant.token}

    def _measure_loss(self, tenure: Tenure, reason: str) -> None:
        self.telemetry.record(events.LEASE_LOSSES, reason=reason)
        if self.telemetry.tracing:
            self.telemetry.ended(tenure.grant.owner, reason, error=True)
