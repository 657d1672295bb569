"""The handle of a lease: what its owner holds in hand.

Every use asks the owner's own clock first: after the deadline the handle says lost, whether or
not the process could talk to the store.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, overload

from outlive.errors import LeaseLost
from outlive.leases.events import E, Handler, Handlers, Lost
from outlive.leases.tenure import ALIVE, Tenure
from outlive.names import Owner, Token
from outlive.serialization import decode_json, decode_metadata

if TYPE_CHECKING:
    from outlive.leases.ownership import Ownership

_log = logging.getLogger("outlive.leases")


class Lease:
    """A lease that this process owns, or owned.

    It renews itself until released, unless ``auto_renew`` was off. A handle that is dropped
    without release stops renewing, so the lease ends by its ttl, and the log names the line that
    acquired it.
    """

    __slots__ = ("__weakref__", "_metadata", "_ownership", "tenure")

    def __init__(self, tenure: Tenure, ownership: Ownership, metadata: str) -> None:
        self.tenure = tenure
        tenure.handle = weakref.ref(self)
        self._ownership = ownership
        self._metadata = metadata

    def __del__(self) -> None:
        tenure = getattr(self, "tenure", None)
        if tenure is not None and tenure.phase in ALIVE:
            self._ownership.abandon(tenure)

    def __repr__(self) -> str:
        grant = self.tenure.grant
        return f"<Lease {grant.key!r} token={grant.token} {self.tenure.phase.value}>"

    @property
    def id(self) -> str:
        """What is unique to this grant: the part of ``owner`` after the host's name."""
        return self.tenure.grant.owner.rpartition("/")[2]

    @property
    def key(self) -> str:
        """The key that is owned."""
        return self.tenure.grant.key

    @property
    def owner(self) -> Owner:
        """Host name and nonce, as the store shows them to others."""
        return self.tenure.grant.owner

    @property
    def slot(self) -> int:
        """Which slot of a semaphore this is; 0 for a lock."""
        return self.tenure.grant.slot

    @property
    def version(self) -> int:
        """Grows with every write to the record."""
        return self.tenure.grant.version

    @property
    def renewals(self) -> int:
        """How many renewals were acknowledged."""
        return self.tenure.renewals

    @property
    def metadata(self) -> dict[str, Any]:
        """What was said about the owner when the lease was acquired."""
        return decode_metadata(self._metadata)

    @property
    def state(self) -> Any:
        """What the owners of this key keep with it, as of the last reply; it outlives them all."""
        text = self.tenure.grant.state
        return None if text is None else decode_json(text)

    @property
    def previous_owner(self) -> str | None:
        """Whose expired grant this one took over, or ``None`` if the key was free."""
        return self.tenure.grant.previous_owner

    @property
    def acquired_at(self) -> datetime:
        """When the grant was asked for, by this machine's wall clock."""
        return self._ownership.acquired_at(self.tenure)

    @property
    def expires_at(self) -> datetime:
        """When others may take the key if no renewal follows, by this machine's wall clock."""
        return self._ownership.expires_at(self.tenure)

    @property
    def remaining_s(self) -> float:
        """How long the owner may still act without a renewal; 0 once lost or released."""
        if not self.is_held:
            return 0.0
        return max(0.0, self.tenure.deadline - self._ownership.runtime.clock.monotonic())

    @property
    def is_held(self) -> bool:
        """Whether the owner may act now, by its own clock. Never asks the store."""
        return self._ownership.is_held(self.tenure)

    @property
    def token(self) -> Token:
        """The fencing token, to be sent along with every write that the lease protects.

        Raises:
            LeaseLost: The lease was lost or released: the write must not happen.
        """
        self.check()
        return self.tenure.grant.token

    def check(self) -> None:
        """Return if the lease is held.

        Raises:
            LeaseLost: It was lost (``LeaseExpired``, ``Fenced``) or released.
        """
        if not self._ownership.is_held(self.tenure):
            raise self._ownership.why_not(self.tenure)

    async def renew(self, *, state: object = None) -> None:
        """Extend the lease to its whole ttl from now; optionally replace what the key keeps.

        Repeatable. Renewal happens by itself where ``auto_renew`` is on; call this to store
        ``state`` (JSON, kept with the key across owners) or to be sure before a long step.

        Raises:
            LeaseLost: It was lost, and stays lost.
            StoreError: The store did not answer. The lease keeps the deadline it had.
            UsageError: ``state`` cannot be stored.
        """
        self.check()
        await self._ownership.renew_now(self.tenure, state)

    async def release(self) -> None:
        """Give the key up. Idempotent; after a loss there is nothing to give up.

        Retries for a few seconds while the store does not answer.

        Raises:
            StoreError: The store never answered; the lease then ends by its ttl.
        """
        await self._ownership.release(self.tenure)

    async def guard(self, tx: object) -> None:
        """Tie the caller's open database transaction to this lease.

        If this returns, no other owner can have come before the transaction commits: its writes
        are fenced without any clock.

        Raises:
            LeaseLost: A newer owner exists, or the deadline passed. Roll back.
            UsageError: ``tx`` is no open transaction on the store's own database.
            UnsupportedByDriver: The backend has no transactions.
        """
        self.check()
        await self._ownership.guard(self.tenure, tx)

    @overload
    def on(
        self, event: type[LeaseLost], handler: Callable[[Lost], Awaitable[None] | None]
    ) -> Callable[[], None]: ...
    @overload
    def on(
        self, event: type[E], handler: Callable[[E], Awaitable[None] | None]
    ) -> Callable[[], None]: ...
    def on(self, event: type[Any], handler: Handler) -> Callable[[], None]:
        """Call ``handler`` on this event loop for each event of that type of this lease.

        Returns the function that ends it. A handler for ``Lost`` added after the loss is not
        called; look at ``is_held``.

        Raises:
            UsageError: The type is no lease event.
        """
        tenure = self.tenure
        if tenure.handlers is None:
            tenure.handlers = Handlers()
        return tenure.handlers.add(event, handler)

    async def __aenter__(self) -> Self:
        """Use an acquired lease as a block: it is released at the end."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Release. A loss during the block raises only if the block itself did not."""
        await self.release()
        error = self.tenure.error
        if error is not None and exc_info[0] is None:
            raise error
