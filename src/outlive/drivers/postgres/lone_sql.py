"""The statements of a batch of one in the usual case: a free key, and nobody waiting.

Owns their text and nothing else. They do a part of what their namesakes in ``lease_sql`` do, at
half the cost, and change nothing where more is to be done: no row in the answer means "ask the
general statement". Like all batches they never wait for a locked row.
"""

from __future__ import annotations

# Free, with one slot, nobody in the queue, and no history to prune: the general statement does that
# at every sixteenth token, and breaking a lease, which may pass one by, does it too. The row is
# found once, and updated at the address under which it was locked: one that got a newer version
# since the snapshot is left to the general statement.
ACQUIRE_FREE = """
UPDATE {s}.lease l SET
    token = l.token + 1, version = l.version + 1, previous_owner = NULL,
    acquired_at = clock_timestamp(), renewed_at = clock_timestamp(),
    expires_at = clock_timestamp() + $5::bigint * interval '1 microsecond',
    free_at = NULL, owner = $3, host = $4, ttl_us = $5::bigint, metadata = $6
WHERE l.ctid = (
    SELECT f.ctid FROM {s}.lease f
    WHERE f.namespace = $1 AND f.key = $2 AND f.slot = 0 AND f.limit_ = 1 AND f.owner IS NULL
        AND (f.token + 1) % 16 <> 0
        AND NOT EXISTS (
            SELECT FROM {s}.waiter w
            WHERE w.namespace = $1 AND w.key = $2 AND w.expires_at > clock_timestamp()
        )
    FOR UPDATE SKIP LOCKED
)
RETURNING 'granted' AS outcome, l.token, l.version, l.state, l.previous_owner
"""

# Owned, with time left, and nobody to ring. ``last_waiter`` is on the row that is locked, so a
# place too young for this snapshot is noticed too.
RELEASE_QUIET = """
WITH upd AS (
    UPDATE {s}.lease l SET owner = NULL, host = NULL, expires_at = NULL,
        free_at = clock_timestamp(), version = l.version + 1
    WHERE l.ctid = (
        SELECT h.ctid FROM {s}.lease h
        WHERE h.namespace = $1 AND h.key = $2 AND h.slot = $3 AND h.owner = $4 AND h.token = $5
            AND h.limit_ = 1 AND h.last_waiter IS NULL AND h.expires_at > clock_timestamp()
            AND NOT EXISTS (SELECT FROM {s}.waiter w WHERE w.namespace = $1 AND w.key = $2)
        FOR NO KEY UPDATE SKIP LOCKED
    )
    RETURNING l.acquired_at
)
INSERT INTO {s}.lease_history (namespace, key, token, slot, owner, acquired_at, ended_at, ended)
SELECT $1, $2, $5, $3, $4, u.acquired_at, clock_timestamp(), 'released' FROM upd u
RETURNING false AS ring
"""
