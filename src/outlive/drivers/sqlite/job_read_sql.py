"""The statements that show jobs and queues.

Owns the SQL of reading. Every statement carries the namespace. A listing is put together from the
constants here and from nothing else; what a caller gives is always a parameter.
"""

from __future__ import annotations

from typing import Any

from outlive.model.job import JobFilter, JobState

_RECORD = """
SELECT b.id, b.queue, b.state, b.priority, b.payload, b.headers,
    CASE WHEN b.session IS NULL THEN 0 ELSE b.token END, b.attempts, b.losses, b.max_attempts,
    b.max_losses, b.retry, b.unique_key, b.ordering_key, b.blocked,
    b.state = 'claimed' AND b.cancel_reason IS NOT NULL, b.worker, b.session, b.claimed_at_us,
    b.enqueued_at_us, b.due_at_us, b.ended_at_us, b.result, b.error, b.progress, b.number
FROM outlive_job AS b"""
GET = f"{_RECORD} WHERE b.namespace = ? AND b.id = ?"

ATTEMPTS = """
SELECT a.token, a.outcome, a.worker, a.claimed_at_us, a.ended_at_us, a.error
FROM outlive_job AS b JOIN outlive_job_attempt AS a ON a.job = b.number
WHERE b.namespace = ? AND b.id = ? ORDER BY a.entry DESC LIMIT ?
"""

SETTINGS = """
SELECT name, mode, concurrency, rate, rate_period_us, limits_by FROM outlive_queue
WHERE namespace = ?
"""

# Queue, state, how many, and since when the oldest waits. Each reads one index alone, however
# large the jobs are; the last one adds what the others leave out because it is blocked.
COUNTS = (
    """
    SELECT queue, 'ready', count(*), min(due_at_us) FROM outlive_job
    WHERE namespace = ? AND state = 'ready' AND blocked = 0 GROUP BY queue
    """,
    """
    SELECT queue, state, count(*), NULL
    FROM outlive_job INDEXED BY outlive_job_due
    WHERE namespace = ? AND state IN ('scheduled', 'retrying') AND blocked = 0
    GROUP BY queue, state
    """,
    """
    SELECT queue, 'claimed', count(*), NULL FROM outlive_job INDEXED BY outlive_job_claimed
    WHERE namespace = ? AND state = 'claimed' GROUP BY queue
    """,
    """
    SELECT queue, state, count(*), NULL FROM outlive_job INDEXED BY outlive_job_ended
    WHERE namespace = ? AND prune_at_us IS NOT NULL GROUP BY queue, state
    """,
    """
    SELECT queue, state, count(*), NULL FROM outlive_job INDEXED BY outlive_job_order
    WHERE namespace = ? AND ordering_key IS NOT NULL
      AND state IN ('scheduled', 'ready', 'claimed', 'retrying') AND blocked = 1
    GROUP BY queue, state
    """,
)

# Few rows are in these states, and an index finds them among many others.
_BY_STATE: dict[tuple[JobState, ...], str] = {
    (JobState.CLAIMED,): " INDEXED BY outlive_job_claimed",
    (JobState.DEAD,): " INDEXED BY outlive_job_dead",
}


def listing(wanted: JobFilter, namespace: str) -> tuple[str, dict[str, Any]]:
    """The statement of a page that begins after ``:after``, and its other parameters."""
    # Without an index rows come in order of their numbers, and the page ends when it is full.
    index = _BY_STATE.get(wanted.states, " NOT INDEXED")
    terms = ["b.namespace = :namespace", "b.number > :after"]
    values: dict[str, Any] = {"namespace": namespace}
    if wanted.states:
        # Written out, because only then does a partial index apply.
        states = ", ".join(f"'{JobState(state).value}'" for state in wanted.states)
        terms.append(f"b.state IN ({states})" if "," in states else f"b.state = {states}")
    for name in ("queue", "unique_key", "ordering_key", "session"):
        value = getattr(wanted, name)
        if value is not None:
            terms.append(f"b.{name} = :{name}")
            values[name] = value
    where = " AND ".join(terms)
    return f"{_RECORD}{index} WHERE {where} ORDER BY b.number LIMIT :limit", values
