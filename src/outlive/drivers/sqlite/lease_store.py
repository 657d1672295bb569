"""Leases on SQLite: each operation is one step of the file's one writer.

Owns the lease port. The hot operations are one statement each; refusals and semaphores are decided
by ``contention``, reading is done by ``lease_reader``. It must never decide ownership from a read
outside the write transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from outlive.drivers.sqlite import lease_sql as sql
from outlive.drivers.sqlite.contention import Contention
from outlive.drivers.sqlite.joint import Joint
from outlive.drivers.sqlite.lease_history import LeaseHistory
from outlive.drivers.sqlite.lease_joint import LeaseJoint
from outlive.drivers.sqlite.lease_reader import LeaseReader, fenced_by
from outlive.drivers.sqlite.statements import Operation, Statement
from outlive.drivers.sqlite.transaction import Turn
from outlive.drivers.sqlite.user_transactions import UserTransactions
from outlive.drivers.sqlite.writer import Writer
from outlive.errors import LeaseExpired, LeaseLost, LeaseNotFound
from outlive.model.lease import (
    AcquireRequest,
    Grant,
    Held,
    LeaseRecord,
    Tenancy,
)
from outlive.names import Owner, WaiterId


class SqliteLeaseStore:
    """The lease port of one namespace in one file."""

    def __init__(
        self,
        writer: Writer,
        reader: LeaseReader,
        users: UserTransactions,
        *,
        namespace: str,
        domain: str,
    ) -> None:
        self._submit = partial(users.write, writer)
        self._reader = reader
        self._users = users
        self._namespace = namespace
        self._domain = domain
        self._history = LeaseHistory(namespace)
        self._contention = Contention(namespace, domain, self._history)
        joint = LeaseJoint(namespace, domain, self._history)
        # What a batch gives up is free for those who ask in the same batch.
        self._releasing = Joint(self._release, joint.release, rank=0)
        self._acquiring = Joint(self._acquire, joint.acquire, rank=1)

    async def acquire(self, request: AcquireRequest) -> Grant | Held:
        """Own the key if it is free, expired, or already owned by the same owner."""
        return await self._submit(self._acquiring, request)

    async def renew(self, grant: Grant, ttl_us: int, *, state: str | None = None) -> Grant:
        """Extend ``grant`` so that it ends ``ttl_us`` from now."""
        return await self._submit(self._renew, (grant, ttl_us, state))

    async def release(self, grant: Grant) -> None:
        """Give the key up, keep its token, and wake the head of its queue."""
        await self._submit(self._releasing, grant)

    async def leave(self, key: str, waiter: WaiterId, owner: Owner) -> None:
        """Give up a place in the queue."""
        await self._submit(self._leave, (key, waiter, owner))

    async def break_lease(self, key: str, *, reason: str) -> Sequence[LeaseRecord]:
        """End every grant of ``key``; the token grows, so that old writes are fenced."""
        return await self._submit(self._break, (key, reason))

    async def get(self, key: str) -> Sequence[LeaseRecord]:
        """The records of ``key``, one per slot."""
        return self._reader.get(key)

    async def list(
        self, *, prefix: str, owner: str | None, active: bool, after: str | None, limit: int
    ) -> Sequence[LeaseRecord]:
        """A page of records whose key starts with ``prefix``, in code-point order."""
        return self._reader.list(
            prefix=prefix, owner=owner, active=active, after=after, limit=limit
        )

    async def history(self, key: str, *, limit: int) -> Sequence[Tenancy]:
        """The newest entries of the key's history, the present owner included."""
        return self._reader.history(key, limit=limit)

    async def raw(self, key: str) -> Sequence[Mapping[str, object]]:
        """The rows of ``key``, column by column."""
        return self._reader.raw(key)

    async def guard(self, grant: Grant, tx: object) -> None:
        """Prove inside the caller's transaction that ``grant`` is the newest, and keep it so."""
        if not await self._users.run("guard", self._guarding(grant), tx):
            raise self._reader.fenced(grant)

    def _guarding(self, grant: Grant) -> Operation[bool]:
        """Write the row without changing it, which keeps everybody else from it."""
        values = (self._namespace, grant.key, grant.slot, grant.token, grant.owner)
        return bool((yield Statement(sql.GUARD, values)))

    def _acquire(self, turn: Turn, request: AcquireRequest) -> Grant | Held:
        if request.limit != 1:
            return self._contention.acquire(turn, request)
        now, wall = turn.now_us, turn.wall_us
        waiter = request.waiter
        values = (
            self._namespace,
            request.key,
            request.owner,
            request.host,
            self._domain,
            now + request.ttl_us,
            now,
            request.ttl_us,
            wall,
            wall,
            request.metadata,
        )
        if waiter is None:
            row = turn.cursor.execute(sql.ACQUIRE_AS_NEWCOMER, values).fetchone()
        else:
            row = turn.cursor.execute(sql.ACQUIRE_AS_WAITER, (*values, waiter)).fetchone()
        if row is None:
            return self._contention.acquire(turn, request)
        token, version, state, previous, endings = row
        self._history.look(turn, request.key, 0, endings)
        return Grant(request.key, 0, request.owner, token, version, request.ttl_us, state, previous)

    def _renew(self, turn: Turn, argument: tuple[Grant, int, str | None]) -> Grant:
        grant, ttl_us, state = argument
        now = turn.now_us
        row = turn.cursor.execute(
            sql.RENEW,
            (
                *(now + ttl_us, ttl_us, turn.wall_us, state),
                *(self._namespace, grant.key, grant.slot, grant.owner, grant.token),
                *(self._domain, now),
            ),
        ).fetchone()
        if row is None:
            raise self._lost(turn, grant)
        return Grant(
            grant.key,
            grant.slot,
            grant.owner,
            grant.token,
            row[0],
            ttl_us,
            row[1],
            grant.previous_owner,
        )

    def _release(self, turn: Turn, grant: Grant) -> None:
        row = turn.cursor.execute(
            sql.RELEASE,
            (
                turn.now_us,
                turn.wall_us,
                self._namespace,
                grant.key,
                grant.slot,
                grant.owner,
                grant.token,
            ),
        ).fetchone()
        if row is None:
            raise self._lost(turn, grant)
        (awaited,) = row
        if awaited:
            turn.freed.append(grant.key)

    def _leave(self, turn: Turn, argument: tuple[str, WaiterId, Owner]) -> None:
        key, waiter, owner = argument
        turn.cursor.execute(sql.LEAVE, (self._namespace, key, owner, waiter))
        # Whether the key is free, and who comes next, is looked up after COMMIT.
        turn.freed.append(key)

    def _break(self, turn: Turn, argument: tuple[str, str]) -> Sequence[LeaseRecord]:
        key, reason = argument
        turn.savepoint()
        slots = turn.cursor.execute(sql.SLOTS, (self._namespace, key)).fetchall()
        if not slots:
            raise LeaseNotFound(key)
        records = self._reader.records_of(turn.cursor, key, turn.now_us, turn.wall_us)
        token = max(row[2] for row in slots) + 1
        turn.cursor.execute(
            sql.BREAK,
            (
                *(self._domain, turn.now_us, turn.wall_us, reason, token),
                *(self._namespace, key),
            ),
        )
        if turn.cursor.rowcount > 0:
            turn.freed.append(key)
        return [record for record in records if record.active]

    def _lost(self, turn: Turn, grant: Grant) -> LeaseLost:
        """Why a write by the owner of ``grant`` was refused."""
        row = turn.cursor.execute(
            sql.REFUSED_ROW, (self._namespace, grant.key, grant.slot)
        ).fetchone()
        if row is not None and row[0] == grant.owner and row[1] == grant.token:
            return LeaseExpired(grant.key)
        ended = turn.cursor.execute(
            sql.ENDED_OF, sql.of_chain(self._namespace, grant.key, grant.token)
        ).fetchone()
        return fenced_by(grant, ended)
