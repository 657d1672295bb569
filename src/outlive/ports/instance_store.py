"""The port of instances: what is durable, owned by one host at a time, and advances by commits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from outlive.model.instance import (
    ClaimedInstances,
    Commit,
    Committed,
    Handback,
    InstanceClaimRequest,
    Letter,
    Message,
    NewInstance,
    ReclaimedInstance,
    Sent,
    Started,
)
from outlive.names import InstanceId
from outlive.ports.instance_desk import InstanceDesk

Body = Callable[[Any], Commit | Awaitable[Commit]]
"""What runs inside a transaction of the store, given its connection, and says what to commit."""


class InstanceRuns(Protocol):
    """The life of instances, from those who start them to those who run them.

    Each method is one atomic step, judged by the store's own clock; the batch methods answer each
    member in order, and one member's outcome changes nothing for the others. Any method may raise
    ``StoreUnavailable`` (nothing was applied) or ``OutcomeUnknown`` (the reply was lost; all of it
    or nothing was applied). All of them may be repeated after that and then give the same answer.

    An instance can be claimed if it is live, not suspended, has no owner, and is due or has a
    letter. One that nobody has ever had is not begun before it is due: letters wait for that with
    it, unless one is of the kind ``cancel``. What is owned stays so until its owner gives it up, it
    ends, or its owner's session has ended and somebody reclaims it. Each claim and each reclaim
    makes the token greater. The first token of an id that was purged and started anew is greater
    than all it had before, so that an owner who slept through both is refused.

    Rings: a host that waits hears ``instances/<kind>/<name>`` when an instance of that definition
    becomes claimable, by whichever method made it so. The owner of an instance hears
    ``mail/<id>`` of each letter, and ``operate/<id>`` when it was suspended, resumed or taken from
    it. A host that watches (``get`` with ``wait_us``) hears ``instance/<id>`` when it ends or
    replies; of what was under way when it began to watch it may hear nothing, so it looks again
    soon. The host of a claim is the one whose driver made it.
    """

    async def start(self, instances: Sequence[NewInstance]) -> Sequence[Started]:
        """Start instances, all that are not there yet or none; at most ``START_MAX``.

        An id that is there already (whatever became of it) is ``existing`` and changes nothing,
        unless the same request created it.

        Raises:
            LeaseExpired, Fenced: A session that was to own one does not live.
        """
        ...

    async def start_in(self, instances: Sequence[NewInstance], tx: object) -> Sequence[Started]:
        """The same inside the caller's open transaction, unowned.

        Raises:
            UsageError: ``tx`` is no supported transaction, is not open, or belongs to another
                database; or an instance names a session.
            UnsupportedByDriver: The backend has no transactions to join.
        """
        ...

    async def claim(self, request: InstanceClaimRequest) -> ClaimedInstances:
        """Claim up to ``request.limit`` instances for a living session, the longest due first.

        With ``again``, those claimed before under the same request, still owned and not committed
        since are returned, with the same tokens, and no others are taken; if there are none it is
        a claim like any other.

        Raises:
            LeaseExpired: The session's time had run out.
            Fenced: The session has ended, or never was.
        """
        ...

    async def commit(self, commits: Sequence[Commit]) -> Sequence[Committed]:
        """Advance instances, each by its own step under its token and version.

        Two commits of one instance are never in one call. Repeatable: one that was made before,
        and whose row is kept, changes nothing, and is answered with the time of that row.
        """
        ...

    async def transact(self, id: InstanceId, body: Body) -> Committed:  # noqa: A002 - it is one
        """Run ``body`` inside a transaction of the store, and commit what it says with it.

        What the body wrote through the connection and its ``Commit`` become durable together, or
        neither. What it raises rolls back, and is raised here. On SQLite the body is an ordinary
        function that runs in the writer, limited in time, and may not end the transaction; on
        PostgreSQL it is awaited. The instance's token is looked at first, and again at the end.

        Raises:
            UnsupportedByDriver: The backend has no transactions.
        """
        ...

    async def release(self, handbacks: Sequence[Handback]) -> Sequence[bool]:
        """Give instances up. False if the token was not the newest, or it had no owner."""
        ...

    async def letters(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        after: int,
        limit: int,
    ) -> Sequence[Letter]:
        """The letters of a mailbox in order, those behind the number ``after``."""
        ...

    async def send(self, messages: Sequence[Message]) -> Sequence[Sent]:
        """Put messages into mailboxes, each once, in their order."""
        ...

    async def reclaim(self, *, limit: int) -> Sequence[ReclaimedInstance]:
        """Take up to ``limit`` instances from sessions that have ended, or are unknown.

        A session whose time ran out but that nobody reaped keeps what it has. One that a peer
        looks at in the same moment may be left to the next call; until then its owner can commit,
        which is safe, because nobody else has it.
        """
        ...

    async def tend(self, *, limit: int) -> int:
        """Remove up to ``limit`` ended instances whose retention passed; how many it were.

        Fewer where they have more than ``REMOVED_ROWS_MAX`` rows of history together; 0 if none is
        left that nobody else holds.
        """
        ...


class InstanceStore(InstanceRuns, InstanceDesk, Protocol):
    """Instances of one namespace in one store: their life, and what operators see and do."""


@runtime_checkable
class WritesAtOnce(Protocol):
    """Beside the port, where the store is in this process: writes that nobody waits with.

    A lone one is then written where it was decided, and costs no task and no turn of the loop.
    """

    def start_at_once(self, instance: NewInstance) -> Started | None:
        """Start one instance before this returns, as ``start`` does, and raise as it does.

        ``None``, and nothing was written, where that would mean waiting, or where the loop is owed
        a turn: ``start`` gives it one.
        """
        ...

    def commit_at_once(self, commit: Commit) -> Committed | None:
        """Advance one instance before this returns, as ``commit`` does, and raise as it does.

        ``None``, and nothing was written, where that would mean waiting: for others who write, or
        for a slow disk. Nor are more than a few written in one turn of the event loop: those are
        company, and go together. The loop had no turn meanwhile; the caller owes it one.
        """
        ...
