"""How instances advance: commits of many in one statement, each judged by itself.

Owns what a missing row of an answer means. Plain commits, which record events and say how the
instance goes on, have a statement of their own; those that bring more have a longer one. Both are
shared by commits that come at the same time. A commit whose jobs have keys takes a transaction.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from outlive.drivers.postgres import instance_mail_sql, instance_sql
from outlive.drivers.postgres.coalescer import Coalescer
from outlive.drivers.postgres.instance_start import InstanceStarter
from outlive.drivers.postgres.job_enqueue import NOT_TAKEN, JobEnqueuer, has_key
from outlive.drivers.postgres.job_tables import JobTables, place
from outlive.drivers.postgres.transactions import Run
from outlive.errors import StoreUnavailable, UsageError
from outlive.model.instance import EVENTS_BYTES_MAX, Commit, Committed
from outlive.names import InstanceId

# A row that was changed between the snapshot and the lock (somebody suspended it) is met again.
# Three times in a row is no accident.
_ROUNDS_MAX = 3

# The longest statement of one call; more are sent in several.
_CALL_MAX = 200

_encode = msgspec.json.Encoder().encode


class _Part(msgspec.Struct):
    """Something that the commit number ``c`` of a batch brings along; ``n`` counts them."""

    c: int
    n: int
    v: Any


class InstanceCommitter:
    """Commits to the tables of one namespace."""

    def __init__(self, tables: JobTables, starter: InstanceStarter, enqueuer: JobEnqueuer) -> None:
        self._tables = tables
        self._starter = starter
        self._enqueuer = enqueuer
        self._quiet_sql = tables.text(instance_sql.COMMIT_QUIET)
        self._plain_sql = tables.text(instance_sql.COMMIT)
        self._more_sql = tables.text(instance_mail_sql.COMMIT_MORE)
        self._look_sql = tables.text(instance_sql.LOOK_COMMITTED)
        # One that is carried out late meets its own token and version, or changes nothing.
        self._plain = Coalescer[Commit, Committed](
            self._commit_batch, abandons=tables.abandons, lone=True
        )
        self._more = Coalescer[Commit, Committed](
            self._commit_batch, abandons=tables.abandons, lone=True
        )
        # Whether nobody was told of what ended last, so that the shorter statement is likely to do.
        # A hint: whatever that leaves is asked of the general one.
        self._quiet = True
        # Instances whose row a transaction of a user may hold just now: no batch waits for them.
        self._apart: set[InstanceId] = set()

    async def commit(self, commits: Sequence[Commit]) -> Sequence[Committed]:
        """Advance instances; see the port."""
        if len(commits) == 1:
            return [await self._commit_one(commits[0])]
        answers: dict[int, Committed] = {}
        together: tuple[list[int], list[int]] = ([], [])
        for index, commit in enumerate(commits):
            if commit.id in self._apart or _has_keys(commit):
                answers[index] = await self._commit_one(commit)
            else:
                together[_is_plain(commit)].append(index)
        for indexes in together:
            for start in range(0, len(indexes), _CALL_MAX):
                part = indexes[start : start + _CALL_MAX]
                made = await self._commit_batch([commits[index] for index in part])
                answers.update(zip(part, made, strict=True))
        return [answers[index] for index in range(len(commits))]

    @contextmanager
    def apart(self, id_: InstanceId) -> Generator[None, None, None]:
        """Keep the commits of an instance out of batches meanwhile."""
        self._apart.add(id_)
        try:
            yield
        finally:
            self._apart.discard(id_)

    async def commit_in(self, run: Run, commit: Commit) -> tuple[Committed, bool]:
        """Commit with statements of a transaction; the second says that it had been made before."""
        check_size(commit)
        keyed = _has_keys(commit)
        repeats: set[int] = set()
        bare = msgspec.structs.replace(commit, jobs=()) if keyed else commit
        (made,) = await self._advance(run, [bare], repeats)
        if made.ok and keyed and not repeats:
            await self._enqueuer.enqueue_within(run, commit.jobs)
        return made, bool(repeats)

    async def close(self) -> None:
        """End the batches. Repeatable."""
        await self._plain.close()
        await self._more.close()

    async def _commit_one(self, commit: Commit) -> Committed:
        if _has_keys(commit):
            made, _ = await self._tables.transact(lambda run: self.commit_in(run, commit))
            return made
        check_size(commit)
        if commit.id in self._apart:
            (made,) = await self._commit_batch([commit])
            return made
        line = self._plain if _is_plain(commit) else self._more
        return await line.submit(commit.id, commit)

    async def _commit_batch(self, batch: Sequence[Commit]) -> Sequence[Committed]:
        return await self._advance(self._tables.fetch, batch, set())

    async def _advance(
        self, run: Run, batch: Sequence[Commit], repeats: set[int]
    ) -> list[Committed]:
        """One answer for each; adds the places of those that had been made before."""
        answers: dict[int, Committed] = {}
        left = list(range(len(batch)))
        for _ in range(_ROUNDS_MAX):
            part = batch if len(left) == len(batch) else [batch[index] for index in left]
            for number, row in await self._send(run, part):
                index = left[number]
                met = row["met"] if len(row) > _PLAIN_COLUMNS else None
                taken = await self._taken(run, batch[index], met) if met else ()
                answers[index] = Committed(True, row["at_us"], row["suspended"], taken)
            if len(answers) == len(batch):
                return [answers[index] for index in range(len(batch))]
            left = [index for index in left if index not in answers]
            await self._look(run, batch, left, answers, repeats)
            left = [index for index in left if index not in answers]
            if not left:
                return [answers[index] for index in range(len(batch))]
        raise StoreUnavailable("these instances changed during every attempt; try again")

    async def _send(self, run: Run, batch: Sequence[Commit]) -> list[tuple[int, Any]]:
        """The rows of those that are made, with their places in the batch."""
        if all(map(_is_plain, batch)):
            return await self._send_plain(run, batch)
        rows = await run(
            self._more_sql,
            *_columns(batch),
            [commit.restart for commit in batch],
            [n for n, commit in enumerate(batch, 1) for _ in commit.consumed],
            [number for commit in batch for number in commit.consumed],
            _parts(batch, "sends"),
            _parts(batch, "starts"),
            _parts(batch, "jobs"),
            _parts(batch, "replies"),
            self._tables.channel,
            NOT_TAKEN,
        )
        return [(place(row), row) for row in rows]

    async def _send_plain(self, run: Run, batch: Sequence[Commit]) -> list[tuple[int, Any]]:
        made: list[tuple[int, Any]] = []
        left = range(len(batch))
        if self._quiet and not any(commit.release for commit in batch):
            rows = await run(self._quiet_sql, *_columns(batch))
            made = [(place(row), row) for row in rows]
            if len(made) == len(batch):
                return made
            done = {number for number, _ in made}
            left = [number for number in left if number not in done]
        members = [batch[number] for number in left]
        rows = await run(self._plain_sql, *_columns(members), self._tables.channel)
        if rows:
            self._quiet = not rows[0]["rung"]
        return [*made, *((left[place(row)], row) for row in rows)]

    async def _look(
        self,
        run: Run,
        batch: Sequence[Commit],
        left: Sequence[int],
        answers: dict[int, Committed],
        repeats: set[int],
    ) -> None:
        """Judge commits that changed nothing; those that may be tried again get no answer."""
        commits = [batch[index] for index in left]
        rows = await run(
            self._look_sql,
            [commit.id for commit in commits],
            [commit.token for commit in commits],
            [commit.version for commit in commits],
            [commit.commit for commit in commits],
        )
        for row in rows:
            index = left[place(row)]
            made_at_us = row["made_at_us"]
            if made_at_us is not None:
                repeats.add(index)
                starts = [new.id for new in batch[index].starts]
                taken = await self._taken(run, batch[index], starts)
                suspended = bool(row["suspended"])
                answers[index] = Committed(True, made_at_us, suspended, taken, repeated=True)
            elif not row["stands"]:
                answers[index] = Committed(False, row["at_us"])

    async def _taken(self, run: Run, commit: Commit, ids: Sequence[str]) -> tuple[InstanceId, ...]:
        """Which of the starts of a commit others had already."""
        met = set(ids)
        others = await self._starter.others(run, [new for new in commit.starts if new.id in met])
        return tuple(new.id for new in commit.starts if new.id in others)


# n, suspended, at_us and rung; what a longer statement says comes behind them.
_PLAIN_COLUMNS = 4


def check_size(commit: Commit) -> None:
    """Refuse events that are too long for one row.

    Raises:
        UsageError: They are.
    """
    if len(commit.events) > EVENTS_BYTES_MAX:
        raise UsageError(
            f"one commit of {commit.id} records {len(commit.events)} characters of events; at "
            f"most {EVENTS_BYTES_MAX} are allowed: return less data from its steps"
        )


def _is_plain(commit: Commit) -> bool:
    return not (
        commit.consumed
        or commit.sends
        or commit.starts
        or commit.jobs
        or commit.replies
        or commit.restart is not None
    )


def _has_keys(commit: Commit) -> bool:
    return any(map(has_key, commit.jobs))


def _columns(batch: Sequence[Commit]) -> tuple[list[Any], ...]:
    return (
        [commit.id for commit in batch],
        [commit.token for commit in batch],
        [commit.version for commit in batch],
        [commit.commit for commit in batch],
        [commit.events for commit in batch],
        _sparse([commit.due_at_us for commit in batch]),
        [commit.status for commit in batch],
        _sparse([commit.outcome for commit in batch]),
        _sparse([commit.custom for commit in batch]),
        _sparse([commit.attributes for commit in batch]),
        _sparse([commit.release or None for commit in batch]),
    )


def _sparse(column: list[Any]) -> list[Any]:
    """Nothing for a column of nulls: where arrays differ in length, the shorter ends in nulls."""
    return column if any(value is not None for value in column) else []


def _parts(batch: Sequence[Commit], name: str) -> str:
    """What the commits bring along under one name, as JSON."""
    parts: list[_Part] = []
    for c, commit in enumerate(batch, 1):
        brought: Sequence[Any] = getattr(commit, name)
        before = len(parts)
        parts.extend(_Part(c, before + k, value) for k, value in enumerate(brought, 1))
    return _encode(parts).decode() if parts else "[]"
