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

# Queues this host is noted for: whether something can be claimed, and when the next comes due. One
# whose limits are used up has nothing to give: whoever ends a claim there rings, and whoever was
# refused for the rate knows when to come again.
_LOOK = """
SELECT w.queue,
    EXISTS (
        SELECT 1 FROM holdfast_job AS b
        WHERE b.namespace = ?1 AND b.queue = w.queue AND b.state = 'ready' AND b.blocked = 0
    ),
    (SELECT d.due_at_us FROM holdfast_job AS d
     WHERE d.namespace = ?1 AND d.queue = w.queue
       AND d.state IN ('scheduled', 'retrying') AND d.blocked = 0
     ORDER BY d.due_at_us LIMIT 1)
FROM holdfast_job_waiter AS w LEFT JOIN holdfast_queue AS q
    ON q.namespace = ?1 AND q.name = w.queue
WHERE w.namespace = ?1 AND w.host = ?2 AND w.until_at_us > ?3 AND q.mode IS NOT 'paused'
  AND (q.concurrency IS NULL OR q.concurrency > (
      SELECT count(*) FROM holdfast_job AS c
      WHERE c.namespace = ?1 AND c.queue = w.queue AND c.state = 'claimed'))
  AND (q.rate IS NULL OR q.rate > (
      SELECT coalesce(sum(r.claims), 0) FROM holdfast_queue_claims AS r
      WHERE r.namespace = ?1 AND r.queue = w.queue
        AND r.at_us > ?3 - q.rate_period_us AND r.at_us <= ?3))
"""


class JobWaiting:
    """Looks on behalf of one host."""

    def __init__(self, reader: LeaseReader, clock: Clock, namespace: str, host: HostId) -> None:
        self._reader = reader
        self._clock = clock
        self._namespace = namespace
        self._host = host

    def look(self) -> tuple[Sequence[str], float | None]:
        """The queues that have something for this host, and the seconds until another has."""
        now = microseconds(self._clock.now())
        found: list[str] = []
        next_due: int | None = None
        for queue, ready, due in self._reader.rows(_LOOK, (self._namespace, self._host, now)):
            if ready or (due is not None and due <= now):
                found.append(queue)
            elif due is not None:
                next_due = due if next_due is None else min(due, next_due)
        return found, None if next_due is None else (next_due - now) / 1e6
