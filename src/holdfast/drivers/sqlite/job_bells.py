"""Who waits for jobs, and who is rung when there are some.

Owns the notes of waiting hosts. A note is taken in the transaction that makes jobs claimable, and
its host is rung after COMMIT. A note is a hint: losing one costs latency, never work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.drivers.sqlite.transaction import Bell, Turn
from holdfast.names import HostId

# The oldest notes of a queue that gives jobs. A host whose time to wait is over is not rung.
_TAKE_NOTES = """
DELETE FROM holdfast_job_waiter WHERE note IN (
    SELECT w.note FROM holdfast_job_waiter AS w
    WHERE w.namespace = ?1 AND w.queue = ?2 AND w.until_at_us > ?3
      AND NOT EXISTS (
          SELECT 1 FROM holdfast_queue AS q
          WHERE q.namespace = ?1 AND q.name = ?2 AND q.mode = 'paused'
      )
    ORDER BY w.note LIMIT ?4
)
RETURNING host
"""

# A host that is noted already keeps its place.
_LEAVE_NOTE = """
INSERT INTO holdfast_job_waiter (namespace, queue, host, until_at_us) VALUES (?, ?, ?, ?)
ON CONFLICT (namespace, queue, host) DO UPDATE
SET until_at_us = max(until_at_us, excluded.until_at_us)
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

    def leave(self, turn: Turn, queues: Iterable[str], wait_us: int) -> None:
        """Note that this host waits for jobs of ``queues``."""
        until = turn.wall_us + wait_us
        for queue in queues:
            turn.cursor.execute(_FORGET_OLD, (self._namespace, queue, turn.wall_us))
            turn.cursor.execute(_LEAVE_NOTE, (self._namespace, queue, self._host, until))
