"""The statements of keys with several slots, of resuming, and of breaking.

Owns their text and nothing else. They run inside one transaction that first takes ``LOCK`` of
``queue_sql``; whoever locks several rows of a key begins with slot 0, so none of them deadlock.
``{s}`` stands for the quoted schema.
"""

from __future__ import annotations

# The first grant ever of a key. A concurrent one wins by the primary key.
FIRST = """
INSERT INTO {s}.lease (
    namespace, key, slot, limit_, token, version, owner, host, expires_at, ttl_us,
    acquired_at, renewed_at, metadata
)
SELECT $1, $2, 0, $3::int, 1, 1, $4, $5, clock_timestamp() + $6::bigint * interval '1 microsecond',
    $6::bigint, clock_timestamp(), clock_timestamp(), $7
ON CONFLICT DO NOTHING
RETURNING 0 AS slot, token, version, state, previous_owner
"""

# All slots of a key, under LOCK, with the time of the store.
SLOTS = """
SELECT slot, limit_, token, version, owner,
    (extract(epoch FROM coalesce(expires_at, free_at)) * 1000000)::bigint AS free_since_us,
    owner IS NOT NULL AND expires_at > clock_timestamp() AS active,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us
FROM {s}.lease WHERE namespace = $1 AND key = $2 ORDER BY slot
"""

# Live places ahead of an attempt; a place of its own never counts.
AHEAD = """
SELECT count(*) FROM {s}.waiter w
WHERE w.namespace = $1 AND w.key = $2 AND NOT w.passed AND w.expires_at > clock_timestamp()
    AND w.owner <> $3
    AND w.seq < coalesce((
        SELECT o.seq FROM {s}.waiter o
        WHERE o.namespace = $1 AND o.key = $2 AND o.owner = $3
    ), 9223372036854775807)
"""

# Takes a slot that was looked at before; its version says whether it is still as it was. A slot
# that a guard holds is skipped. $4 is the token the grant gets: greater than all of the key.
TAKE = """
WITH cand AS MATERIALIZED (
    SELECT owner, token, acquired_at, expires_at, clock_timestamp() AS at FROM {s}.lease
    WHERE namespace = $1 AND key = $2 AND slot = $3 AND version = $5
    FOR UPDATE SKIP LOCKED
), ended AS (
    INSERT INTO {s}.lease_history (
        namespace, key, token, slot, owner, acquired_at, ended_at, ended
    )
    SELECT $1, $2, c.token, $3, c.owner, c.acquired_at,
        least(c.expires_at, c.at), $10::text
    FROM cand c WHERE c.owner IS NOT NULL AND c.owner <> $6
    ON CONFLICT DO NOTHING
)
UPDATE {s}.lease l SET
    token = $4, version = l.version + 1,
    previous_owner = CASE WHEN l.owner = $6 THEN l.previous_owner ELSE l.owner END,
    acquired_at = CASE WHEN l.owner = $6 THEN l.acquired_at ELSE c.at END,
    renewed_at = c.at,
    expires_at = clock_timestamp() + $8::bigint * interval '1 microsecond',
    free_at = NULL, owner = $6, host = $7, ttl_us = $8::bigint, metadata = $9
FROM cand c
WHERE l.namespace = $1 AND l.key = $2 AND l.slot = $3
RETURNING l.slot, l.token, l.version, l.state, l.previous_owner
"""

# A slot that nobody had before.
ADD = """
INSERT INTO {s}.lease (
    namespace, key, slot, limit_, token, version, owner, host, expires_at, ttl_us,
    acquired_at, renewed_at, metadata
)
VALUES ($1, $2, $3, $4, $5, 1, $6, $7, clock_timestamp() + $8::bigint * interval '1 microsecond',
    $8::bigint, clock_timestamp(), clock_timestamp(), $9)
RETURNING slot, token, version, state, previous_owner
"""

# A new number of slots, when nobody but the new owner ($4) has any. Grants that expired end here,
# because the slots above the new limit are not looked at any more.
RESIZE = """
WITH old AS MATERIALIZED (
    SELECT slot, token, owner, acquired_at, expires_at FROM {s}.lease
    WHERE namespace = $1 AND key = $2 ORDER BY slot FOR NO KEY UPDATE
), ended AS (
    INSERT INTO {s}.lease_history (
        namespace, key, token, slot, owner, acquired_at, ended_at, ended
    )
    SELECT $1, $2, token, slot, owner, acquired_at, expires_at, 'expired'
    FROM old WHERE owner IS NOT NULL AND owner <> $4
    ON CONFLICT DO NOTHING
)
UPDATE {s}.lease l SET limit_ = $3,
    free_at = CASE WHEN l.owner <> $4 THEN l.expires_at ELSE l.free_at END,
    expires_at = CASE WHEN l.owner <> $4 THEN NULL ELSE l.expires_at END,
    host = CASE WHEN l.owner <> $4 THEN NULL ELSE l.host END,
    owner = CASE WHEN l.owner <> $4 THEN NULL ELSE l.owner END
FROM old o
WHERE l.namespace = $1 AND l.key = $2 AND l.slot = o.slot
"""

# Under LOCK: the grant was made, so its place in the queue is gone.
PLACE_TAKEN = """
DELETE FROM {s}.waiter WHERE namespace = $1 AND key = $2 AND owner = $3 RETURNING seq
"""

# Under LOCK: those that the grant overtook, the foremost $5 ahead of it, count no more.
OVERTAKE = """
UPDATE {s}.waiter SET passed = true
WHERE seq IN (
    SELECT w.seq FROM {s}.waiter w
    WHERE w.namespace = $1 AND w.key = $2 AND w.owner <> $3 AND NOT w.passed
        AND w.expires_at > clock_timestamp() AND w.seq < $4::bigint
    ORDER BY w.seq LIMIT $5::int
)
"""

# Every sixteenth token, so that the usual grant pays nothing for it.
PRUNE = """
DELETE FROM {s}.lease_history WHERE namespace = $1 AND key = $2 AND token < $3::bigint - 100
"""

# Under LOCK: a place, or the one the owner has, kept for longer; the dead of this key go.
PLACE = """
WITH stale AS (
    DELETE FROM {s}.waiter
    WHERE namespace = $1 AND key = $2 AND owner <> $3 AND expires_at <= clock_timestamp()
)
INSERT INTO {s}.waiter AS w (namespace, key, owner, host, expires_at)
VALUES ($1, $2, $3, $4, clock_timestamp() + $5::bigint * interval '1 microsecond')
ON CONFLICT (namespace, key, owner) DO UPDATE
SET expires_at = clock_timestamp() + $5::bigint * interval '1 microsecond', passed = false
RETURNING seq
"""

# Breaking locks every row against guards too: it waits for them, because it must not return
# while somebody may still commit under the old token.
BREAK_LOCK = """
SELECT slot FROM {s}.lease WHERE namespace = $1 AND key = $2 ORDER BY slot FOR UPDATE
"""

# Ends every grant, expired ones too, under tokens above all of the key. They may pass a sixteenth
# one by, at which a grant would have pruned the history.
BREAK = """
WITH top AS (
    SELECT max(token) AS token FROM {s}.lease WHERE namespace = $1 AND key = $2
), old AS MATERIALIZED (
    SELECT slot, token, owner, acquired_at, row_number() OVER (ORDER BY slot) AS step
    FROM {s}.lease WHERE namespace = $1 AND key = $2 AND owner IS NOT NULL
), ended AS (
    INSERT INTO {s}.lease_history (
        namespace, key, token, slot, owner, acquired_at, ended_at, ended, detail
    )
    SELECT $1, $2, token, slot, owner, acquired_at, clock_timestamp(), 'broken', $3 FROM old
    ON CONFLICT DO NOTHING
), prune AS (
    DELETE FROM {s}.lease_history h USING top t
    WHERE h.namespace = $1 AND h.key = $2 AND h.token < t.token - 100
)
UPDATE {s}.lease l SET token = t.token + o.step, version = l.version + 1, owner = NULL,
    host = NULL, expires_at = NULL, free_at = clock_timestamp()
FROM old o CROSS JOIN top t
WHERE l.namespace = $1 AND l.key = $2 AND l.slot = o.slot
"""

# Every row of a key that nobody else holds, a user's guard included.
LOCK_ALL = """
SELECT slot FROM {s}.lease WHERE namespace = $1 AND key = $2 ORDER BY slot FOR UPDATE SKIP LOCKED
"""
