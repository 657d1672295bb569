"""Instances on SQLite: each operation is one step of the file's one writer.

Owns the instance port. The steps are in ``instance_starting``, ``instance_claiming``,
``instance_committing``, ``instance_mail``, ``instance_moves`` and ``instance_transact``; reading is
done by ``instance_reader``. Starts, commits, releases and sends of many callers join.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from outlive.clock import Clock, microseconds
from outlive.drivers.sqlite import instance_desk_sql as desk
from outlive.drivers.sqlite import instance_sql as sql
from outlive.drivers.sqlite import statements
from outlive.drivers.sqlite.bells import Bells
from outlive.drivers.sqlite.instance_claiming import InstanceClaiming
from outlive.drivers.sqlite.instance_committing import Enqueue, InstanceCommitting
from outlive.drivers.sqlite.instance_mail import InstanceMail
from outlive.drivers.sqlite.instance_moves import InstanceMoves
from outlive.drivers.sqlite.instance_reader import InstanceReader, record
from outlive.drivers.sqlite.instance_starting import Starting, check_batch, start_owned
from outlive.drivers.sqlite.instance_transact import InstanceTransact, Undone
from outlive.drivers.sqlite.joint import Joint, joined
from outlive.drivers.sqlite.lending import BodyRaised
from outlive.drivers.sqlite.sessions import Sessions
from outlive.drivers.sqlite.statements import Operation, Statement
from outlive.drivers.sqlite.transaction import Turn
from outlive.drivers.sqlite.user_transactions import UserTransactions
from outlive.drivers.sqlite.writer import Writer
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
from outlive.names import InstanceId, Token
from outlive.ports.driver import DriverContext
from outlive.ports.instance_store import Body

# A batch of this size keeps the event loop for longer than a commit may.
_LARGE = 100


class Parts(NamedTuple):
    """What the store is put together from, shared with the stores beside it."""

    writer: Writer
    reader: InstanceReader
    users: UserTransactions
    sessions: Sessions
    mail: InstanceMail
    bells: Bells
    enqueue: Enqueue
    watch: Callable[[float], None]


class SqliteInstanceStore:
    """The instance port of one namespace in one file, for one host."""

    def __init__(self, parts: Parts, *, context: DriverContext, transact_limit_s: float) -> None:
        namespace = self._namespace = context.namespace
        host = self._host = context.host
        self._clock: Clock = context.clock
        self._writer, self._reader, self._users, self._sessions = parts[:4]
        self._submit = partial(parts.users.write, parts.writer)
        self._mail, self._bells = parts.mail, parts.bells
        self._watch = parts.watch
        claiming = InstanceClaiming(
            self._mail, self._bells, self._sessions, namespace=namespace, host=host
        )
        committing = InstanceCommitting(
            self._mail, self._bells, parts.enqueue, namespace=namespace, host=host
        )
        self._moves = InstanceMoves(self._mail, self._bells, self._sessions, namespace=namespace)
        self._transact = InstanceTransact(
            committing, context.clock, namespace=namespace, limit_s=transact_limit_s
        )
        self._claim = claiming.claim
        # The token of the next that a session owns from its start, as far as is known here.
        self._first = Token(1)
        # What a batch starts, gives up and sends can be had by those who claim in the same batch.
        self._starting = Joint(self._start_batch, self._start, rank=5)
        self._committing = joined(committing.commit, rank=6)
        self._commit_one = committing.one
        self._releasing = joined(claiming.release, rank=7)
        self._sending = joined(self._mail.send, rank=8)

    # -- their life --------------------------------------------------------------------------------

    async def start(self, instances: Sequence[NewInstance]) -> Sequence[Started]:
        """Start instances, all that are not there yet or none."""
        check_batch(instances)
        if not instances:
            return []
        return await self._submit(self._starting, instances, large=len(instances) > _LARGE)

    def start_at_once(self, instance: NewInstance) -> Started | None:
        """Start one instance now; ``None``, and nothing was done, where that means waiting."""
        if self._users.used:
            return None
        started = self._writer.at_once(self._start_batch, (instance,), awaited=True)
        return None if started is None else started[0]

    def _start_batch(self, turn: Turn, batch: Sequence[NewInstance]) -> list[Started]:
        session = batch[0].session if len(batch) == 1 else None
        if session is not None:
            self._sessions.check(session, turn.now_us)
            where = (self._namespace, self._host, turn.wall_us)
            started = start_owned(turn.cursor, where, batch[0], self._first)
            if started is not None:
                return [started]
        return self._start(turn, [batch])[0]

    def _start(self, turn: Turn, batches: Sequence[Sequence[NewInstance]]) -> list[list[Started]]:
        instances = [instance for batch in batches for instance in batch]
        for session in {i.session for i in instances if i.session is not None}:
            self._sessions.check(session, turn.now_us)
        turn.savepoint()
        starting = Starting(self._namespace, self._host, instances, turn.wall_us)
        answers = iter(statements.run(starting.run(), turn.cursor))
        self._first = max(self._first, starting.first)
        if starting.fresh:
            self._bells.ring(turn, starting.fresh)
        return [list(islice(answers, len(batch))) for batch in batches]

    async def start_in(self, instances: Sequence[NewInstance], tx: object) -> Sequence[Started]:
        """Start instances inside the caller's open transaction, unowned.

        Nobody can be rung when that commits; hosts that wait look whether the file changed.
        """
        check_batch(instances)
        if any(instance.session is not None for instance in instances):
            raise UsageError(
                "an instance started in your own transaction cannot have an owner: it exists for "
                "other hosts only after your commit; leave the session out"
            )
        operation = statements.atomically(self._start_and_call(instances))
        return await self._users.run("start", operation, tx)

    def _start_and_call(self, instances: Sequence[NewInstance]) -> Operation[list[Started]]:
        yield Statement(sql.LOCK, ())
        now_us = microseconds(self._clock.now())
        starting = Starting(self._namespace, self._host, instances, now_us)
        answers = yield from starting.run()
        yield from self._bells.call(starting.fresh, now_us, now_us)
        return answers

    async def claim(self, request: InstanceClaimRequest) -> ClaimedInstances:
        """Claim up to ``request.limit`` instances for a living session."""
        large = request.limit > _LARGE
        claimed: ClaimedInstances = await self._submit(self._claim, request, large=large)
        if request.wait_us > 0 and len(claimed.instances) < request.limit:
            self._watch(request.wait_us / 1e6)
        return claimed

    async def commit(self, commits: Sequence[Commit]) -> Sequence[Committed]:
        """Advance instances, each by its own step under its token and version."""
        if len(commits) > 1 and len({commit.id for commit in commits}) < len(commits):
            raise UsageError(
                "one call has two commits of one instance: send the second commit in a later call"
            )
        return await self._submit(self._committing, commits, large=len(commits) > _LARGE)

    def commit_at_once(self, commit: Commit) -> Committed | None:
        """Advance one instance now; ``None``, and nothing was done, where that means waiting."""
        if self._users.used:
            return None
        answer = self._writer.at_once(self._commit_one, commit)
        return None if answer is None else answer[0]

    async def transact(self, id: InstanceId, body: Body) -> Committed:  # noqa: A002 - it is one
        """Run ``body`` in the writer, and commit what it says with what it wrote.

        ``body`` is an ordinary function, given the writer's connection, for at most the option
        ``transact_limit``; meanwhile nobody else writes to the file. It may not begin or end
        transactions, nor keep the connection.
        """
        try:
            return await self._submit(self._transact.run, (id, body), large=True)
        except BodyRaised as raised:
            raise raised.error from raised.error.__cause__
        except Undone as undone:
            return undone.committed

    async def release(self, handbacks: Sequence[Handback]) -> Sequence[bool]:
        """Give instances up."""
        return await self._submit(self._releasing, handbacks, large=len(handbacks) > _LARGE)

    async def letters(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        after: int,
        limit: int,
    ) -> Sequence[Letter]:
        """The letters of a mailbox in order, those behind the number ``after``."""
        return await self._reader.letters(id, after=after, limit=limit)

    async def send(self, messages: Sequence[Message]) -> Sequence[Sent]:
        """Put messages into mailboxes, each once, in their order."""
        return await self._submit(self._sending, messages, large=len(messages) > _LARGE)

    async def reclaim(self, *, limit: int) -> Sequence[ReclaimedInstance]:
        """Take up to ``limit`` instances from sessions that have ended, or are unknown."""
        return await self._submit(self._moves.reclaim, limit, large=True)

    async def tend(self, *, limit: int) -> int:
        """Remove up to ``limit`` ended instances whose retention passed."""
        return await self._submit(self._moves.tend, limit, large=True)

    # -- what operators see and do -----------------------------------------------------------------

    async def get(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        wait_us: int = 0,
    ) -> InstanceRecord | None:
        """What is known of one instance; with ``wait_us`` this host hears what comes of it."""
        if wait_us <= 0:
            return await self._reader.get(id)
        return await self._submit(self._get_and_watch, (id, wait_us))

    def _get_and_watch(self, turn: Turn, argument: tuple[InstanceId, int]) -> InstanceRecord | None:
        id_, wait_us = argument
        rows = turn.cursor.execute(desk.GET, (id_, self._namespace)).fetchall()
        if not rows:
            return None
        found = record(rows[0])
        if found.ended_at is None:
            self._mail.watch(turn, int(found.cursor), self._host, wait_us)
        return found

    async def reply(self, id: InstanceId, message: str) -> str | None:  # noqa: A002 - it is one
        """What the instance replied to a message, if it did."""
        return await self._reader.reply(id, message)

    async def history(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        after: int,
        limit: int,
    ) -> Sequence[HistoryRow]:
        """Rows of the current run behind the version ``after``, in order."""
        return await self._reader.history(id, after=after, limit=limit)

    async def list(
        self, wanted: InstanceFilter, *, after: str | None, limit: int
    ) -> Sequence[InstanceRecord]:
        """A page of instances, oldest first."""
        return await self._reader.list(wanted, after=after, limit=limit)

    async def count(self, wanted: InstanceFilter) -> dict[InstanceStatus, int]:
        """How many match, by status."""
        return await self._reader.count(wanted)

    async def terminate(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        outcome: str,
        sends: Sequence[Message] = (),
        below: str | None = None,
    ) -> Opened:
        """End a live instance at once, taking it from its owner."""
        return await self._submit(self._moves.terminate, (id, outcome, sends, below))

    async def suspend(self, id: InstanceId) -> Opened:  # noqa: A002 - it is one
        """Let a live instance begin nothing new."""
        return await self._submit(self._moves.suspend, id)

    async def resume(self, id: InstanceId) -> Opened:  # noqa: A002 - it is one
        """Let it go on."""
        return await self._submit(self._moves.resume, id)

    async def reopen(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        version: int,
        events: str,
    ) -> Opened:
        """Let an ended instance live again."""
        return await self._submit(self._moves.reopen, (id, version, events))

    async def purge(self, ids: Sequence[InstanceId]) -> Sequence[Opened]:
        """Forget instances that have ended."""
        return await self._submit(self._moves.purge, ids, large=len(ids) > _LARGE)

    async def ring(self, ids: Sequence[InstanceId]) -> None:
        """Ring whoever a letter in these mailboxes would ring."""
        await self._submit(self._mail.ring, ids)
