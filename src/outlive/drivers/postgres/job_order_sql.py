"""The statements of ordering keys and of what operators do: locks, turns, retries, removals.

Owns their text and nothing else. Whoever adds a job to an ordering key or ends one of it holds the
key's lock from a statement before, so that the statement which looks for the next turn has a
snapshot that was taken under it. The lock is an advisory one of the transaction: a key has no row
of its own that would have to be made, counted and removed with its last job. ``{order}`` stands
for the prefix of its name, ``{s}`` for the quoted schema.
"""

from __future__ import annotations

from outlive.drivers.postgres.job_sql import compose, ring_to

# The keys of new jobs. Sorted, so that two batches wait for each other in one direction only. The
# lock of the queue is shared by all who lock keys; see LOCK_QUEUE.
LOCK_KEYS = """
WITH queued AS MATERIALIZED (
    SELECT count(pg_advisory_xact_lock_shared(q.h)) AS held FROM (
        SELECT DISTINCT hashtextextended({order} || k.queue, 0) AS h
        FROM unnest($2::text[]) AS k(queue) ORDER BY h
    ) q
)
SELECT count(pg_advisory_xact_lock(k.h)) AS held FROM (
    SELECT DISTINCT hashtextextended({order} || k.queue || '/' || k.key, 0) AS h
    FROM unnest($2::text[], $3::text[]) AS k(queue, key)
    WHERE (SELECT held FROM queued) >= 0 ORDER BY h
) k
"""

# All keys of some queues at once: more keys than this in one transaction would use up the server's
# table of locks.
LOCK_QUEUE = """
SELECT count(pg_advisory_xact_lock(q.h)) AS held FROM (
    SELECT DISTINCT hashtextextended({order} || k.queue, 0) AS h
    FROM unnest($2::text[]) AS k(queue) ORDER BY h
) q
"""

# The keys of jobs that are there: which of them are ours now. Never waits.
TRY_KEYS = """
SELECT j.id, j.queue, j.ordering_key,
    pg_try_advisory_xact_lock_shared(hashtextextended({order} || j.queue, 0))
    AND pg_try_advisory_xact_lock(
        hashtextextended({order} || j.queue || '/' || j.ordering_key, 0)) AS ours
FROM unnest($2::text[]) AS r(id) CROSS JOIN LATERAL (
    SELECT id, queue, ordering_key FROM {s}.job
    WHERE id = r.id AND namespace || '' = $1 AND ordering_key IS NOT NULL OFFSET 0
) j
"""

# The keys of jobs that are there, by name; they never change.
KEYS_OF = """
SELECT j.id, j.queue, j.ordering_key FROM unnest($2::text[]) AS r(id) CROSS JOIN LATERAL (
    SELECT id, queue, ordering_key FROM {s}.job
    WHERE id = r.id AND namespace || '' = $1 AND ordering_key IS NOT NULL OFFSET 0
) j
"""

# Under the locks of these keys: where nobody has the turn, the oldest live job gets it.
UNBLOCK = compose(
    """
WITH head AS MATERIALIZED (
    SELECT h.row
    FROM (SELECT DISTINCT queue, key FROM unnest($2::text[], $3::text[]) AS k(queue, key)) k
    CROSS JOIN LATERAL (
        SELECT ctid AS row, blocked FROM {s}.job
        WHERE namespace = $1 AND queue = k.queue AND ordering_key = k.key AND ended_at IS NULL
        ORDER BY blocked, number LIMIT 1
    ) h
    WHERE h.blocked
), freed AS (
    UPDATE {s}.job j SET blocked = false FROM head h WHERE j.ctid = h.row
    RETURNING j.queue, j.state = 'ready' OR j.due_at <= clock_timestamp() AS claimable
), fresh AS MATERIALIZED (
    SELECT f.queue, count(*) AS jobs FROM freed f WHERE f.claimable GROUP BY f.queue
), {ring}
SELECT (SELECT count(*) FROM freed) AS freed, (SELECT hosts FROM told) AS told
""",
    ring=ring_to("$4"),
)

# Jobs became claimable in these queues, so many in each.
RING_QUEUES = compose(
    """
WITH fresh AS MATERIALIZED (
    SELECT f.queue, f.jobs FROM unnest($2::text[], $3::bigint[]) AS f(queue, jobs)
), {ring}
SELECT hosts AS told FROM told
""",
    ring=ring_to("$4"),
)

# What became of a request that changed nothing.
LOOK = """
SELECT r.n, j.state, j.token, j.settled, j.ordered, j.cancel, j.queue
FROM unnest($2::text[]) WITH ORDINALITY AS r(id, n) CROSS JOIN LATERAL (
    SELECT state, token, settled, ordering_key IS NOT NULL AS ordered, cancel IS NOT NULL AS cancel,
        queue
    FROM {s}.job WHERE id = r.id AND namespace || '' = $1 OFFSET 0
) j
"""

# What stands in the way of new jobs: the id is known, the queue drains, a live job has the unique
# key, which it must give up if nobody claimed it in time.
LOOK_NEW = """
SELECT k.home, c.closed, j.id AS rival, j.state, coalesce(j.expired, false) AS expired
FROM unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY AS r(id, queue, key, n)
LEFT JOIN LATERAL (
    SELECT queue AS home FROM {s}.job WHERE id = r.id AND namespace || '' = $1 OFFSET 0
) k ON true
LEFT JOIN LATERAL (
    SELECT true AS closed FROM {s}.queue
    WHERE namespace = $1 AND name = r.queue AND mode = 'draining' OFFSET 0
) c ON true
LEFT JOIN LATERAL (
    SELECT id, state, expires_at <= clock_timestamp() AND state <> 'claimed' AS expired
    FROM {s}.job
    WHERE namespace = $1 AND queue = r.queue AND unique_key = r.key AND unique_key IS NOT NULL
        AND ended_at IS NULL OFFSET 0
) j ON true
ORDER BY r.n
"""

# Claimed jobs that nobody wants any more: the first reason stands, and the host is told.
ASK = """
WITH seen AS MATERIALIZED (
    SELECT r.n, j.row FROM unnest($2::text[]) WITH ORDINALITY AS r(id, n) CROSS JOIN LATERAL (
        SELECT ctid AS row FROM {s}.job WHERE id = r.id AND namespace || '' = $1 OFFSET 0
    ) j
), asked AS (
    UPDATE {s}.job j SET cancel = coalesce(j.cancel, $3) FROM seen r
    WHERE j.ctid = r.row AND j.token > 0 AND j.settled IS NULL AND j.ended_at IS NULL
    RETURNING r.n, j.id, j.host
)
SELECT a.n, count(pg_notify($4, json_build_object(
    'ns', $1::text, 'host', a.host, 'topic', 'cancel/' || a.id, 'waiter', 0, 'position', 0)::text))
FROM asked a GROUP BY a.n
"""

# Jobs that wait for their time, and dead and cancelled ones, which begin again. Refused where a
# live job has the unique key; of several in one batch the first gets it.
RETRY = compose(
    """
WITH req AS MATERIALIZED (
    SELECT $1::text AS namespace, r.* FROM unnest($2::text[]) WITH ORDINALITY AS r(id, n)
), cand AS MATERIALIZED (
    SELECT r.*, j.* FROM (SELECT * FROM req ORDER BY id COLLATE "C") r CROSS JOIN LATERAL (
        SELECT ctid AS row, queue, unique_key, ended_at IS NOT NULL AS ended FROM {s}.job
        WHERE id = r.id AND namespace || '' = r.namespace
            AND state IN ('scheduled', 'retrying', 'dead', 'cancelled')
        FOR NO KEY UPDATE
    ) j
), ranked AS MATERIALIZED (
    SELECT c.*, row_number() OVER (
        PARTITION BY c.queue, c.unique_key, c.ended ORDER BY c.n) AS place
    FROM cand c LEFT JOIN LATERAL (
        SELECT true AS taken FROM {s}.job
        WHERE namespace = c.namespace AND queue = c.queue AND unique_key = c.unique_key
            AND unique_key IS NOT NULL AND ended_at IS NULL OFFSET 0
    ) o ON true
    WHERE NOT c.ended OR o.taken IS NULL
), upd AS (
    UPDATE {s}.job j SET state = 'ready', seq = DEFAULT, due_at = clock_timestamp(),
        blocked = j.blocked OR c.ended AND j.ordering_key IS NOT NULL,
        attempts = CASE WHEN c.ended THEN 0 ELSE j.attempts END,
        losses = CASE WHEN c.ended THEN 0 ELSE j.losses END,
        cancel = NULL, ended_at = NULL, kept_until = NULL,
        error = CASE WHEN NOT c.ended THEN j.error END,
        result = NULL, progress = CASE WHEN NOT c.ended THEN j.progress END,
        expires_at = CASE WHEN NOT c.ended THEN j.expires_at
            ELSE clock_timestamp() + j.expires_us * interval '1 microsecond' END
    FROM ranked c
    WHERE j.ctid = c.row AND (NOT c.ended OR c.unique_key IS NULL OR c.place = 1)
    RETURNING c.n, j.queue, j.blocked
), fresh AS MATERIALIZED (
    SELECT u.queue, count(*) AS jobs FROM upd u WHERE NOT u.blocked GROUP BY u.queue
), {ring}
SELECT u.n, (SELECT hosts FROM told) AS told FROM upd u
""",
    ring=ring_to("$3"),
)

# Which claims stand, and what they have got to.
EXTEND = """
WITH seen AS MATERIALIZED (
    SELECT r.n, r.token, r.progress, j.row, j.cancel
    FROM unnest($2::text[], $3::bigint[], $4::text[])
        WITH ORDINALITY AS r(id, token, progress, n)
    CROSS JOIN LATERAL (
        SELECT ctid AS row, cancel IS NOT NULL AS cancel FROM {s}.job
        WHERE id = r.id AND namespace || '' = $1 AND token = r.token AND r.token > 0
            AND settled IS NULL OFFSET 0
    ) j
), told AS (
    UPDATE {s}.job j SET progress = r.progress FROM seen r
    WHERE r.progress IS NOT NULL AND j.ctid = r.row AND j.token = r.token AND j.settled IS NULL
)
SELECT n, cancel FROM seen
"""

DELETE = """
WITH seen AS MATERIALIZED (
    SELECT r.n, j.row FROM unnest($2::text[]) WITH ORDINALITY AS r(id, n) CROSS JOIN LATERAL (
        SELECT ctid AS row FROM {s}.job
        WHERE id = r.id AND namespace || '' = $1 AND ended_at IS NOT NULL OFFSET 0
    ) j
), gone AS (
    DELETE FROM {s}.job j USING seen r WHERE j.ctid = r.row AND j.ended_at IS NOT NULL
    RETURNING r.n, j.namespace, j.id
), forgotten AS (
    DELETE FROM {s}.job_attempt a USING (
        SELECT t.row FROM gone g CROSS JOIN LATERAL (
            SELECT ctid AS row FROM {s}.job_attempt
            WHERE namespace = g.namespace AND job = g.id OFFSET 0
        ) t
    ) t
    WHERE a.ctid = t.row
)
SELECT n FROM gone
"""

# Retention at work; notes of hosts that never came back go with it.
PRUNE = """
WITH late AS MATERIALIZED (
    SELECT ctid AS row FROM {s}.job
    WHERE namespace = $1 AND kept_until <= (SELECT clock_timestamp()) AND kept_until IS NOT NULL
    ORDER BY kept_until LIMIT $2
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {s}.job j USING late l WHERE j.ctid = l.row
    RETURNING j.namespace, j.id
), forgotten AS (
    DELETE FROM {s}.job_attempt a USING (
        SELECT t.row FROM gone g CROSS JOIN LATERAL (
            SELECT ctid AS row FROM {s}.job_attempt
            WHERE namespace = g.namespace AND job = g.id OFFSET 0
        ) t
    ) t
    WHERE a.ctid = t.row
), silent AS (
    DELETE FROM {s}.waiting
    WHERE namespace = $1 AND until < clock_timestamp() - interval '1 minute'
)
SELECT count(*) AS pruned FROM gone
"""
