"""What a host that waits for jobs would find if it asked: the fallback behind the doorbells.

Owns the question that is asked when the file has changed. A job enqueued in a transaction of the
user's rings nobody, and one that comes due does not even change the file.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.clock import Clock
from holdfast.drivers.sqlite.instants import microseconds
from holdfast.drivers.sqlite.lease_reader import LeaseReader
from holdfast.names import HostId

# Hosts are told of jobs that came due up to this many; one machine has fewer that wait.
_DUE_MAX = 100

# Queues this host is noted for: for which job it was called, how many hosts were noted before it,
# how many jobs have come due, and when the next does.
_LOOK = """
SELECT w.queue, w.called,
    (SELECT count(*) FROM holdfast_job_waiter AS o
     WHERE o.namespace = ?1 AND o.queue = w.queue AND o.until_at_us > ?3 AND o.note < w.note),
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_job AS d
        WHERE d.namespace = ?1 AND d.queue = w.queue AND d.due_at_us <= ?3
          AND d.state IN ('scheduled', 'retrying') AND d.blocked = 0
        LIMIT ?4
    )),
    (SELECT d.due_at_us FROM holdfast_job AS d
     WHERE d.namespace = ?1 AND d.queue = w.queue AND d.due_at_us > ?3
       AND d.state IN ('scheduled', 'retrying') AND d.blocked = 0
     ORDER BY d.due_at_us LIMIT 1)
FROM holdfast_job_waiter AS w LEFT JOIN holdfast_queue AS q
    ON q.namespace = ?1 AND q.name = w.queue
WHERE w.namespace = ?1 AND w.host = ?2 AND w.until_at_us > ?3 AND q.mode IS NOT 'paused'
"""


class JobWaiting:
    """Looks on behalf of one host."""

    def __init__(self, reader: LeaseReader, clock: Clock, namespace: str, host: HostId) -> None:
        self._reader = reader
        self._clock = clock
        self._namespace = namespace
        self._host = host
        # For which job this host was last told of a queue.
        self._told: dict[str, int] = {}

    def look(self) -> tuple[Sequence[str], float | None]:
        """The queues that have something for this host, and the seconds until another has."""
        now = microseconds(self._clock.now())
        rows = self._reader.rows(_LOOK, (self._namespace, self._host, now, _DUE_MAX))
        # Of jobs that came due the oldest notes are told, one more than there are jobs.
        found = [
            queue
            for queue, called, before, due, _ in rows
            if (due and before <= due) or (called and called != self._told.get(queue))
        ]
        self._told = {queue: called for queue, called, *_ in rows}
        later = [next_due for *_, next_due in rows if next_due is not None]
        return found, (min(later) - now) / 1e6 if later else None
