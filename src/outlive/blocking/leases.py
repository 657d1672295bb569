"""Leases without ``await``; see ``outlive.blocking``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, Self, overload

from outlive.blocking.calls import awaited, run_with
from outlive.errors import LeaseLost
from outlive.leases import lease as lease_module
from outlive.leases import leases as leases_module
from outlive.leases.events import E, Handler, Lost
from outlive.leases.every import Periodic
from outlive.model.options import Duration, LeaseOptions
from outlive.names import Owner, Token
from outlive.runtime.portal import Portal
from outlive.runtime.runtime import caller_line


class Lease:
    """A lease that this process owns, or owned; see ``outlive.Lease``."""

    def __init__(self, lease: lease_module.Lease, portal: Portal) -> None:
        self._twin = lease
        self._portal = portal

    def __repr__(self) -> str:
        return repr(self._twin)

    @property
    def id(self) -> str:
        """What is unique to this grant."""
        return self._twin.id

    @property
    def key(self) -> str:
        """The key that is owned."""
        return self._twin.key

    @property
    def owner(self) -> Owner:
        """Host name and nonce, as the store shows them to others."""
        return self._twin.owner

    @property
    def slot(self) -> int:
        """Which slot of a semaphore this is; 0 for a lock."""
        return self._twin.slot

    @property
    def version(self) -> int:
        """Grows with every write to the record."""
        return self._twin.version

    @property
    def renewals(self) -> int:
        """How many renewals were acknowledged."""
        return self._twin.renewals

    @property
    def metadata(self) -> dict[str, Any]:
        """What was said about the owner when the lease was acquired."""
        return self._twin.metadata

    @property
    def state(self) -> Any:
        """What the owners of this key keep with it."""
        return self._twin.state

    @property
    def previous_owner(self) -> str | None:
        """Whose expired grant this one took over."""
        return self._twin.previous_owner

    @property
    def acquired_at(self) -> datetime:
        """When the grant was asked for."""
        return self._twin.acquired_at

    @property
    def expires_at(self) -> datetime:
        """When others may take the key if no renewal follows."""
        return self._twin.expires_at

    @property
    def remaining_s(self) -> float:
        """How long the owner may still act without a renewal."""
        return self._twin.remaining_s

    @property
    def is_held(self) -> bool:
        """Whether the owner may act now, by its own clock."""
        return self._twin.is_held

    @property
    def token(self) -> Token:
        """The fencing token; raises ``LeaseLost`` once lost or released."""
        return self._twin.token

    def check(self) -> None:
        """Raise ``LeaseLost`` unless the lease is held."""
        self._twin.check()

    renew = awaited(lease_module.Lease.renew)
    release = awaited(lease_module.Lease.release)

    def guard(self, tx: object) -> None:
        """Tie the caller's open transaction to this lease; see ``outlive.Lease.guard``.

        ``tx`` is a synchronous connection and is used on the caller's own thread, as most of
        them demand.
        """
        run_with(self._portal, self._twin.guard(tx), tx)

    @overload
    def on(
        self, event: type[LeaseLost], handler: Callable[[Lost], Awaitable[None] | None]
    ) -> Callable[[], None]: ...
    @overload
    def on(
        self, event: type[E], handler: Callable[[E], Awaitable[None] | None]
    ) -> Callable[[], None]: ...
    def on(self, event: type[Any], handler: Handler) -> Callable[[], None]:
        """Call ``handler`` on the façade's thread for each event of that type.

        The ``lease`` of an event is an ``outlive.Lease``: there, nothing may block.
        """
        return self._twin.on(event, handler)

    def __enter__(self) -> Self:
        """Use an acquired lease as a block: it is released at the end."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.run(self._twin.__aexit__(exc_type, exc, traceback))


class Leases:
    """The leases of one connected host; see ``outlive.leases``. Safe to use from many threads."""

    def __init__(self, leases: leases_module.Leases, portal: Portal) -> None:
        self._twin = leases
        self._portal = portal

    @property
    def options(self) -> LeaseOptions:
        """The default options."""
        return self._twin.options

    @property
    def owned(self) -> int:
        """How many leases this host owns now."""
        return self._twin.owned

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
            self._twin.try_acquire(
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
            self._twin.acquire(
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
        owned = self._portal.run(self._twin.acquire_all(keys, timeout=timeout, **options))
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

    get = awaited(leases_module.Leases.get)
    list = awaited(leases_module.Leases.list)
    history = awaited(leases_module.Leases.history)
    raw = awaited(leases_module.Leases.raw)
    break_lease = awaited(leases_module.Leases.break_lease)

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
        return self._twin.on(event, handler)

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

        self._portal.run(self._twin.lead(key, run, ttl=ttl, **options))

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
        self._portal.run(self._twin.every(interval, run, key=key, ttl=ttl, **options))

    close = awaited(leases_module.Leases.close)


async def _in_thread(function: Callable[..., Any], *args: object) -> None:
    """Run ``function`` in a thread; a cancellation waits for it, because it cannot be stopped."""
    running = asyncio.get_running_loop().run_in_executor(None, function, *args)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
