"""Looking after jobs: what was lost, what operators want, what has expired or been kept enough.

Owns the moves that no claimant makes. Each runs inside one write transaction, in bounded batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from outlive.drivers.sqlite import job_sql as sql
from outlive.drivers.sqlite import job_upkeep_sql as upkeep
from outlive.drivers.sqlite.bells import Bells
from outlive.drivers.sqlite.job_moves import Ended, JobMoves
from outlive.drivers.sqlite.job_reader import settings_of
from outlive.drivers.sqlite.sessions import Sessions
from outlive.drivers.sqlite.statements import as_json
from outlive.drivers.sqlite.transaction import Bell, Turn
from outlive.model.job import (
    CLAIM_MAX,
    FINAL,
    Changed,
    JobState,
    QueueMode,
    QueuePart,
    QueueSettings,
    Reclaimed,
    Tended,
    put_parts,
)
from outlive.names import HostId, JobId

_WAITING = (JobState.SCHEDULED, JobState.RETRYING)
_REVIVABLE = (JobState.DEAD, JobState.CANCELLED)


class JobUpkeep:
    """The upkeep of one namespace."""

    def __init__(
        self, moves: JobMoves, bells: Bells, sessions: Sessions, *, namespace: str
    ) -> None:
        self._moves = moves
        self._bells = bells
        self._sessions = sessions
        self._namespace = namespace

    def reclaim(self, turn: Turn, limit: int) -> list[Reclaimed]:
        """Take claims from sessions that are gone, and count the losses."""
        cursor = turn.cursor
        claimants = cursor.execute(upkeep.CLAIMANTS, (self._namespace,)).fetchall()
        gone = self._sessions.gone([session for (session,) in claimants])
        if not gone:
            return []
        turn.savepoint()
        values = (turn.wall_us, turn.wall_us, self._namespace, as_json(gone), max(0, limit))
        rows = cursor.execute(upkeep.RECLAIM, values).fetchall()
        self._moves.keep_troubles(
            turn, [(row[3], row[4], "lost", row[7], row[8], None) for row in rows]
        )
        fresh = Counter(row[1] for row in rows if row[2] == JobState.READY)
        ended = (Ended(row[3], row[1], row[5], row[6], row[9]) for row in rows if row[2] in FINAL)
        self._moves.after_end(turn, ended, fresh)
        self._moves.after_claims(turn, (row[1] for row in rows), fresh)
        self._bells.ring(turn, fresh)
        return [Reclaimed(JobId(row[0]), row[1], JobState(row[2])) for row in rows]

    def cancel(self, turn: Turn, argument: tuple[Sequence[JobId], str]) -> list[Changed]:
        """End live jobs as cancelled, or ask their claimants to."""
        ids, reason = argument
        turn.savepoint()
        standing = self._standing(turn, ids)
        claimed = [row for row in standing.values() if row[2] == JobState.CLAIMED]
        ending = [row for row in standing.values() if row[2] not in (*FINAL, JobState.CLAIMED)]
        why = as_json(reason)
        if claimed:
            turn.cursor.execute(upkeep.REQUEST_CANCEL, (why, _numbers(claimed)))
            turn.freed += [Bell(HostId(row[4]), f"cancel/{row[0]}") for row in claimed]
        if ending:
            turn.cursor.execute(upkeep.CANCEL, (why, turn.wall_us, turn.wall_us, _numbers(ending)))
            fresh: Counter[str] = Counter()
            ended = (Ended(row[1], row[3], row[5], row[6], row[8]) for row in ending)
            self._moves.after_end(turn, ended, fresh)
            self._bells.ring(turn, fresh)
        return [_cancelled(standing.get(id_)) for id_ in ids]

    def retry(self, turn: Turn, ids: Sequence[JobId]) -> list[Changed]:
        """Make jobs ready now, those that ended badly from the beginning."""
        turn.savepoint()
        standing = self._standing(turn, ids)
        ready: list[tuple[int, str, bool]] = []
        changed = {id_: self._retry(turn, row, ready) for id_, row in standing.items()}
        self._moves.promote(turn, [number for number, _, _ in ready])
        self._bells.ring(turn, Counter(queue for _, queue, blocked in ready if not blocked))
        return [changed.get(id_, Changed.NOT_FOUND) for id_ in ids]

    def _retry(
        self, turn: Turn, row: tuple[Any, ...], ready: list[tuple[int, str, bool]]
    ) -> Changed:
        _, number, state, queue, *_ = row
        if state == JobState.READY:
            return Changed.CHANGED
        if state in _WAITING:
            statement, values = upkeep.HASTEN, (turn.wall_us, number)
        elif state in _REVIVABLE:
            statement, values = upkeep.REVIVE, (turn.wall_us, turn.wall_us, number)
        else:
            return Changed.REFUSED
        rows = turn.cursor.execute(statement, values).fetchall()
        if not rows:
            # Another live job has its unique key by now.
            return Changed.REFUSED
        ready.append((number, queue, bool(rows[0][0])))
        return Changed.CHANGED

    def purge(self, turn: Turn, ids: Sequence[JobId]) -> list[Changed]:
        """Forget jobs that have ended."""
        turn.savepoint()
        standing = self._standing(turn, ids)
        ended = [row for row in standing.values() if row[2] in FINAL]
        if ended:
            turn.cursor.execute(sql.REMOVE_MANY, (_numbers(ended),))
        gone = {row[0] for row in ended}
        return [
            Changed.NOT_FOUND
            if id_ not in standing
            else Changed.CHANGED
            if id_ in gone
            else Changed.REFUSED
            for id_ in ids
        ]

    def tend(self, turn: Turn, limit: int) -> Tended:
        """End what has expired, and remove what was kept long enough."""
        turn.savepoint()
        fresh: Counter[str] = Counter()
        expired = self._moves.expire(turn, max(0, limit), fresh)
        self._bells.ring(turn, fresh)
        values = (self._namespace, turn.wall_us, max(0, limit))
        pruned = turn.cursor.execute(upkeep.PRUNE, values).rowcount
        return Tended(expired, pruned)

    def put_queue(self, turn: Turn, asked: tuple[QueueSettings, Collection[QueuePart]]) -> None:
        """Let settings hold for a queue, and ring for what they let through, now or later.

        While a queue is paused nobody is told when its next job is due.
        """
        turn.savepoint()
        wanted, parts = asked
        name = wanted.name
        rows = turn.cursor.execute(upkeep.QUEUE, (self._namespace, name)).fetchall()
        settings = put_parts(settings_of(rows[0]) if rows else None, wanted, parts)
        turn.cursor.execute(
            upkeep.PUT_QUEUE,
            (
                *(self._namespace, name, settings.mode.value),
                *(settings.concurrency, settings.rate, settings.rate_period_us),
                settings.limits_by.value,
            ),
        )
        if settings.mode is not QueueMode.PAUSED:
            values = (self._namespace, name, CLAIM_MAX)
            count = turn.cursor.execute(upkeep.COUNT_READY, (*values, *values)).fetchall()[0][0]
            if count:
                self._bells.ring(turn, {name: count})

    def _standing(self, turn: Turn, ids: Sequence[JobId]) -> dict[str, tuple[Any, ...]]:
        values = (as_json(ids), self._namespace)
        return {row[0]: row for row in turn.cursor.execute(upkeep.STANDING, values).fetchall()}


def _numbers(rows: Sequence[tuple[Any, ...]]) -> str:
    return as_json([row[1] for row in rows])


def _cancelled(row: tuple[Any, ...] | None) -> Changed:
    if row is None:
        return Changed.NOT_FOUND
    if row[2] == JobState.CLAIMED:
        return Changed.REQUESTED
    # Asked again after a lost reply, it is as was wished.
    if row[2] in (JobState.DONE, JobState.DEAD):
        return Changed.REFUSED
    return Changed.CHANGED
