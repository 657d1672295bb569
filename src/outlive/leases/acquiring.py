"""Acquiring: from a request to a grant, through refusals, queues, lost replies and cancellation.

Whatever ends an attempt (a time-out, a cancellation, an error), nothing stays behind: the place in
the queue is given up, and a grant that raced the end is released.
"""

from __future__ import annotations

import asyncio

import msgspec
from msgspec.structs import replace

from outlive.errors import (
    AcquireTimeout,
    AlreadyOwned,
    Fenced,
    LeaseHeld,
    OutcomeUnknown,
    OutliveError,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from outlive.leases.ownership import Ownership
from outlive.leases.tenure import caller_now
from outlive.leases.waiting import Waiters
from outlive.model.lease import AcquireRequest, Grant, Held
from outlive.model.options import LeasePlan
from outlive.model.turns import WAITER_TTL_US
from outlive.names import WaiterId
from outlive.ports.lease_store import LeaseStore
from outlive.runtime.backoff import Backoff
from outlive.telemetry import events

# A try that lost its reply asks again this often before it gives the answer "unknown".
SETTLE_TRIES = 4

# A place in the queue is refreshed three times in its life.
REFRESH_S = WAITER_TTL_US / 3e6

# When wake-ups are known not to arrive, waiters ask this often, unless they were told to ask less.
DEAF_POLL_S = 1.0

# Added to the moment an answer could change, so that the store's clock has surely passed it.
_JUST_AFTER_S = 0.002


class TooSlow(StoreUnavailable):
    """A grant whose reply always came too late to be believed. It is given back."""


class Acquired(msgspec.Struct, gc=False):
    """A grant, and when the request that won it was sent."""

    grant: Grant
    asked_at: float


class Acquirer:
    """Sends acquire requests of one host and settles what becomes of them."""

    def __init__(self, store: LeaseStore, ownership: Ownership, waiters: Waiters) -> None:
        self.store = store
        self.ownership = ownership
        self.runtime = ownership.runtime
        self.waiters = waiters
        self.closed = False
        # How many attempts are at the store now; closing waits for them.
        self.under_way = 0

    async def attempt(
        self, request: AcquireRequest, plan: LeasePlan, *, once: bool = False
    ) -> Acquired | Held:
        """Ask once. A reply that was lost or came too late is asked for again, by the same owner.

        An error other than a plain ``StoreUnavailable``, and a cancellation, leave it open whether
        there is a grant: the caller asks again under the same owner, or withdraws. For one who
        asks ``once`` and for all, whatever is left open is undone.

        Raises:
            StoreUnavailable: Nothing was applied.
            TooSlow: Granted, but every reply came after the deadline it was to bring.
            OutcomeUnknown: Still no reply.
        """
        clock = self.runtime.clock
        self.under_way += 1
        try:
            asked_at = clock.monotonic()
            try:
                result = await self.store.acquire(request)
            except OutcomeUnknown:
                return await self._ask_again(request, plan)
            if isinstance(result, Held):
                return result
            if clock.monotonic() >= asked_at + plan.safe_s:
                # The owner must not even begin to believe in it.
                return await self._ask_again(request, plan)
            return Acquired(result, asked_at)
        except (asyncio.CancelledError, OutcomeUnknown, TooSlow):
            if once:
                self.ownership.later(self.withdraw(request))
            raise
        finally:
            self.under_way -= 1

    async def _ask_again(self, request: AcquireRequest, plan: LeasePlan) -> Acquired | Held:
        clock = self.runtime.clock
        backoff = Backoff(0.02, 0.5, self.runtime.random)
        for left in range(SETTLE_TRIES, 0, -1):
            await clock.sleep(backoff.next_s())
            asked_at = clock.monotonic()
            try:
                result = await self.store.acquire(request)
            except (OutcomeUnknown, StoreUnavailable) as error:
                if left == 1:
                    raise OutcomeUnknown(
                        f"lease {request.key!r} may or may not have been acquired: the reply was "
                        f"lost; if acquired, it expires within {request.ttl_us / 1e6:g} s"
                    ) from error
            else:
                if isinstance(result, Held):
                    return result
                if clock.monotonic() < asked_at + plan.safe_s:
                    return Acquired(result, asked_at)
        raise TooSlow(
            f"could not acquire lease {request.key!r}: the store answers too slowly for a ttl of "
            f"{plan.ttl_s:g} s; use a longer ttl, or check the store"
        )

    async def wait_for(
        self, request: AcquireRequest, plan: LeasePlan, timeout_s: float | None
    ) -> Acquired:
        """Ask until granted, in the queue of the key where the backend keeps one.

        Raises:
            AcquireTimeout: Not within ``timeout_s``.
            LeaseHeld: ``timeout_s`` is zero and somebody owns the key.
            AlreadyOwned: The task that asks owns the key itself.
            StoreError: The store could not be asked within ``timeout_s``.
        """
        if timeout_s is not None and timeout_s <= 0:
            result = await self.attempt(request, plan, once=True)
            if isinstance(result, Held):
                self.ownership.telemetry.record(events.LEASE_CONFLICTS)
                self.refuse_reentry(request, result)
                self.refuse_mismatch(request, result)
                raise LeaseHeld(request.key, result.owner)
            return result
        waiting = _Waiting(self, request, plan)
        if timeout_s is None:
            return await waiting.run()
        try:
            async with asyncio.timeout(timeout_s):
                return await waiting.run()
        except TimeoutError:
            if waiting.error is not None:
                raise waiting.error from None
            raise AcquireTimeout(request.key, waiting.owner, timeout_s) from None

    def refuse_reentry(self, request: AcquireRequest, held: Held) -> None:
        """Refuse to wait for oneself: the task that asks owns the key already."""
        tenure = self.ownership.find(held.owner)
        if request.limit == 1 and tenure is not None and tenure.caller is caller_now():
            raise AlreadyOwned(request.key, held.owner)

    def refuse_mismatch(self, request: AcquireRequest, held: Held) -> None:
        """Refuse to wait where two programs disagree about the number of slots."""
        if held.limit != request.limit:
            raise UsageError(
                f"key {request.key!r} has limit {held.limit} in the store, not {request.limit}: "
                "all users of a semaphore must give the same limit"
            )

    async def withdraw(self, request: AcquireRequest) -> None:
        """Undo an attempt whose end is open; nobody may ask under its owner any more.

        Asking again under the same owner tells what became of it: the same grant if there was
        one. It goes through the same queue to the store, so it cannot overtake the attempt.
        """
        plain = replace(request, waiter=None, queue_us=0, resume=False)
        backoff = Backoff(0.02, 0.5, self.runtime.random)
        for _ in range(SETTLE_TRIES):
            try:
                if await self._undone(plain):
                    break
            except OutliveError as error:
                self.ownership.log.debug(
                    "could not withdraw from lease %r: %s; it expires by its ttl",
                    request.key,
                    error,
                )
            await self.runtime.clock.sleep(backoff.next_s())
        if request.queue_us:
            await self.leave(request)

    async def leave(self, request: AcquireRequest) -> None:
        """Give up the place of ``request`` in the queue; what fails here, the place's ttl does."""
        place = request.waiter or WaiterId(0)
        try:
            await self.store.leave(request.key, place, request.owner)
        except OutliveError as error:
            self.ownership.log.debug(
                "could not leave the queue of lease %r: %s", request.key, error
            )

    async def _undone(self, plain: AcquireRequest) -> bool:
        """Whether nothing is held under this owner; a key that is free but locked is still open."""
        result = await self.store.acquire(plain)
        if isinstance(result, Held):
            return result.owner is not None
        try:
            await self.store.release(result)
        except Fenced:
            # Ended by others meanwhile.
            return True
        return True


class _Waiting:
    """One wait for one key."""

    def __init__(self, acquirer: Acquirer, request: AcquireRequest, plan: LeasePlan) -> None:
        self._acquirer = acquirer
        self._request = replace(request, queue_us=WAITER_TTL_US)
        self._plan = plan
        self._refused = False
        # Whether the last attempt left it open if there is a grant.
        self._open = False
        self.owner: str | None = None
        self.error: StoreError | None = None

    async def run(self) -> Acquired:
        acquirer, asked_at = self._acquirer, self._acquirer.runtime.clock.monotonic()
        poll: Backoff | None = None
        acquirer.waiters.listen()
        try:
            while True:
                result = await self._ask()
                if isinstance(result, Acquired):
                    self._forget()
                    if self._refused:
                        acquirer.ownership.log.info(
                            "acquired lease %r after %.1f s; it was owned by %s",
                            self._request.key,
                            acquirer.runtime.clock.monotonic() - asked_at,
                            self.owner or "earlier waiters",
                            extra={"key": self._request.key, "token": result.grant.token},
                        )
                    return result
                if poll is None:
                    rng = acquirer.runtime.random
                    poll = Backoff(self._plan.poll_first_s, self._plan.poll_most_s, rng)
                pause_s = poll.next_s()
                if result is None:
                    await acquirer.runtime.clock.sleep(pause_s)
                    continue
                await self._sleep(result, pause_s)
        except BaseException:
            self._leave()
            raise

    async def _ask(self) -> Acquired | Held | None:
        acquirer, request = self._acquirer, self._request
        was_open = self._open
        if acquirer.closed:
            raise UsageError(
                f"the connection was closed while a caller waited for lease {request.key!r}"
            )
        try:
            self._open = True
            result = await acquirer.attempt(request, self._plan)
        except StoreError as error:
            # The wait goes on under the same owner, so a grant that is still open is found again.
            self._open = not (type(error) is StoreUnavailable and not was_open)
            if self.error is None:
                acquirer.ownership.log.warning(
                    "could not acquire lease %r, will retry: %s",
                    request.key,
                    error,
                    extra={"key": request.key},
                )
            self.error = error
            return None
        self.error = None
        self._open = False
        if isinstance(result, Held):
            self._note(result)
        return result

    def _note(self, held: Held) -> None:
        acquirer, request = self._acquirer, self._request
        self.owner = held.owner
        if not self._refused:
            self._refused = True
            acquirer.ownership.telemetry.record(events.LEASE_CONFLICTS)
        # The place first: whatever ends the wait, it is given up.
        if held.waiter is not None and held.waiter != request.waiter:
            self._forget()
            acquirer.waiters.expect(held.waiter)
            self._request = replace(request, waiter=held.waiter)
        acquirer.refuse_reentry(request, held)
        acquirer.refuse_mismatch(request, held)

    async def _sleep(self, held: Held, pause_s: float) -> None:
        waiters = self._acquirer.waiters
        pause_s = min(pause_s, REFRESH_S, max(held.retry_in_s, 0.0) + _JUST_AFTER_S)
        if waiters.deaf:
            # Each attempt may cost money: who sets acquire_retry longer is not hurried.
            pause_s = min(pause_s, max(DEAF_POLL_S, self._plan.poll_first_s))
        place = self._request.waiter
        if place is None:
            await self._acquirer.runtime.clock.sleep(pause_s)
        else:
            await waiters.wait(place, pause_s)

    def _forget(self) -> None:
        if self._request.waiter is not None:
            self._acquirer.waiters.forget(self._request.waiter)

    def _leave(self) -> None:
        request, acquirer = self._request, self._acquirer
        self._forget()
        if self._open:
            acquirer.ownership.later(acquirer.withdraw(request))
        elif request.waiter is not None:
            acquirer.ownership.later(acquirer.leave(request))
