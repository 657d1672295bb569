"""The statements of a batch of one in the usual case: a free key, and nobody waiting.

Owns their text and nothing else. They do a part of what their namesakes in ``lease_sql`` do, at
half the cost, and change nothing where more is to be done: no row in the answer means "ask the
general statement". Like all batches they never wait for a locked row.
"""

from __future__ import annotations

# Free, with one slot, nobody in the queue, and no history to prune. The row's newest version is
# judged again under the lock.
ACQUIRE_FREE = """
WITH cand AS MATERIALIZED (
    SELECT l.namespace, l.key FROM {s}.lease l
    WHERE l.namespace = $1 AND l.key = $2 AND l.slot = 0 AND l.limit_ = 1 AND l.owner IS NULL
        AND (l.token + 1) % 16 > 1
        AND NOT EXISTS (
            SELECT FROM {s}.waiter w
            WHERE w.namespace = $1 AND w.key = $2 AND w.expires_at > clock_timestamp()
        )
    FOR UPDATE SKIP LOCKED
)
UPDATE {s}.lease l SET
    token = l.token + 1, version = l.version + 1, previous_owner = NULL,
    acquired_at = clock_timestamp(), renewed_at = clock_timestamp(),
    expires_at = clock_timestamp() + $5::bigint * interval '1 microsecond',
    free_at = NULL, owner = $3, host = $4, ttl_us = $5::bigint, metadata = $6
FROM cand c
WHERE l.namespace = c.namespace AND l.key = c.key AND l.slot = 0
RETURNING 'granted' AS outcome, l.token, l.version, l.state, l.previous_owner
"""

# Owned, with time left, and nobody to ring. ``last_waiter`` is on the row that is locked, so a
# place too young for this snapshot is noticed too.
RELEASE_QUIET = """
WITH cand AS MATERIALIZED (
    SELECT l.namespace, l.key, l.slot, l.token, l.owner, l.acquired_at FROM {s}.lease l
    WHERE l.namespace = $1 AND l.key = $2 AND l.slot = $3 AND l.owner = $4 AND l.token = $5
        AND l.limit_ = 1 AND l.last_waiter IS NULL AND l.expires_at > clock_timestamp()
        AND NOT EXISTS (SELECT FROM {s}.waiter w WHERE w.namespace = $1 AND w.key = $2)
    FOR NO KEY UPDATE SKIP LOCKED
), upd AS (
    UPDATE {s}.lease l SET owner = NULL, host = NULL, expires_at = NULL,
        free_at = clock_timestamp(), version = l.version + 1
    FROM cand c
    WHERE l.namespace = c.namespace AND l.key = c.key AND l.slot = c.slot
)
INSERT INTO {s}.lease_history (namespace, key, token, slot, owner, acquired_at, ended_at, ended)
SELECT c.namespace, c.key, c.token, c.slot, c.owner, c.acquired_at, clock_timestamp(), 'released'
FROM cand c
RETURNING false AS ring
"""
