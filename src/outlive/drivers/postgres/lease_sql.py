"""The statements of the lease store that run in batches: acquire, renew, release, and the queue.

Owns their text and nothing else. Every statement carries the namespace as its first parameter,
judges expiry by ``clock_timestamp()`` (``now()`` is the start of the transaction and goes stale
behind a lock), and never waits for a row that another transaction holds: a row that could be
taken but not locked simply yields no result, and the store tries that one again. ``{s}`` stands
for the quoted schema.
"""

from __future__ import annotations

# How the statements are planned. Each looks up a handful of rows by primary key, and a plan made
# per call costs more than the call, so one generic plan serves a connection for its life. Made
# while the tables are empty, it would read all of them for ever after: hence nothing is left to
# choose but look-ups by index, and rows that are not needed count as dear, pages as cheap. What is
# dear would be shared out among processes, which read more rows than are asked for.
PLANNER = {
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "random_page_cost": "0.01",
    "cpu_tuple_cost": "1",
}

# One round trip for a batch of attempts on keys with one slot; no key stands twice in it.
#
# req    the batch. Rows are looked up for each of its members by a LATERAL part that cannot be
#        flattened (OFFSET 0, or a row lock): joined plainly, a planner that believes the table to
#        be small reads all of it and compares every row with every row.
# seen   what the snapshot says: the row, how many live waiters stand ahead, and whether the key
#        looks takeable. An attempt on a key that is held locks nothing.
# cand   locks what looks takeable, in key order, skipping what somebody else has locked. The
#        row's newest version is judged again here (READ COMMITTED re-evaluates the condition),
#        which is what keeps two owners apart; ``ahead`` stays as the snapshot saw it.
# upd    the grant. The same owner keeps its token, so that a lost reply can be asked for again.
# ins    the first grant ever of a key, also in key order; a concurrent first grant wins by the
#        primary key, and this request then has no row in the answer.
# ended  the grant taken over enters the history, as expired when its time ran out.
# prune  every sixteenth token, so that the usual grant pays nothing for it.
# place  the new owner's place in the queue is gone; those it overtook count no more.
#
# A request without a row in the answer was takeable and is not ours: busy, try again.
ACQUIRE = """
WITH req AS MATERIALIZED (
    SELECT $1::text AS namespace, r.* FROM unnest(
        $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bigint[]
    ) WITH ORDINALITY AS r(key, owner, host, ttl_us, metadata, waiter, n)
), seen AS MATERIALIZED (
    SELECT r.*, l.slot, l.limit_, l.owner AS old_owner, a.ahead,
        coalesce(l.expires_at, l.free_at) AS free_since,
        l.limit_ = 1 AND (
            l.owner IS NOT DISTINCT FROM r.owner
            OR clock_timestamp()
                >= coalesce(l.expires_at, l.free_at) + a.ahead * interval '250 milliseconds'
        ) AS takeable
    FROM req r
    LEFT JOIN LATERAL (
        SELECT slot, limit_, owner, expires_at, free_at FROM {s}.lease
        WHERE namespace = r.namespace AND key = r.key AND slot = 0 OFFSET 0
    ) l ON true
    CROSS JOIN LATERAL (
        SELECT count(*) AS ahead FROM {s}.waiter w
        WHERE w.namespace = r.namespace AND w.key = r.key AND NOT w.passed
            AND w.expires_at > clock_timestamp() AND w.owner <> r.owner
            AND (r.waiter = 0 OR w.seq < r.waiter)
    ) a
), cand AS MATERIALIZED (
    SELECT s.n, s.namespace, s.key, s.owner, s.host, s.ttl_us, s.metadata, s.waiter, s.ahead,
        l.owner AS old_owner, l.token AS old_token, l.acquired_at AS old_acquired_at,
        l.expires_at AS old_expires_at
    FROM (SELECT * FROM seen WHERE takeable ORDER BY key COLLATE "C") s
    CROSS JOIN LATERAL (
        SELECT owner, token, acquired_at, expires_at FROM {s}.lease
        WHERE namespace = s.namespace AND key = s.key AND slot = 0 AND limit_ = 1 AND (
            owner = s.owner
            OR clock_timestamp()
                >= coalesce(expires_at, free_at) + s.ahead * interval '250 milliseconds'
        )
        FOR UPDATE SKIP LOCKED
    ) l
), upd AS (
    UPDATE {s}.lease l SET
        token = l.token + (l.owner IS DISTINCT FROM c.owner)::int,
        version = l.version + 1,
        previous_owner = CASE WHEN l.owner = c.owner THEN l.previous_owner ELSE l.owner END,
        acquired_at = CASE WHEN l.owner = c.owner THEN l.acquired_at ELSE clock_timestamp() END,
        renewed_at = clock_timestamp(),
        expires_at = clock_timestamp() + c.ttl_us * interval '1 microsecond',
        free_at = NULL, owner = c.owner, host = c.host, ttl_us = c.ttl_us,
        metadata = c.metadata, last_waiter = nullif(l.last_waiter, c.waiter)
    FROM cand c
    WHERE l.namespace = c.namespace AND l.key = c.key AND l.slot = 0
    RETURNING c.*, l.token, l.version, l.state, l.previous_owner
), ins AS (
    INSERT INTO {s}.lease (
        namespace, key, slot, limit_, token, version, owner, host, expires_at, ttl_us,
        acquired_at, renewed_at, metadata
    )
    SELECT $1, s.key, 0, 1, 1, 1, s.owner, s.host,
        clock_timestamp() + s.ttl_us * interval '1 microsecond', s.ttl_us,
        clock_timestamp(), clock_timestamp(), s.metadata
    FROM seen s WHERE s.slot IS NULL
    ORDER BY s.key
    ON CONFLICT (namespace, key, slot) DO NOTHING
    RETURNING key, token, version
), ended AS (
    INSERT INTO {s}.lease_history (
        namespace, key, token, slot, owner, acquired_at, ended_at, ended
    )
    SELECT $1, u.key, u.old_token, 0, u.old_owner, u.old_acquired_at, u.old_expires_at,
        'expired'
    FROM upd u WHERE u.old_owner IS NOT NULL AND u.old_owner <> u.owner
    ON CONFLICT DO NOTHING
), prune AS (
    DELETE FROM {s}.lease_history h USING upd u
    WHERE u.token % 16 = 0 AND h.namespace = u.namespace AND h.key = u.key
        AND h.token < u.token - $8
), place AS (
    DELETE FROM {s}.waiter w USING upd u
    WHERE w.namespace = u.namespace AND w.key = u.key AND w.owner = u.owner
), passed AS (
    UPDATE {s}.waiter w SET passed = true FROM upd u
    WHERE u.ahead > 0 AND u.old_owner IS DISTINCT FROM u.owner
        AND w.namespace = u.namespace AND w.key = u.key AND w.owner <> u.owner AND NOT w.passed
        AND (u.waiter = 0 OR w.seq < u.waiter)
)
SELECT u.n, NULL AS key, 'granted' AS outcome, u.token, u.version, u.state, u.previous_owner,
    NULL AS holder, 0::float8 AS wait_s, 0::bigint AS ahead, 1 AS limit_
FROM upd u
UNION ALL
SELECT 0, i.key, 'granted', i.token, i.version, NULL, NULL, NULL, 0, 0, 1 FROM ins i
UNION ALL
SELECT s.n, NULL, CASE WHEN s.limit_ = 1 THEN 'held' ELSE 'slots' END, 0, 0, NULL, NULL,
    CASE WHEN s.free_since > clock_timestamp() THEN s.old_owner END,
    extract(epoch FROM s.free_since - clock_timestamp())::float8 + s.ahead * 0.25::float8,
    s.ahead, s.limit_
FROM seen s WHERE s.slot IS NOT NULL AND NOT s.takeable
"""

# Strict: an expired grant never revives, even when nobody took the key.
RENEW = """
WITH req AS MATERIALIZED (
    SELECT $1::text AS namespace, r.* FROM unnest(
        $2::text[], $3::int[], $4::text[], $5::bigint[], $6::bigint[], $7::text[]
    ) WITH ORDINALITY AS r(key, slot, owner, token, ttl_us, state, n)
), cand AS MATERIALIZED (
    SELECT r.* FROM (SELECT * FROM req ORDER BY key COLLATE "C", slot) r
    CROSS JOIN LATERAL (
        SELECT FROM {s}.lease
        WHERE namespace = r.namespace AND key = r.key AND slot = r.slot
            AND owner = r.owner AND token = r.token AND expires_at > clock_timestamp()
        FOR NO KEY UPDATE SKIP LOCKED
    ) l
)
UPDATE {s}.lease l SET
    expires_at = clock_timestamp() + c.ttl_us * interval '1 microsecond',
    ttl_us = c.ttl_us, renewed_at = clock_timestamp(), version = l.version + 1,
    state = coalesce(c.state, l.state)
FROM cand c
WHERE l.namespace = c.namespace AND l.key = c.key AND l.slot = c.slot
RETURNING c.n, l.version, l.state
"""

# Frees the row and keeps its token. Releasing what has expired unnoticed is fine while nobody
# took it, and the history then says that it expired. The head of the queue is told in the same
# transaction, and only if there is a queue: a commit that notifies takes a lock of the whole
# database.
#
# ``ring`` in the answer asks for a second look at the queue under the key's lock: the row knows a
# place that this snapshot does not show, or the key has several slots, whose queue is ordered by
# slot 0 and not by the row released here.
RELEASE = """
WITH req AS MATERIALIZED (
    SELECT $1::text AS namespace, r.* FROM unnest($2::text[], $3::int[], $4::text[], $5::bigint[])
        WITH ORDINALITY AS r(key, slot, owner, token, n)
), cand AS MATERIALIZED (
    SELECT r.n, r.namespace, r.key, r.slot, l.token, l.owner, l.acquired_at, l.expires_at,
        l.last_waiter, l.limit_
    FROM (SELECT * FROM req ORDER BY key COLLATE "C", slot) r
    CROSS JOIN LATERAL (
        SELECT token, owner, acquired_at, expires_at, last_waiter, limit_ FROM {s}.lease
        WHERE namespace = r.namespace AND key = r.key AND slot = r.slot
            AND owner = r.owner AND token = r.token
        FOR NO KEY UPDATE SKIP LOCKED
    ) l
), upd AS (
    UPDATE {s}.lease l SET owner = NULL, host = NULL, expires_at = NULL,
        free_at = least(l.expires_at, clock_timestamp()), version = l.version + 1
    FROM cand c
    WHERE l.namespace = c.namespace AND l.key = c.key AND l.slot = c.slot
), ended AS (
    INSERT INTO {s}.lease_history (
        namespace, key, token, slot, owner, acquired_at, ended_at, ended
    )
    SELECT $1, c.key, c.token, c.slot, c.owner, c.acquired_at,
        least(c.expires_at, clock_timestamp()),
        CASE WHEN c.expires_at > clock_timestamp() THEN 'released' ELSE 'expired' END
    FROM cand c
    ON CONFLICT DO NOTHING
), rung AS MATERIALIZED (
    SELECT c.n, max(w.seq) AS newest, count(pg_notify($6, json_build_object(
        'ns', $1::text, 'host', w.host, 'topic', 'lease/' || c.key, 'waiter', w.seq,
        'position', w.position)::text)) AS told
    FROM cand c CROSS JOIN LATERAL (
        SELECT seq, host, row_number() OVER (ORDER BY passed, seq) - 1 AS position
        FROM {s}.waiter
        WHERE namespace = c.namespace AND key = c.key AND expires_at > clock_timestamp()
        ORDER BY passed, seq LIMIT $7
    ) w
    GROUP BY c.n
)
SELECT c.n, c.limit_ > 1 OR (
    c.last_waiter IS NOT NULL
    AND NOT EXISTS (SELECT FROM {s}.waiter w WHERE w.seq = c.last_waiter)
) AS ring, (SELECT told FROM rung r WHERE r.n = c.n) AS told
FROM cand c
"""

# Why a renewal or a release was refused: the row as it is, and how the grant ended.
REFUSAL = """
SELECT l.owner = $4 AND l.token = $5 AS ours, l.expires_at > clock_timestamp() AS live, h.ended,
    h.detail
FROM (SELECT) one
LEFT JOIN {s}.lease l ON l.namespace = $1 AND l.key = $2 AND l.slot = $3
LEFT JOIN {s}.lease_history h ON h.namespace = $1 AND h.key = $2 AND h.token = $5
"""
