"""The statements that look after jobs: taking back, ending by hand, removing, settings of queues.

Owns the SQL of everything that is not on the path of a healthy job. Every statement carries the
namespace, or a number that was found under it in the same transaction.
"""

from __future__ import annotations

LIMITED_QUEUES = """
SELECT name FROM outlive_queue WHERE namespace = ? AND concurrency IS NOT NULL
"""

EXPIRE = """
UPDATE outlive_job
SET state = 'dead', blocked = 0, ended_at_us = ?, prune_at_us = ? + retention_us,
    error = coalesce(
        error, json_quote(printf('expired: not claimed within %g s', expires_us / 1e6)))
WHERE number IN (
    SELECT number FROM outlive_job
    WHERE namespace = ? AND expires_at_us IS NOT NULL AND expires_at_us <= ?
      AND state IN ('scheduled', 'ready', 'retrying')
    ORDER BY expires_at_us LIMIT ?
)
RETURNING number, token, queue, ordering_key, retention_us, instance
"""

PRUNE = """
DELETE FROM outlive_job WHERE number IN (
    SELECT number FROM outlive_job
    WHERE namespace = ? AND prune_at_us IS NOT NULL AND prune_at_us <= ?
    ORDER BY prune_at_us LIMIT ?
)
"""

# Whose claims there are; asked of the sidecar file then.
CLAIMANTS = """
SELECT DISTINCT session FROM outlive_job INDEXED BY outlive_job_claimed
WHERE namespace = ? AND state = 'claimed'
"""

# Back to the old place, unless it was lost too often or is not wanted any more.
RECLAIM = """
UPDATE outlive_job
SET state = CASE WHEN cancel_reason IS NOT NULL THEN 'cancelled'
        WHEN losses >= max_losses THEN 'dead' ELSE 'ready' END,
    claim_ended = 'lost', losses = losses + 1,
    error = CASE WHEN cancel_reason IS NULL AND losses >= max_losses THEN json_quote(printf(
        'lost too often: losses %d, max_losses %d, last host %s', losses + 1, max_losses, worker
    )) ELSE coalesce(cancel_reason, error) END,
    ended_at_us = CASE WHEN cancel_reason IS NOT NULL OR losses >= max_losses THEN ? END,
    prune_at_us = CASE WHEN cancel_reason IS NOT NULL OR losses >= max_losses
        THEN ? + retention_us END
WHERE number IN (
    SELECT b.number FROM outlive_job AS b
    WHERE b.namespace = ? AND b.state = 'claimed'
      AND b.session IN (SELECT value FROM json_each(?))
    LIMIT ?
)
RETURNING id, queue, state, number, token, ordering_key, retention_us, worker, claimed_at_us,
    instance
"""

# Where the jobs of a JSON list of ids stand.
STANDING = """
SELECT b.id, b.number, b.state, b.queue, b.host, b.ordering_key, b.retention_us, b.unique_key,
    b.instance
FROM json_each(?) AS j JOIN outlive_job AS b ON b.namespace = ? AND b.id = j.value
"""

# The first reason is kept.
REQUEST_CANCEL = """
UPDATE outlive_job SET cancel_reason = coalesce(cancel_reason, ?)
WHERE number IN (SELECT value FROM json_each(?))
"""
CANCEL = """
UPDATE outlive_job
SET state = 'cancelled', blocked = 0, error = ?, ended_at_us = ?, prune_at_us = ? + retention_us
WHERE number IN (SELECT value FROM json_each(?))
"""

# A job that has ended lives again, with nothing counted against it, behind those of its ordering
# key. Its unique key may belong to another by now, and then nothing is changed.
REVIVE = """
UPDATE OR IGNORE outlive_job
SET state = 'scheduled', due_at_us = ?, attempts = 0, losses = 0, cancel_reason = NULL,
    error = NULL, result = NULL, progress = NULL, ended_at_us = NULL, prune_at_us = NULL,
    expires_at_us = ? + expires_us,
    blocked = CASE WHEN ordering_key IS NULL THEN 0 ELSE EXISTS (
        SELECT 1 FROM outlive_job AS o
        WHERE o.namespace = outlive_job.namespace AND o.queue = outlive_job.queue
          AND o.ordering_key = outlive_job.ordering_key
          AND o.state IN ('scheduled', 'ready', 'claimed', 'retrying')
    ) END
WHERE number = ?
RETURNING blocked
"""
HASTEN = "UPDATE outlive_job SET due_at_us = ? WHERE number = ? RETURNING blocked"

QUEUE = """
SELECT name, mode, concurrency, rate, rate_period_us, limits_by FROM outlive_queue
WHERE namespace = ? AND name = ?
"""
PUT_QUEUE = """
INSERT INTO outlive_queue (namespace, name, mode, concurrency, rate, rate_period_us, limits_by)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace, name) DO UPDATE SET
    mode = excluded.mode, concurrency = excluded.concurrency, rate = excluded.rate,
    rate_period_us = excluded.rate_period_us, limits_by = excluded.limits_by
"""
# How many jobs of a queue can be claimed now, or when they are due, each up to a limit.
COUNT_READY = """
SELECT (SELECT count(*) FROM (
    SELECT 1 FROM outlive_job
    WHERE namespace = ? AND queue = ? AND state = 'ready' AND blocked = 0 LIMIT ?
)) + (SELECT count(*) FROM (
    SELECT 1 FROM outlive_job INDEXED BY outlive_job_due
    WHERE namespace = ? AND queue = ? AND state IN ('scheduled', 'retrying') AND blocked = 0
    LIMIT ?
))
"""
