"""``host.leases``: acquire, hold, look, break. The public face of the feature."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

from outlive.errors import LeaseHeld, LeaseLost, OutliveError, UnsupportedByDriver, UsageError
from outlive.leases.acquiring import Acquired, Acquirer
from outlive.leases.election import Election
from outlive.leases.events import E, Handler, Lost
from outlive.leases.every import Periodic, Ticker
from outlive.leases.holding import Hold, acquiring
from outlive.leases.info import LeaseInfo, info_of
from outlive.leases.lease import Lease
from outlive.leases.ownership import Ownership
from outlive.leases.renewing import Renewals
from outlive.leases.requesting import Requests
from outlive.leases.tenure import Tenure
from outlive.leases.waiting import Waiters
from outlive.model.lease import LIST_LIMIT_MAX, AcquireRequest, Held, Tenancy
from outlive.model.options import Duration, LeasePlan, seconds
from outlive.names import check_key, check_reason
from outlive.ports.driver import Driver
from outlive.runtime.runtime import caller_line
from outlive.telemetry import events

# More keys than this in one block is a design to rethink: the last waits while all others are held.
KEYS_MAX = 100

# How often closing looks whether the last attempt has ended.
_CLOSING_LOOK_S = 0.005

T = TypeVar("T")


def _outcome(error: BaseException) -> str:
    if isinstance(error, LeaseHeld):
        return "held"
    if isinstance(error, TimeoutError):
        return "timeout"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "error"


def _check_page(limit: int) -> None:
    if type(limit) is not int or not 1 <= limit <= LIST_LIMIT_MAX:
        raise UsageError(f"limit must be a whole number from 1 to {LIST_LIMIT_MAX}, not {limit!r}")


class Leases:
    """The leases of one connected host.

    Made by ``outlive.connect``. Safe to use from many tasks of one event loop.
    """

    def __init__(
        self,
        driver: Driver,
        ownership: Ownership,
        renewals: Renewals,
        requests: Requests,
    ) -> None:
        # All of one loop. Asking for the running one costs a system call on Python 3.11.
        self._loop = asyncio.get_running_loop()
        self._store = driver.leases
        self._capabilities = driver.capabilities
        self._ownership = ownership
        self._renewals = renewals
        self._waiters = Waiters(driver.wakeups)
        self._acquirer = Acquirer(self._store, ownership, self._waiters)
        self._runtime = ownership.runtime
        self._telemetry = ownership.telemetry
        self._requests = requests
        self.options = requests.options

    async def try_acquire(
        self,
        key: str,
        *,
        ttl: Duration | None = None,
        metadata: Mapping[str, Any] | None = None,
        limit: int = 1,
        resume: bool = False,
        **options: Any,
    ) -> Lease | None:
        """Own ``key`` now, or return ``None`` because somebody else does (or waits before us).

        The lease renews itself until released. ``limit`` above 1 makes the key a semaphore.
        ``resume`` takes the key over at once from an earlier incarnation of the same host name,
        with a greater token; the caller vouches that the name is used once.

        Raises:
            InvalidName, UsageError: The arguments are wrong; nothing was sent.
            StoreUnavailable: The store did not take the request; nothing is held.
            OutcomeUnknown: No reply came; what was granted, if it was, ends by its ttl.
        """
        if "timeout" in options:
            raise UsageError("try_acquire never waits; use acquire(key, timeout=…)")
        plan = self._requests.plan(ttl, options)
        request = self._requests.request(key, plan, metadata, limit=limit, resume=resume)
        origin = caller_line(2)
        trying = self._acquirer.attempt(request, plan, once=True)
        result = await (self._measured(trying, request) if self._telemetry.active else trying)
        if isinstance(result, Held):
            self._telemetry.record(events.LEASE_CONFLICTS)
            return None
        return self._own(result, plan, request, origin)

    @acquiring
    async def acquire(
        self,
        key: str,
        *,
        timeout: Duration | None = None,
        ttl: Duration | None = None,
        metadata: Mapping[str, Any] | None = None,
        limit: int = 1,
        resume: bool = False,
        **options: Any,
    ) -> Lease:
        """Own ``key``, waiting for it in order of arrival where the backend keeps a queue.

        ``timeout`` of ``None`` waits as long as the options say, by default for ever; zero asks
        once. While the store is away, a wait goes on and the log says so.

        Raises:
            AcquireTimeout: Not within ``timeout``; carries the owner.
            LeaseHeld: ``timeout`` is zero and somebody owns the key; carries the owner.
            AlreadyOwned: This very task owns the key; leases are not reentrant.
            InvalidName, UsageError: The arguments are wrong; nothing was sent.
            StoreError: The store could not be asked within ``timeout``.
        """
        plan = self._requests.plan(ttl, options)
        wait = self.options.timeout if timeout is None else timeout
        timeout_s = None if wait is None else seconds(wait, "timeout")
        request = self._requests.request(key, plan, metadata, limit=limit, resume=resume)
        origin = caller_line(2)
        waiting = self._acquirer.wait_for(request, plan, timeout_s)
        result = await (self._measured(waiting, request) if self._telemetry.active else waiting)
        return self._own(result, plan, request, origin)

    def hold(
        self,
        key: str,
        *,
        timeout: Duration | None = None,
        ttl: Duration | None = None,
        metadata: Mapping[str, Any] | None = None,
        limit: int = 1,
        resume: bool = False,
        **options: Any,
    ) -> Hold[Lease]:
        """Own ``key`` for a block: ``async with leases.hold(key) as lease``.

        The block is cancelled when the lease is lost and ends with ``LeaseLost``; it raises
        ``LeaseLost`` too when the loss came while the block was ending. Released at the end.
        Raises what ``acquire`` raises.
        """

        def acquire() -> Awaitable[Lease]:
            return self.acquire(
                key,
                timeout=timeout,
                ttl=ttl,
                metadata=metadata,
                limit=limit,
                resume=resume,
                **options,
            )

        return Hold(acquire, self._ownership)

    def semaphore(self, key: str, *, limit: int, **options: Any) -> Hold[Lease]:
        """Own one of ``limit`` slots for a block: ``async with leases.semaphore("gpu", limit=4)``.

        All users of a key must name the same limit. Otherwise as ``hold``.
        """
        return self.hold(key, limit=limit, **options)

    @acquiring
    async def acquire_all(
        self,
        keys: Iterable[str],
        *,
        timeout: Duration | None = None,
        **options: Any,
    ) -> list[Lease]:
        """Own all of ``keys`` or none.

        They are acquired in sorted order, so that two callers with overlapping keys never wait
        for each other in a circle.
        ``timeout`` is for all of them together. Raises what ``acquire`` raises, with nothing held.
        """
        wait = self.options.timeout if timeout is None else timeout
        deadline = None
        clock = self._runtime.clock
        if wait is not None:
            deadline = clock.monotonic() + seconds(wait, "timeout")
        leases: list[Lease] = []
        origin = caller_line(2)
        try:
            for key in self._sorted(keys):
                left = None if deadline is None else max(0.0, deadline - clock.monotonic())
                leases.append(await self.acquire(key, timeout=left, **options))
                leases[-1].tenure.origin = origin
        except asyncio.CancelledError:
            for lease in reversed(leases):
                self._ownership.later(self._ownership.release_or_later(lease.tenure))
            raise
        except OutliveError:
            for lease in reversed(leases):
                await self._ownership.release_or_later(lease.tenure)
            raise
        return leases

    def hold_all(self, keys: Iterable[str], **options: Any) -> Hold[list[Lease]]:
        """Own all of ``keys`` for a block: ``async with leases.hold_all(keys) as owned``."""
        wanted = self._sorted(keys)

        def acquire() -> Awaitable[list[Lease]]:
            return self.acquire_all(wanted, **options)

        return Hold(acquire, self._ownership)

    async def get(self, key: str) -> LeaseInfo | None:
        """What the store knows of ``key``, or ``None`` if it was never granted.

        Of a semaphore it is the slot with the newest token; ``list`` shows all.
        """
        records = await self._store.get(check_key(key))
        if not records:
            return None
        return info_of(max(records, key=lambda record: (record.active, record.token)))

    async def list(
        self,
        *,
        prefix: str = "",
        owner: str | None = None,
        active: bool = True,
        after: str | None = None,
        limit: int = 100,
    ) -> list[LeaseInfo]:
        """A page of leases in key order; pass the last key as ``after`` for the next page.

        ``owner`` is a whole owner or a host name. ``active=False`` shows free keys too.

        Raises:
            UsageError: ``limit`` is not between 1 and 1,000.
        """
        _check_page(limit)
        for text in (prefix, owner, after):
            if text:
                check_key(text)
        records = await self._store.list(
            prefix=prefix, owner=owner, active=active, after=after, limit=limit
        )
        return [info_of(record) for record in records]

    async def history(self, key: str, *, limit: int = 100) -> list[Tenancy]:
        """Who owned ``key``, newest first: token, from, to, and why it ended."""
        _check_page(limit)
        return [*await self._store.history(check_key(key), limit=limit)]

    async def raw(self, key: str) -> list[dict[str, Any]]:
        """The stored records of ``key`` exactly as the backend holds them, for people who debug.

        One mapping per slot; names and values are the backend's own and follow the schema of its
        driver, so build nothing on them. Empty if the key was never granted.
        """
        return [dict(record) for record in await self._store.raw(check_key(key))]

    async def break_lease(self, key: str, *, reason: str) -> list[LeaseInfo]:
        """End the lease of ``key``, whoever owns it; the owner's writes are fenced from now on.

        Returns what was ended, and keeps ``reason`` in the history.

        Raises:
            LeaseNotFound: The key was never granted.
            UsageError: The reason is empty or longer than 500 characters.
        """
        check_reason(reason)
        records = await self._store.break_lease(check_key(key), reason=reason)
        for each in records:
            self._ownership.log.info(
                "broke lease %r of %s: %s",
                *(key, each.owner, reason),
                extra={"key": key, "token": each.token},
            )
        return [info_of(record) for record in records]

    @overload
    def on(
        self, event: type[LeaseLost], handler: Callable[[Lost], Awaitable[None] | None]
    ) -> Callable[[], None]: ...
    @overload
    def on(
        self, event: type[E], handler: Callable[[E], Awaitable[None] | None]
    ) -> Callable[[], None]: ...
    def on(self, event: type[Any], handler: Handler) -> Callable[[], None]:
        """Call ``handler`` for each event of that type of every lease of this host.

        Returns the function that ends it.

        Raises:
            UsageError: The type is no lease event.
        """
        return self._ownership.handlers.add(event, handler)

    async def lead(
        self,
        key: str,
        body: Callable[[Lease], Awaitable[None]],
        *,
        ttl: Duration | None = None,
        **options: Any,
    ) -> None:
        """Campaign for ``key`` and run ``body(lease)`` while leading, until cancelled.

        ``body`` is cancelled when leadership is lost; returning from it resigns. Cancelling this
        steps down in order: ``body`` ends first, then the key is free.

        Raises:
            UsageError: The arguments are wrong.
        """
        self._requests.plan(ttl, options)

        def acquire() -> Awaitable[Lease]:
            return self.acquire(key, ttl=ttl, **options)

        election = Election(
            acquire, check_key(key), body, runtime=self._runtime, log=self._ownership.log
        )
        await election.run()

    async def every(
        self,
        interval: Duration,
        function: Periodic,
        *,
        key: str,
        ttl: Duration | None = None,
        **options: Any,
    ) -> None:
        """Run ``function`` each ``interval`` on one host of the fleet, until cancelled.

        At most once per tick in the whole fleet; missed ticks are logged, and told to a function
        that takes a ``Tick``. The lease behind it is named ``every/<key>``.

        Raises:
            UsageError: The arguments are wrong.
        """
        ticker = Ticker(
            function,
            seconds(interval, "interval"),
            runtime=self._runtime,
            log=self._ownership.log,
        )
        await self.lead(f"every/{check_key(key)}", ticker.run, ttl=ttl, **options)

    @property
    def owned(self) -> int:
        """How many leases this host owns now."""
        return len(self._ownership)

    async def close(self, closer: object = None) -> None:
        """Release all leases and stop waiting. Repeatable.

        What runs under a lease is cancelled and awaited first, except where ``closer``, who asked
        for this, runs there itself.
        """
        self._requests.closed = True
        self._acquirer.closed = True
        self._waiters.close()
        while self._acquirer.under_way:
            # Each ends by itself, with an answer or with the driver's own time limit.
            await self._runtime.clock.sleep(_CLOSING_LOOK_S)
        await self._ownership.close(closer)

    def _sorted(self, keys: Iterable[str]) -> list[str]:
        if isinstance(keys, str):
            raise UsageError("acquire_all takes an iterable of keys, not one string")
        wanted = sorted({check_key(key) for key in keys})
        if not 1 <= len(wanted) <= KEYS_MAX:
            raise UsageError(f"acquire_all takes 1 to {KEYS_MAX} keys, not {len(wanted)}")
        if not self._capabilities.multi_key and len(wanted) > 1:
            raise UnsupportedByDriver(
                f"{self._capabilities.backend} does not support acquire_all of several keys"
            )
        return wanted

    async def _measured(self, waiting: Awaitable[T], request: AcquireRequest) -> T:
        telemetry, clock = self._telemetry, self._runtime.clock
        name, outcome = "outlive.lease.acquire", "error"
        started = clock.monotonic()
        with telemetry.span(name, host=self._ownership.host, key=request.key) as span:
            try:
                result = await waiting
                outcome = "held" if isinstance(result, Held) else "granted"
            except BaseException as error:
                outcome = _outcome(error)
                raise
            finally:
                telemetry.record(events.LEASE_ACQUISITIONS, outcome=outcome)
                telemetry.record(events.LEASE_ACQUIRE, clock.monotonic() - started, outcome=outcome)
                span.set(outcome=outcome)
            if isinstance(result, Acquired):
                span.set(token=result.grant.token)
                if result.grant.previous_owner is not None:
                    telemetry.record(events.LEASE_TAKEOVERS)
        return result

    def _own(
        self,
        acquired: Acquired,
        plan: LeasePlan,
        request: AcquireRequest,
        origin: tuple[str, int],
    ) -> Lease:
        tenure = Tenure.of(
            acquired.grant,
            plan,
            asked_at=acquired.asked_at,
            loop=self._loop,
            pid=self._runtime.pid(),
            origin=origin,
        )
        if self._requests.closed:
            # Granted while the connection was being closed: nobody would keep it alive.
            self._ownership.later(self._ownership.release_or_later(tenure))
            raise UsageError("this connection was closed; connect again")
        self._ownership.begin(tenure)
        self._renewals.watch(tenure)
        grant, log = acquired.grant, self._ownership.log
        if grant.previous_owner is not None:
            log.info(
                "lease %r was taken over from %s, which %s",
                *(grant.key, grant.previous_owner),
                "this host resumes" if request.resume else "did not renew it in time",
                extra={"key": grant.key, "token": grant.token},
            )
        else:
            log.debug(
                "acquired lease %r", grant.key, extra={"key": grant.key, "token": grant.token}
            )
        return Lease(tenure, self._ownership, request.metadata)
