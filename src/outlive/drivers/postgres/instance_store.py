"""Instances in PostgreSQL: the port, over the parts that start, claim, commit, post and operate.

Owns nothing but their joining. The usual start and commit are one round trip each, shared with
whatever else is under way.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.instance_claim import InstanceClaimer
from outlive.drivers.postgres.instance_commit import InstanceCommitter
from outlive.drivers.postgres.instance_desk import InstanceOperator
from outlive.drivers.postgres.instance_mail import InstanceMail
from outlive.drivers.postgres.instance_records import InstanceReader
from outlive.drivers.postgres.instance_start import InstanceStarter, check_count
from outlive.drivers.postgres.instance_transact import InstanceTransactor
from outlive.drivers.postgres.job_enqueue import JobEnqueuer
from outlive.drivers.postgres.job_tables import JobTables
from outlive.drivers.postgres.outbox import Outbox
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.errors import UsageError
from outlive.model.instance import (
    ClaimedInstances,
    Commit,
    Committed,
    Handback,
    HistoryRow,
    InstanceClaimRequest,
    InstanceFilter,
    InstanceRecord,
    InstanceStatus,
    Letter,
    Message,
    NewInstance,
    Opened,
    ReclaimedInstance,
    Sent,
    Started,
)
from outlive.names import InstanceId
from outlive.ports.driver import DriverContext
from outlive.ports.instance_store import Body


class PostgresInstanceStore:
    """The ``InstanceStore`` of one namespace in one schema."""

    def __init__(
        self,
        connections: Connections,
        settings: PostgresSettings,
        context: DriverContext,
        *,
        channel: str,
        identity: str,
    ) -> None:
        tables = JobTables(connections, settings, context, channel)
        self._enqueuer = JobEnqueuer(tables)
        self._starter = InstanceStarter(tables)
        self._outbox = Outbox(tables, settings, identity, table="instance")
        self._committer = InstanceCommitter(tables, self._starter, self._enqueuer)
        self._transactor = InstanceTransactor(tables, self._committer, settings, context)
        self._claimer = InstanceClaimer(tables)
        self._mail = InstanceMail(tables)
        self._operator = InstanceOperator(tables, self._mail)
        self._reader = InstanceReader(tables)

    # -- the life of instances ------------------------------------------------------------------

    async def start(self, instances: Sequence[NewInstance]) -> Sequence[Started]:
        """Start instances; see the port."""
        return await self._starter.start(instances)

    async def start_in(self, instances: Sequence[NewInstance], tx: object) -> Sequence[Started]:
        """Start instances inside the caller's transaction; see the port."""
        check_count(instances)
        if any(new.session is not None for new in instances):
            raise UsageError(
                "an instance started in your own transaction cannot have an owner: it exists for "
                "other hosts only after your commit; leave the session out"
            )
        return await self._outbox.write_in(
            tx, "start", lambda run: self._starter.start_in(run, instances)
        )

    async def claim(self, request: InstanceClaimRequest) -> ClaimedInstances:
        """Claim what is due or has letters; see the port."""
        return await self._claimer.claim(request)

    async def commit(self, commits: Sequence[Commit]) -> Sequence[Committed]:
        """Advance instances; see the port."""
        return await self._committer.commit(commits)

    async def transact(self, id: InstanceId, body: Body) -> Committed:  # noqa: A002 - it is one
        """Commit an instance with writes of the caller's; see the port."""
        return await self._transactor.transact(id, body)

    async def release(self, handbacks: Sequence[Handback]) -> Sequence[bool]:
        """Give instances up; see the port."""
        return await self._claimer.release(handbacks)

    async def letters(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        after: int,
        limit: int,
    ) -> Sequence[Letter]:
        """The letters of a mailbox; see the port."""
        return await self._mail.letters(id, after=after, limit=limit)

    async def send(self, messages: Sequence[Message]) -> Sequence[Sent]:
        """Put messages into mailboxes; see the port."""
        return await self._mail.send(messages)

    async def reclaim(self, *, limit: int) -> Sequence[ReclaimedInstance]:
        """Take what sessions had that are gone; see the port."""
        return await self._claimer.reclaim(limit=limit)

    async def tend(self, *, limit: int) -> int:
        """Remove what was kept long enough; see the port."""
        return await self._operator.tend(limit=limit)

    # -- what operators see and do --------------------------------------------------------------

    async def get(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        wait_us: int = 0,
    ) -> InstanceRecord | None:
        """What is known of one instance; see the port."""
        return await self._reader.get(id, wait_us=wait_us)

    async def reply(self, id: InstanceId, message: str) -> str | None:  # noqa: A002 - it is one
        """What the instance replied; see the port."""
        return await self._mail.reply(id, message)

    async def history(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        after: int,
        limit: int,
    ) -> Sequence[HistoryRow]:
        """Rows of the current run; see the port."""
        return await self._reader.history(id, after=after, limit=limit)

    async def list(
        self, wanted: InstanceFilter, *, after: str | None, limit: int
    ) -> Sequence[InstanceRecord]:
        """A page of instances; see the port."""
        return await self._reader.page(wanted, after=after, limit=limit)

    async def count(self, wanted: InstanceFilter) -> dict[InstanceStatus, int]:
        """How many match; see the port."""
        return await self._reader.count(wanted)

    async def terminate(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        outcome: str,
        sends: Sequence[Message] = (),
        below: str | None = None,
    ) -> Opened:
        """End a live instance at once; see the port."""
        return await self._operator.terminate(id, outcome=outcome, sends=sends, below=below)

    async def suspend(self, id: InstanceId) -> Opened:  # noqa: A002 - it is one
        """Let a live instance begin nothing new; see the port."""
        return await self._operator.suspend(id)

    async def resume(self, id: InstanceId) -> Opened:  # noqa: A002 - it is one
        """Let it go on; see the port."""
        return await self._operator.resume(id)

    async def reopen(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        version: int,
        events: str,
    ) -> Opened:
        """Let an ended instance live again; see the port."""
        return await self._operator.reopen(id, version=version, events=events)

    async def purge(self, ids: Sequence[InstanceId]) -> Sequence[Opened]:
        """Forget instances that have ended; see the port."""
        return await self._operator.purge(ids)

    async def ring(self, ids: Sequence[InstanceId]) -> None:
        """Ring whoever a letter would ring; see the port."""
        await self._operator.ring(ids)

    async def close(self) -> None:
        """End the batches. Repeatable."""
        await self._transactor.close()
        await self._starter.close()
        await self._committer.close()
        await self._claimer.close()
        await self._mail.close()
        await self._enqueuer.close()
