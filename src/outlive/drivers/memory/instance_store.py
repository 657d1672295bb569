"""Instances in memory: each method one step under the lock that they share with the jobs.

Owns the port; the moves are in ``instance_step``, a commit in ``instance_commit``, the choice of a
claim in ``instance_claim``. Never awaits while it holds the lock, and never rings under it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import NoReturn

from outlive.drivers.memory import instance_operate
from outlive.drivers.memory.host_store import check_alive
from outlive.drivers.memory.instance_claim import (
    claimed_before,
    leave_notes,
    next_due_s,
    take,
    with_letters,
)
from outlive.drivers.memory.instance_commit import advance
from outlive.drivers.memory.instance_records import claimed_of, letters_of, matches, record_of
from outlive.drivers.memory.instance_step import InstanceStep
from outlive.drivers.memory.job_step import JobStep
from outlive.drivers.memory.rows import Space
from outlive.errors import UnsupportedByDriver, UsageError
from outlive.model.instance import (
    START_MAX,
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
from outlive.model.lease import LIST_LIMIT_MAX
from outlive.names import HostId, InstanceId
from outlive.ports.instance_store import Body

Steps = Callable[[], AbstractContextManager[JobStep]]


class MemoryInstanceStore:
    """The ``InstanceStore`` of one namespace, for one host. ``steps`` begins a step of its jobs."""

    def __init__(self, space: Space, host: HostId, steps: Steps) -> None:
        self._space = space
        self._host = host
        self._steps = steps

    @contextmanager
    def _step(self) -> Generator[InstanceStep, None, None]:
        """One step under the lock; who waits for what it made claimable is rung after it."""
        with self._steps() as jobs:
            step = InstanceStep(self._space.instances, jobs)
            yield step
            step.call_waiting()

    def _check_session(self, step: InstanceStep, session: HostId) -> None:
        check_alive(self._space, session, step.clock_us)

    async def start(self, instances: Sequence[NewInstance]) -> Sequence[Started]:
        """Start instances; see the port."""
        if len(instances) > START_MAX:
            raise UsageError(
                f"{len(instances)} instances in one call; at most {START_MAX} are allowed: use "
                "several calls"
            )
        with self._step() as step:
            for session in {new.session for new in instances}:
                if session is not None:
                    self._check_session(step, session)
            return [step.add(new, self._host) for new in instances]

    async def start_in(self, instances: Sequence[NewInstance], tx: object) -> Sequence[Started]:
        """Refuse: there is no transaction in memory to join."""
        del instances, tx
        _refuse_transactions("leave tx out")

    async def claim(self, request: InstanceClaimRequest) -> ClaimedInstances:
        """Claim what is due or has letters; see the port."""
        with self._step() as step:
            self._check_session(step, request.session)
            taken = claimed_before(step, request) if request.again else []
            due_s = None
            if not taken:
                taken = take(step, request, self._host)
                if len(taken) < request.limit:
                    due_s = next_due_s(step, request)
                    if request.wait_us > 0:
                        leave_notes(step, request, self._host)
            return ClaimedInstances(
                tuple(map(claimed_of, taken)),
                step.now_us,
                due_s,
                with_letters(step, request.session, taken),
            )

    async def commit(self, commits: Sequence[Commit]) -> Sequence[Committed]:
        """Advance instances; see the port."""
        with self._step() as step:
            return [advance(step, commit, self._host) for commit in commits]

    async def transact(self, id: InstanceId, body: Body) -> Committed:  # noqa: A002 - it is one
        """Refuse: there is no transaction in memory to run anything in."""
        del id, body
        _refuse_transactions("write to your own store with the step's idempotency key")

    async def release(self, handbacks: Sequence[Handback]) -> Sequence[bool]:
        """Give instances up; see the port."""
        with self._step() as step:
            return [_give_up(step, handback) for handback in handbacks]

    async def letters(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        after: int,
        limit: int,
    ) -> Sequence[Letter]:
        """The letters of a mailbox; see the port."""
        with self._step() as step:
            row = step.table.rows.get(id)
            return () if row is None else letters_of(row, after, limit)

    async def send(self, messages: Sequence[Message]) -> Sequence[Sent]:
        """Put messages into mailboxes; see the port."""
        with self._step() as step:
            return [step.send(message) for message in messages]

    async def reclaim(self, *, limit: int) -> Sequence[ReclaimedInstance]:
        """Take what sessions had that are gone; see the port."""
        with self._step() as step:
            owned, sessions = step.table.owned, self._space.sessions
            lost = (id_ for host, ids in owned.items() if host not in sessions for id_ in ids)
            return [_lose(step, id_) for id_ in list(islice(lost, limit))]

    async def tend(self, *, limit: int) -> int:
        """Remove what was kept long enough; see the port."""
        with self._step() as step:
            table, removed = step.table, 0
            while removed < limit and (first := table.kept.first()) is not None:
                if first[0][0] > step.now_us:
                    break
                table.remove(table.rows[first[1]])
                removed += 1
            return removed

    async def get(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        wait_us: int = 0,
    ) -> InstanceRecord | None:
        """What is known of one instance; see the port."""
        with self._step() as step:
            row = step.table.rows.get(id)
            if row is None:
                return None
            if wait_us > 0 and row.ended is None:
                until_us = step.clock_us + wait_us
                row.watchers[self._host] = max(until_us, row.watchers.get(self._host, 0))
            return record_of(row)

    async def reply(self, id: InstanceId, message: str) -> str | None:  # noqa: A002 - it is one
        """What the instance replied; see the port."""
        with self._step() as step:
            row = step.table.rows.get(id)
            return None if row is None else row.replies.get(message)

    async def history(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        after: int,
        limit: int,
    ) -> Sequence[HistoryRow]:
        """Rows of the current run; see the port."""
        with self._step() as step:
            row = step.table.rows.get(id)
            if row is None:
                return ()
            start = max(0, after - row.base)
            return [kept.row for kept in row.history[start : start + max(0, limit)]]

    async def list(
        self, wanted: InstanceFilter, *, after: str | None, limit: int
    ) -> Sequence[InstanceRecord]:
        """A page of instances; see the port."""
        with self._step() as step:
            rows = step.table.roll.after(int(after) if after is not None else 0)
            meant = (record_of(row) for row in rows if matches(row, wanted))
            return [*islice(meant, max(0, min(limit, LIST_LIMIT_MAX)))]

    async def count(self, wanted: InstanceFilter) -> dict[InstanceStatus, int]:
        """How many match; see the port."""
        with self._step() as step:
            counts = dict[InstanceStatus, int]()
            for row in step.table.rows.values():
                if matches(row, wanted):
                    counts[row.status] = counts.get(row.status, 0) + 1
            return counts

    async def terminate(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        outcome: str,
        sends: Sequence[Message] = (),
        below: str | None = None,
    ) -> Opened:
        """End a live instance at once; see the port."""
        with self._step() as step:
            return instance_operate.terminate(step, step.table.rows.get(id), outcome, sends, below)

    async def suspend(self, id: InstanceId) -> Opened:  # noqa: A002 - it is one
        """Let a live instance begin nothing new; see the port."""
        with self._step() as step:
            return instance_operate.suspend(step, step.table.rows.get(id))

    async def resume(self, id: InstanceId) -> Opened:  # noqa: A002 - it is one
        """Let it go on; see the port."""
        with self._step() as step:
            return instance_operate.resume(step, step.table.rows.get(id))

    async def reopen(
        self,
        id: InstanceId,  # noqa: A002 - it is one
        *,
        version: int,
        events: str,
    ) -> Opened:
        """Let an ended instance live again; see the port."""
        with self._step() as step:
            return instance_operate.reopen(step, step.table.rows.get(id), version, events)

    async def purge(self, ids: Sequence[InstanceId]) -> Sequence[Opened]:
        """Forget instances that have ended; see the port."""
        with self._step() as step:
            return [instance_operate.purge(step, step.table.rows.get(id_)) for id_ in ids]

    async def ring(self, ids: Sequence[InstanceId]) -> None:
        """Ring whoever a letter would ring; see the port."""
        with self._step() as step:
            for id_ in ids:
                row = step.table.rows.get(id_)
                if row is None or row.ended is not None:
                    continue
                step.call_owner(row, "mail")
                if row.owner is None and not row.suspended:
                    step.freshen(row)


def _give_up(step: InstanceStep, handback: Handback) -> bool:
    row = step.table.rows.get(handback.id)
    if row is None or row.owner is None or row.token != handback.token:
        return False
    step.leave(row)
    if handback.due:
        row.due_us = step.now_us
    step.place(row)
    return True


def _lose(step: InstanceStep, id_: InstanceId) -> ReclaimedInstance:
    """The session of the owner is gone: let somebody look at what it left."""
    row = step.table.rows[id_]
    step.leave(row)
    row.token += 1
    row.due_us = step.now_us
    step.place(row)
    return ReclaimedInstance(row.id, row.new.kind, row.new.name)


def _refuse_transactions(advice: str) -> NoReturn:
    raise UnsupportedByDriver(
        f"the memory store has no transactions; {advice}, or use SQLite or Postgres"
    )
