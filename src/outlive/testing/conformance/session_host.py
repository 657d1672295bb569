"""Hosts of a lab that keep sessions: what they claim hangs on those. Knows no backend."""

from __future__ import annotations

from outlive.model.session import HostSession
from outlive.names import HostId
from outlive.ports.host_store import HostStore
from outlive.testing.conformance.lab import LONG_S, Member


class SessionHost:
    """One host of a lab, and the sessions that it opens."""

    def __init__(self, member: Member) -> None:
        hosts = member.driver.hosts
        assert hosts is not None, "claims hang on sessions, and the driver keeps none"
        self.lab = member.lab
        self.member = member
        self.hosts: HostStore = hosts
        self.id = member.id

    async def open_session(self, session: HostId, ttl: float = LONG_S) -> HostId:
        """Begin a session: the host's own, or one that it keeps for somebody else."""
        ttl_us = round(ttl * 1e6)
        await self.hosts.open(
            HostSession(id=session, name=self.member.name, ttl_us=ttl_us, metadata="{}")
        )
        return session

    async def end(self) -> None:
        """End the own session, as a host does that stops."""
        await self.hosts.close(self.id)

    async def reap(self) -> None:
        """End what has expired, as a peer's heartbeat does."""
        await self.hosts.reap(limit=100)
