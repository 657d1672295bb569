"""Who waits for jobs, and who is rung when there are some.

Owns the notes of waiting hosts. A note is taken in the transaction that makes jobs claimable, and
its host is rung after COMMIT. A note is a hint: losing one costs latency, never work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.drivers.sqlite.statements import Operation, Statement
from holdfast.drivers.sqlite.transaction import Bell, Turn
from holdfast.names import HostId

# The oldest notes of a queue that gives jobs. A host whose time to wait is over is not rung, and
# one that was called already need not be.
_OLDEST = """
    SELECT w.note FROM holdfast_job_waiter AS w
    WHERE w.namespace = ?1 AND w.queue = ?2 AND w.until_at_us > ?3 AND w.called = 0
      AND NOT EXISTS (
          SELECT 1 FROM holdfast_queue AS q
          WHERE q.namespace = ?1 AND q.name = ?2 AND q.mode = 'paused'
      )
    ORDER BY w.note LIMIT ?4
"""
_TAKE = "DELETE FROM holdfast_job_waiter WHERE note IN ({oldest}) RETURNING host"
_TAKE_NOTES = _TAKE.format(oldest=_OLDEST)
_CALL = "UPDATE holdfast_job_waiter SET called = ?5 WHERE note IN ({oldest})"
_CALL_NOTED = _CALL.format(oldest=_OLDEST)

# A host that is noted already keeps its place, and may be called anew.
_LEAVE_NOTE = """
INSERT INTO holdfast_job_waiter (namespace, queue, host, until_at_us) VALUES (?, ?, ?, ?)
ON CONFLICT (namespace, queue, host) DO UPDATE
SET until_at_us = max(until_at_us, excluded.until_at_us), called = 0
"""
_FORGET_OLD = (
    "DELETE FROM holdfast_job_waiter WHERE namespace = ? AND queue = ? AND until_at_us <= ?"
)


class JobBells:
    """The notes of one namespace; ``host`` is whoever asks through this driver."""

    def __init__(self, namespace: str, host: HostId) -> None:
        self._namespace = namespace
        self._host = host

    def ring(self, turn: Turn, fresh: Mapping[str, int]) -> None:
        """Ring for jobs that became claimable: how many there are of each queue.

        One host more than there are jobs: the first may be dead, or take less than it wanted.
        """
        for queue, count in fresh.items():
            values = (self._namespace, queue, turn.wall_us, count + 1)
            for (host,) in turn.cursor.execute(_TAKE_NOTES, values).fetchall():
                turn.freed.append(Bell(HostId(host), f"work/{queue}"))

    def call(self, fresh: Mapping[str, int], number: int, now_us: int) -> Operation[None]:
        """Do the same inside a transaction of the user's, after which nobody can ring.

        The notes stay and say so; their hosts find them when they look at the file. ``number`` is
        that of the newest job, which tells one call from the next.
        """
        for queue, count in fresh.items():
            values = (self._namespace, queue, now_us, count + 1, number)
            yield Statement(_CALL_NOTED, values)

    def leave(self, turn: Turn, queues: Iterable[str], wait_us: int) -> None:
        """Note that this host waits for jobs of ``queues``."""
        until = turn.wall_us + wait_us
        for queue in queues:
            turn.cursor.execute(_FORGET_OLD, (self._namespace, queue, turn.wall_us))
            turn.cursor.execute(_LEAVE_NOTE, (self._namespace, queue, self._host, until))
