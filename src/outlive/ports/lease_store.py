"""The port of leases: what every backend must do to own keys safely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from outlive.model.lease import AcquireRequest, Grant, Held, LeaseRecord, Tenancy
from outlive.names import Owner, WaiterId


class LeaseStore(Protocol):
    """Leases of one namespace in one store.

    Each method is one atomic step, judged by the store's own clock. Any method may raise
    ``StoreUnavailable`` (nothing was applied) or ``OutcomeUnknown`` (the reply was lost; a write
    may have been applied). Cancelling the caller does not undo a step that was already sent.
    """

    async def acquire(self, request: AcquireRequest) -> Grant | Held:
        """Own ``request.key`` if it is free, expired, or already owned by ``request.owner``.

        Repeatable: the same owner gets the same token, with the ttl counted anew. Otherwise the
        token is greater than every token ever granted for the key. When refused and
        ``queue_us`` is positive, the owner has a place in the queue afterwards (its earlier
        place, if it had one); when granted, its place is gone.
        """
        ...

    async def renew(self, grant: Grant, ttl_us: int, *, state: str | None = None) -> Grant:
        """Extend ``grant`` so that it ends ``ttl_us`` from now; keep ``state`` with the key.

        Repeatable. The token does not change. An expired grant never revives, even when nobody
        took the key. ``state`` of ``None`` leaves what was there.

        Raises:
            LeaseExpired: The time had run out, and nobody took the key.
            Fenced: The grant was ended: released, broken, or taken over.
        """
        ...

    async def release(self, grant: Grant) -> None:
        """Give the key up, keep its token, and wake the head of its queue.

        Repeating it changes nothing and answers ``Fenced``, like every grant that has ended;
        releasing one that expired unnoticed is fine as long as nobody took the key.

        Raises:
            Fenced: The grant was ended before: released, broken, or taken over. Nothing changed.
        """
        ...

    async def leave(self, key: str, waiter: WaiterId, owner: Owner) -> None:
        """Give up the place of ``owner`` in the queue. Repeatable; an unknown place is fine.

        ``waiter`` of 0 means whatever place the owner has: it was cancelled before it learned.

        If the key is free, the new head of the queue is woken, because the wake-up may have been
        meant for the one who leaves.
        """
        ...

    async def break_lease(self, key: str, *, reason: str) -> Sequence[LeaseRecord]:
        """End every grant of ``key``, whoever owns it; the token grows, so old writes are fenced.

        Returns the records as they were, active ones only. Repeatable; on a free key it changes
        nothing and returns nothing.

        Raises:
            LeaseNotFound: The key was never granted.
        """
        ...

    async def get(self, key: str) -> Sequence[LeaseRecord]:
        """The records of ``key``, one per slot, in slot order; empty if it was never granted."""
        ...

    async def list(
        self, *, prefix: str, owner: str | None, active: bool, after: str | None, limit: int
    ) -> Sequence[LeaseRecord]:
        """A page of records whose key starts with ``prefix``, in key order (by code point).

        ``owner`` matches the whole owner or its host name. ``active`` keeps only records that
        somebody owns now. ``after`` is the last key of the page before: a page ends only between
        keys, so it may run over ``limit`` by the slots of its last key.
        """
        ...

    async def history(self, key: str, *, limit: int) -> Sequence[Tenancy]:
        """The newest entries of the key's history, newest first, the present owner included.

        Where the backend keeps no history this is at most the present owner.
        """
        ...

    async def raw(self, key: str) -> Sequence[Mapping[str, object]]:
        """The stored records of ``key`` exactly as the backend holds them, for people who debug.

        One mapping per slot, in slot order; names and values are the backend's own. Empty if the
        key was never granted. Nothing may be built on it: it follows the schema of the driver.
        """
        ...

    async def guard(self, grant: Grant, tx: object) -> None:
        """Prove inside the open transaction ``tx`` that ``grant`` is the newest, until its end.

        A takeover by others waits for, or is refused until, the end of the transaction; the
        owner's own renewals are not held up on backends that can lock less than a row.

        Raises:
            Fenced: A newer grant exists, or this one was ended. Roll back.
            UsageError: ``tx`` is no supported transaction, is not open, or belongs to another
                database.
            UnsupportedByDriver: The backend has no transactions to guard.
        """
        ...
