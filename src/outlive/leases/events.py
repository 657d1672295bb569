"""What happens to a lease, as typed events, and the delivery of them to the user's functions.

Handlers run on the event loop that acquired the lease. One that raises is logged and harms
nothing; one that is a coroutine function runs as a task.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from outlive.errors import LeaseLost, UsageError
from outlive.names import host_of

_log = logging.getLogger("outlive.leases")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEvent:
    """What all events say: which grant, and when by the owner's wall clock.

    ``id`` is that of the grant. ``lease`` is its handle, an ``outlive.Lease``, or ``None`` if the
    program has dropped it.
    """

    key: str
    id: str
    lease: Any
    token: int
    owner: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed(LeaseEvent):
    """A renewal was acknowledged. The lease now lasts ``ttl_s``, until ``expires_at``."""

    version: int
    renewals: int
    ttl_s: float
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewFailed(LeaseEvent):
    """A renewal attempt failed; ``attempt`` counts failures in a row."""

    attempt: int
    error: BaseException
    will_retry: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRisk(LeaseEvent):
    """Most of the ttl has passed without a successful renewal; ``remaining_s`` are left."""

    remaining_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(LeaseEvent):
    """The lease is not ours any more. ``reason`` is the code that ``error`` carries too."""

    reason: str
    error: LeaseLost
    last_renewed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(LeaseEvent):
    """The owner gave the lease up."""


E = TypeVar("E", bound=LeaseEvent)
Handler = Callable[[Any], Awaitable[None] | None]

_EVENTS = (Renewed, RenewFailed, AtRisk, Lost, Released)


class Handlers:
    """The handlers of one lease, or of all leases of one host."""

    __slots__ = ("_by_type", "_tasks")

    def __init__(self) -> None:
        self._by_type: dict[type[LeaseEvent], list[Handler]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __bool__(self) -> bool:
        return bool(self._by_type)

    def add(self, event: type[Any], handler: Handler) -> Callable[[], None]:
        """Call ``handler`` for each event of this type; returns the function that ends it.

        ``LeaseLost``, the error, is accepted for ``Lost``, the event.

        Raises:
            UsageError: The type is no lease event, or the handler cannot be called.
        """
        kind = Lost if event is LeaseLost else event
        if kind is not LeaseEvent and kind not in _EVENTS:
            names = ", ".join(known.__name__ for known in _EVENTS)
            raise UsageError(f"{event!r} is not a lease event (known: {names})")
        if not callable(handler):
            raise UsageError(f"an event handler must be a function, not {handler!r}")
        listeners = self._by_type.setdefault(kind, [])
        listeners.append(handler)

        def remove() -> None:
            if handler in listeners:
                listeners.remove(handler)

        return remove

    def deliver(self, event: LeaseEvent) -> None:
        """Call the handlers for ``event`` now, on the running loop."""
        for kind in (type(event), LeaseEvent):
            for handler in tuple(self._by_type.get(kind, ())):
                self._call(handler, event)

    def _call(self, handler: Handler, event: LeaseEvent) -> None:
        try:
            result = handler(event)
        except Exception:  # noqa: BLE001 - a handler may raise anything
            _failed(event)
            return
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(self._await(result, event))
            # The loop keeps only weak references to tasks; this set keeps them until they end.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _await(self, result: Awaitable[None], event: LeaseEvent) -> None:
        try:
            await result
        except Exception:  # noqa: BLE001 - a handler may raise anything
            _failed(event)


def _failed(event: LeaseEvent) -> None:
    fields = {"host": host_of(event.owner), "key": event.key}
    _log.exception("an event handler of %s failed", type(event).__name__, extra=fields)
