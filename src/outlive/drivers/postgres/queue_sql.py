"""The statements of the queue of a key: take a place, leave it, ring the head.

Owns their text and nothing else. Whatever writes a place holds the lock of the key's slot 0, as
the statements of ``lease_sql`` do. ``{s}`` stands for the quoted schema.
"""

from __future__ import annotations

# Takes or refreshes a place in the queue of a key with one slot. Waits for the row, so that no
# release can slip between the refusal and the place; FOR NO KEY UPDATE lets a user's guard be.
# No place is given when the key has become takeable meanwhile, unless forced ($6), which is for
# a key that only a foreign lock keeps from being taken.
ENQUEUE = """
WITH row AS MATERIALIZED (
    SELECT owner, coalesce(expires_at, free_at) AS free_since, limit_
    FROM {s}.lease WHERE namespace = $1 AND key = $2 AND slot = 0
    FOR NO KEY UPDATE
), own AS MATERIALIZED (
    SELECT min(seq) AS seq FROM {s}.waiter WHERE namespace = $1 AND key = $2 AND owner = $3
), seen AS MATERIALIZED (
    SELECT r.*, (
        SELECT count(*) FROM {s}.waiter w
        WHERE w.namespace = $1 AND w.key = $2 AND NOT w.passed
            AND w.expires_at > clock_timestamp() AND w.owner <> $3
            AND (o.seq IS NULL OR w.seq < o.seq)
    ) AS ahead
    FROM row r CROSS JOIN own o
), judged AS MATERIALIZED (
    SELECT s.*, NOT $6 AND s.limit_ = 1 AND (
        s.owner IS NOT DISTINCT FROM $3
        OR clock_timestamp() >= s.free_since + s.ahead * interval '250 milliseconds'
    ) AS again
    FROM seen s
), place AS (
    INSERT INTO {s}.waiter AS w (namespace, key, owner, host, expires_at)
    SELECT $1, $2, $3, $4, clock_timestamp() + $5::bigint * interval '1 microsecond'
    FROM judged j WHERE NOT j.again
    ON CONFLICT (namespace, key, owner) DO UPDATE
    SET expires_at = clock_timestamp() + $5::bigint * interval '1 microsecond', passed = false
    RETURNING w.seq
), flag AS (
    UPDATE {s}.lease l SET last_waiter = p.seq FROM place p
    WHERE l.namespace = $1 AND l.key = $2 AND l.slot = 0
        AND (l.last_waiter IS NULL OR l.last_waiter < p.seq)
), stale AS (
    DELETE FROM {s}.waiter w USING judged j
    WHERE w.namespace = $1 AND w.key = $2 AND w.owner <> $3
        AND w.expires_at <= clock_timestamp()
)
SELECT j.again, (SELECT seq FROM place) AS waiter, j.ahead, j.limit_,
    CASE WHEN j.free_since > clock_timestamp() THEN j.owner END AS holder,
    extract(epoch FROM j.free_since - clock_timestamp())::float8 + j.ahead * 0.25::float8 AS wait_s
FROM judged j
"""

# The mutex of a key: waits for whoever changes its slots or its queue, but neither for a user's
# guard nor for renewals of other slots. A statement of its own, because what follows must have a
# snapshot that was taken after the wait.
LOCK = """
SELECT token, limit_ FROM {s}.lease WHERE namespace = $1 AND key = $2 AND slot = 0
FOR NO KEY UPDATE
"""

# Under LOCK: tells the first of the queue, if a slot is free for them.
RING = """
WITH free AS MATERIALIZED (
    SELECT count(*) FILTER (WHERE l.owner IS NOT NULL AND l.expires_at > clock_timestamp())
        < max(l.limit_) AS any
    FROM {s}.lease l WHERE l.namespace = $1 AND l.key = $2
), head AS MATERIALIZED (
    SELECT w.seq, w.host, row_number() OVER (ORDER BY w.passed, w.seq) - 1 AS position
    FROM {s}.waiter w
    WHERE (SELECT f.any FROM free f) AND w.namespace = $1 AND w.key = $2
        AND w.expires_at > clock_timestamp()
    ORDER BY w.passed, w.seq LIMIT $4
)
SELECT pg_notify($3, json_build_object(
    'ns', $1::text, 'host', h.host, 'topic', 'lease/' || $2::text, 'waiter', h.seq,
    'position', h.position)::text)
FROM head h
"""

# Under LOCK: forgets a newest place that is gone, so that releases need no second look.
FORGET = """
UPDATE {s}.lease l SET last_waiter = NULL
WHERE l.namespace = $1 AND l.key = $2 AND l.slot = 0 AND l.last_waiter IS NOT NULL
    AND NOT EXISTS (
        SELECT FROM {s}.waiter w WHERE w.seq = l.last_waiter AND w.expires_at > clock_timestamp()
    )
"""

# Under LOCK: the place is given up; an unknown place is fine. 0 is whatever place the owner has.
LEAVE = """
DELETE FROM {s}.waiter
WHERE namespace = $1 AND key = $2 AND owner = $4 AND ($3::bigint = 0 OR seq = $3::bigint)
"""
