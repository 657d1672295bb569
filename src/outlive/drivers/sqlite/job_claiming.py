"""Claiming: which jobs a session gets, and what it hears when there were too few.

Owns the order and the limits of claims. Runs inside one write transaction. A claim takes from the
beginning of an index, however much stands behind that. Most queues have no limits and nothing that
came due: their jobs are had without looking at anything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from outlive.drivers.sqlite import job_sql as sql
from outlive.drivers.sqlite.bells import Bells
from outlive.drivers.sqlite.job_moves import JobMoves
from outlive.drivers.sqlite.sessions import Sessions
from outlive.drivers.sqlite.transaction import Turn
from outlive.model.job import CLAIM_MAX, Claimed, ClaimedJob, ClaimRequest, Want
from outlive.names import HostId

# Due and expired jobs are moved by claims. More than a claim can take would make one of them pay
# for all; a backlog that came due at once is moved claim by claim.
_MOVE_MAX = CLAIM_MAX

_WAITING = ("scheduled", "retrying")

_Row = tuple[Any, ...]

# So many columns of a row become a ``ClaimedJob``.
_FIELDS = len(ClaimedJob.__struct_fields__)


class JobClaiming:
    """Claims of one namespace, asked for by one host."""

    def __init__(
        self,
        moves: JobMoves,
        bells: Bells,
        sessions: Sessions,
        *,
        namespace: str,
        host: HostId,
    ) -> None:
        self._moves = moves
        self._bells = bells
        self._sessions = sessions
        self._namespace = namespace
        self._host = host

    def claim(self, turn: Turn, request: ClaimRequest) -> Claimed:
        """Claim up to ``request.limit`` jobs for a living session."""
        self._sessions.check(request.session, turn.now_us)
        if request.again:
            values = (self._namespace, request.session, request.request)
            rows = turn.cursor.execute(sql.CLAIMED_BEFORE, values).fetchall()
            if rows:
                return Claimed(_jobs(rows))
        wants, limit = request.wants, min(request.limit, CLAIM_MAX)
        if request.wait_us > 0 or len(wants) > 1:
            # More than one statement may write; what a settled queue needs comes with its own.
            turn.savepoint()
        who = (request.session, self._host, request.worker, request.request, turn.wall_us)
        plain: list[_Row] | None = None
        if len(wants) == 1 and request.job is None and 0 < limit <= wants[0].limit:
            # What most claims are: as many as are wanted, of one queue that needs no closer look.
            plain = _take(turn, sql.READ_PLAIN, who, self._namespace, wants[0], limit)
            if len(plain) == limit:
                return Claimed(_jobs(plain))
        taking = _Taking(self._moves, turn, request, self._namespace, who)
        rows = taking.wanted(plain) if request.job is None else taking.target()
        if taking.fresh:
            # Before the own note is written: others hear of what this claim left to them.
            self._bells.ring(turn, taking.fresh)
        if len(rows) >= request.limit:
            # A note of this host stays: others of its callers may wait for the same queue.
            return Claimed(_jobs(rows))
        if request.wait_us > 0:
            self._bells.leave(turn, [want.queue for want in request.wants], request.wait_us)
        due = taking.due_at_us
        return Claimed(_jobs(rows), None if due is None else max(0, due - turn.wall_us) / 1e6)


class _Taking:
    """One claim under way."""

    __slots__ = (
        *("_moves", "_namespace", "_request", "_suspects", "_turn", "_who"),
        *("due_at_us", "fresh"),
    )

    def __init__(
        self, moves: JobMoves, turn: Turn, request: ClaimRequest, namespace: str, who: _Row
    ) -> None:
        self._moves = moves
        self._namespace = namespace
        self._turn = turn
        self._request = request
        self._who = who
        # Whether the claim may bring a suspect yet.
        self._suspects = request.suspects
        # Made when there is something to count: most claims leave nothing to others.
        self.fresh: Counter[str] | None = None
        self.due_at_us: int | None = None

    def wanted(self, plain: list[_Row] | None) -> list[_Row]:
        """Take from the wanted queues, in their order; ``plain`` was taken from the first."""
        taken: list[_Row] = []
        left = min(self._request.limit, CLAIM_MAX)
        for want in self._request.wants:
            if left <= 0:
                break
            limit = min(want.limit, left)
            rows, plain = plain, None
            if rows is None:
                rows = self._take(sql.READ_PLAIN, want, limit)
            if len(rows) < limit:
                rows = self._look_closer(want, limit, rows)
            left -= len(rows)
            taken += rows
        return taken

    def target(self) -> list[_Row]:
        """Take the one job that is named, if it can be had."""
        turn = self._turn
        values = (self._namespace, self._request.job)
        found = turn.cursor.execute(sql.TARGET, values).fetchall()
        if not found or self._request.limit <= 0:
            return []
        number, queue, state, blocked, due, expires = found[0]
        if not self._request.admits(queue):
            return []
        if blocked or not (state == "ready" or (state in _WAITING and due <= turn.wall_us)):
            return []
        if expires is not None and expires <= turn.wall_us:
            # It is ended by the next claim in its queue, or when the store is tended.
            return []
        settings = self._look(queue)[3:]
        if self._room(queue, settings) <= 0:
            return []
        turn.savepoint()
        mine = (want.max_losses for want in self._request.wants if want.queue == queue)
        losses = next(mine, None)
        rows = turn.cursor.execute(sql.TAKE_TARGET, (*self._who, losses, number)).fetchall()
        self._count(queue, len(rows), settings)
        return rows

    def _look(self, queue: str) -> tuple[Any, ...]:
        namespace, at = self._namespace, (self._namespace, queue)
        return self._turn.cursor.execute(sql.LOOK, (*at, namespace, *at, *at)).fetchall()[0]

    def _look_closer(self, want: Want, limit: int, plain: list[_Row]) -> list[_Row]:
        """Why a queue gave fewer jobs than wanted, and what it gives after all.

        Either it is plain, and ``plain`` is all it has, or nothing was taken from it yet.
        """
        turn, queue = self._turn, want.queue
        now = turn.wall_us
        due, expires, suspects, *settings = self._look(queue)
        if settings[0] == "paused":
            return []
        settled = settings[0] is None and not suspects
        fresh = self.fresh
        if fresh is None:
            fresh = self.fresh = Counter()
        if expires is not None and expires <= now:
            settled = False
            turn.savepoint()
            self._moves.expire(turn, _MOVE_MAX, fresh)
        promoted = 0
        if due is not None and due <= now:
            settled = False
            turn.savepoint()
            promoted = self._moves.promote_due(turn, queue, _MOVE_MAX)
            due = self._look(queue)[0]
        if due is not None and (self.due_at_us is None or due < self.due_at_us):
            self.due_at_us = due
        if settled:
            return plain
        if settings[0] is not None:
            turn.savepoint()
            limit = min(limit, self._room(queue, settings))
        rows: list[_Row] = []
        if suspects and self._suspects:
            turn.savepoint()
            rows = self._take(sql.READ_SUSPECTS, want, min(1, limit))
            self._suspects = not rows
        rows += self._take(sql.READ_NEXT, want, limit - len(rows))
        self._count(queue, len(rows), settings)
        if promoted > len(rows):
            fresh[queue] += promoted - len(rows)
        return rows

    def _take(self, read: str, want: Want, limit: int) -> list[_Row]:
        return _take(self._turn, read, self._who, self._namespace, want, limit)

    def _room(self, queue: str, settings: Sequence[Any]) -> int:
        """How many more jobs the settings of a queue let through now."""
        mode, concurrency, rate, period_us = settings
        room = CLAIM_MAX
        if mode == "paused":
            return 0
        cursor, now = self._turn.cursor, self._turn.wall_us
        if concurrency is not None:
            values = (self._namespace, queue, concurrency)
            room = concurrency - cursor.execute(sql.COUNT_CLAIMED, values).fetchall()[0][0]
        if rate is not None:
            window = (self._namespace, queue, now - period_us, now)
            used, oldest = cursor.execute(sql.RATE_WINDOW, window).fetchall()[0]
            room = min(room, rate - used)
            if rate <= used and oldest is not None:
                again = oldest + period_us
                self.due_at_us = again if self.due_at_us is None else min(again, self.due_at_us)
        return room

    def _count(self, queue: str, claims: int, settings: Sequence[Any]) -> None:
        """Count claims towards the rate of a queue, and forget those that count no more."""
        _, _, rate, period_us = settings
        if rate is not None and claims:
            now = self._turn.wall_us
            cursor = self._turn.cursor
            cursor.execute(sql.RATE_FORGET, (self._namespace, queue, now - period_us, now))
            cursor.execute(sql.RATE_COUNT, (self._namespace, queue, now, claims))


def _take(turn: Turn, read: str, who: _Row, namespace: str, want: Want, limit: int) -> list[_Row]:
    """Take the first ``limit`` jobs of those that ``read`` finds, in their order."""
    if limit <= 0:
        return []
    execute, now, at = turn.cursor.execute, turn.wall_us, (namespace, want.queue)
    unless = (*at, *at, now, namespace, now, *at) if read is sql.READ_PLAIN else ()
    rows = execute(read, (*at, now, *unless, limit)).fetchall()
    if len(rows) == 1:
        execute(sql.TAKE_ONE, (*who, want.max_losses, rows[0][_FIELDS]))
    elif rows:
        execute(sql.TAKE_NEXT, (*who, want.max_losses, *at, now, len(rows)))
    return rows


def _jobs(rows: list[_Row]) -> tuple[ClaimedJob, ...]:
    return tuple([ClaimedJob(*row[:_FIELDS]) for row in rows])
