"""Leases without ``await``; see ``outlive.blocking``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, Self, overload

from outlive.errors import LeaseLost, UsageError
from outlive.leases import lease as lease_module
from outlive.leases import leases as leases_module
from outlive.leases.events import E, Handler, Lost
from outlive.leases.every import Periodic
from outlive.leases.info import LeaseInfo
from outlive.model.lease import Tenancy
from outlive.model.options import Duration, LeaseOptions
from outlive.names import Owner, Token
from outlive.runtime.portal import Portal
from outlive.runtime.runtime import caller_line


class Lease:
    """A lease that this process owns, or owned; see ``outlive.Lease``."""

    def __init__(self, lease: lease_module.Lease, portal: Portal) -> None:
        self._lease = lease
        self._portal = portal

    def __repr__(self) -> str:
        return repr(self._lease)

    @property
    def id(self) -> str:
        """What is unique to this grant."""
        return self._lease.id

    @property
    def key(self) -> str:
        """The key that is owned."""
        return self._lease.key

    @property
    def owner(self) -> Owner:
        """Host name and nonce, as the store shows them to others."""
        return self._lease.owner

    @property
    def slot(self) -> int:
        """Which slot of a semaphore this is; 0 for a lock."""
        return self._lease.slot

    @property
    def version(self) -> int:
        """Grows with every write to the record."""
        return self._lease.version

    @property
    def renewals(self) -> int:
        """How many renewals were acknowledged."""
        return self._lease.renewals

    @property
    def metadata(self) -> dict[str, Any]:
        """What was said about the owner when the lease was acquired."""
        return self._lease.metadata

    @property
    def state(self) -> Any:
        """What the owners of this key keep with it."""
        return self._lease.state

    @property
    def previous_owner(self) -> str | None:
        """Whose expired grant this one took over."""
        return self._lease.previous_owner

    @property
    def expires_at(self) -> datetime:
        """When others may take the key if no renewal follows."""
        return self._lease.expires_at

    @property
    def remaining_s(self) -> float:
        """How long the owner may still act without a renewal."""
        return self._lease.remaining_s

    @property
    def is_held(self) -> bool:
        """Whether the owner may act now, by its own clock."""
        return self._lease.is_held

    @property
    def token(self) -> Token:
        """The fencing token; raises ``LeaseLost`` once lost or released."""
        return self._lease.token

    def check(self) -> None:
        """Raise ``LeaseLost`` unless the lease is held."""
        self._lease.check()

    def renew(self, *, state: object = None) -> None:
        """Extend the lease to its whole ttl from now; see ``outlive.Lease.renew``."""
        self._portal.run(self._lease.renew(state=state))

    def release(self) -> None:
        """Give the key up; idempotent; see ``outlive.Lease.release``."""
        self._portal.run(self._lease.release())

    def guard(self, tx: object) -> None:
        """Tie the caller's open transaction to this lease; see ``outlive.Lease.guard``.

        ``tx`` is a synchronous connection and is used on the caller's own thread, as most of
        them demand.
        """
        guarding = self._lease.guard(tx)
        try:
            # With a synchronous connection nothing in there waits, so one step is the whole of it.
            guarding.send(None)
        except StopIteration:
            return
        guarding.close()
        raise UsageError("an asynchronous transaction needs outlive.connect, not outlive.blocking")

    @overload
    def on(
        self, event: type[LeaseLost], handler: Callable[[Lost], Awaitable[None] | None]
    ) -> Callable[[], None]: ...
    @overload
    def on(
        self, event: type[E], handler: Callable[[E], Awaitable[None] | None]
    ) -> Callable[[], None]: ...
    def on(self, event: type[Any], handler: Handler) -> Callable[[], None]:
        """Call ``handler`` on the façade's thread for each event of that type."""
        return self._lease.on(event, handler)

    def __enter__(self) -> Self:
        """Use an acquired lease as a block: it is released at the end."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.run(self._lease.__aexit__(exc_type, exc, traceback))


class Leases:
    """The leases of one connected host; see ``outlive.leases``. Safe to use from many threads."""

    def __init__(self, leases: leases_module.Leases, portal: Portal) -> None:
        self._leases = leases
        self._portal = portal

    @property
    def options(self) -> LeaseOptions:
        """The default options."""
        return self._leases.options

    @property
    def owned(self) -> int:
        """How many leases this host owns now."""
        return self._leases.owned

    def try_acquire(
        self,
        key: str,
        *,
        ttl: Duration | None = None,
        metadata: Mapping[str, Any] | None = None,
        limit: int = 1,
        resume: bool = False,
        **options: Any,
    ) -> Lease | None:
        """Own ``key`` now, or return ``None`` because somebody else does."""
        lease = self._portal.run(
            self._leases.try_acquire(
                key, ttl=ttl, metadata=metadata, limit=limit, resume=resume, **options
            )
        )
        if lease is None:
            return None
        lease.tenure.origin = caller_line(2)
        return Lease(lease, self._portal)

    def acquire(
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
        """Own ``key``, waiting for it in order of arrival where the backend keeps a queue."""
        lease = self._portal.run(
            self._leases.acquire(
                key,
                timeout=timeout,
                ttl=ttl,
                metadata=metadata,
                limit=limit,
                resume=resume,
                **options,
            )
        )
        # To the loop of the façade the caller is the loop itself: the warning about a lease that
        # was dropped is to name the line that asked here.
        lease.tenure.origin = caller_line(2)
        return Lease(lease, self._portal)

    @contextmanager
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
    ) -> Generator[Lease, None, None]:
        """Own ``key`` for a block: ``with leases.hold(key) as lease``; released at its end.

        The block is not interrupted when the lease is lost; its end raises ``LeaseLost``.
        """
        lease = self.acquire(
            key,
            timeout=timeout,
            ttl=ttl,
            metadata=metadata,
            limit=limit,
            resume=resume,
            **options,
        )
        with lease:
            yield lease
            # A deadline that passed unnoticed is found here, before the block counts as done.
            lease.check()

    def semaphore(self, key: str, *, limit: int, **options: Any) -> AbstractContextManager[Lease]:
        """Own one of ``limit`` slots for a block: ``with leases.semaphore("gpu", limit=4)``."""
        return self.hold(key, limit=limit, **options)

    def acquire_all(
        self, keys: Iterable[str], *, timeout: Duration | None = None, **options: Any
    ) -> list[Lease]:
        """Own all of ``keys`` or none, acquired in sorted order."""
        owned = self._portal.run(self._leases.acquire_all(keys, timeout=timeout, **options))
        for lease in owned:
            lease.tenure.origin = caller_line(2)
        return [Lease(lease, self._portal) for lease in owned]

    @contextmanager
    def hold_all(self, keys: Iterable[str], **options: Any) -> Generator[list[Lease], None, None]:
        """Own all of ``keys`` for a block: ``with leases.hold_all(keys) as owned``."""
        leases = self.acquire_all(keys, **options)
        with ExitStack() as stack:
            # Each is released, whatever the release of another one raises.
            for lease in leases:
                stack.callback(lease.release)
            yield leases
            for lease in leases:
                lease.check()

    def get(self, key: str) -> LeaseInfo | None:
        """What the store knows of ``key``, or ``None`` if it was never granted."""
        return self._portal.run(self._leases.get(key))

    def list(
        self,
        *,
        prefix: str = "",
        owner: str | None = None,
        active: bool = True,
        after: str | None = None,
        limit: int = 100,
    ) -> list[LeaseInfo]:
        """A page of leases in key order."""
        return self._portal.run(
            self._leases.list(prefix=prefix, owner=owner, active=active, after=after, limit=limit)
        )

    def history(self, key: str, *, limit: int = 100) -> list[Tenancy]:
        """Who owned ``key``, newest first."""
        return self._portal.run(self._leases.history(key, limit=limit))

    def raw(self, key: str) -> list[dict[str, Any]]:
        """The stored records of ``key`` exactly as the backend holds them."""
        return self._portal.run(self._leases.raw(key))

    def break_lease(self, key: str, *, reason: str) -> list[LeaseInfo]:
        """End the lease of ``key``, whoever owns it."""
        return self._portal.run(self._leases.break_lease(key, reason=reason))

    @overload
    def on(
        self, event: type[LeaseLost], handler: Callable[[Lost], Awaitable[None] | None]
    ) -> Callable[[], None]: ...
    @overload
    def on(
        self, event: type[E], handler: Callable[[E], Awaitable[None] | None]
    ) -> Callable[[], None]: ...
    def on(self, event: type[Any], handler: Handler) -> Callable[[], None]:
        """Call ``handler`` on the façade's thread for each event of every lease of this host."""
        return self._leases.on(event, handler)

    def lead(
        self,
        key: str,
        body: Callable[[Lease], None],
        *,
        ttl: Duration | None = None,
        **options: Any,
    ) -> None:
        """Campaign for ``key`` and run ``body(lease)`` in a thread while leading, until Ctrl-C.

        ``body`` cannot be cancelled: it returns when ``lease.is_held`` turns false.
        """

        async def run(lease: lease_module.Lease) -> None:
            await _in_thread(body, Lease(lease, self._portal))

        self._portal.run(self._leases.lead(key, run, ttl=ttl, **options))

    def every(
        self,
        interval: Duration,
        function: Periodic,
        *,
        key: str,
        ttl: Duration | None = None,
        **options: Any,
    ) -> None:
        """Run ``function`` each ``interval`` on one host of the fleet, in a thread."""

        def run(*tick: object) -> Awaitable[None]:
            return _in_thread(function, *tick)

        # The ticker looks at the signature to see whether the function wants the tick.
        run.__wrapped__ = function  # type: ignore[attr-defined]
        self._portal.run(self._leases.every(interval, run, key=key, ttl=ttl, **options))

    def close(self, closer: object = None) -> None:
        """Release all leases."""
        self._portal.run(self._leases.close(closer))


async def _in_thread(function: Callable[..., Any], *args: object) -> None:
    """Run ``function`` in a thread; a cancellation waits for it, because it cannot be stopped."""
    running = asyncio.get_running_loop().run_in_executor(None, function, *args)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
