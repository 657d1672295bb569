"""The port of host sessions: one row per living process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from outlive.model.session import HostSession
from outlive.names import HostId


class HostStore(Protocol):
    """Sessions of one namespace. Each method is one atomic step by the store's own clock.

    Any method may raise ``StoreUnavailable`` (nothing applied) or ``OutcomeUnknown``.
    """

    async def open(self, session: HostSession) -> None:
        """Begin the session of a new host. Repeatable for the same id while it lives.

        A repeat counts the ttl anew, and its metadata replaces what was there.

        Raises:
            Fenced: This id was used by a session that has ended; ids are never reused.
        """
        ...

    async def renew(self, host: HostId, ttl_us: int) -> None:
        """Keep the session alive for ``ttl_us`` from now. Repeatable.

        Raises:
            LeaseExpired: The time had run out; peers may have taken over its work.
            Fenced: The session was closed or reaped.
        """
        ...

    async def close(self, host: HostId) -> None:
        """End the session at once. Repeatable; an unknown or ended session is fine."""
        ...

    async def reap(self, *, limit: int) -> Sequence[HostSession]:
        """End up to ``limit`` sessions whose time has run out, and return them.

        Two reapers never return the same session.
        """
        ...

    async def get(self, host: HostId) -> HostSession | None:
        """One session, shown as ``list`` shows it; ``None`` if it has ended or never was."""
        ...

    async def list(self, *, limit: int) -> Sequence[HostSession]:
        """Sessions that have not ended, oldest first; ``alive`` is false for expired ones."""
        ...
