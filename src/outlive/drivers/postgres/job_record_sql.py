"""The statements that show jobs and queues, and those of the limits of a queue.

Owns their text and nothing else. ``{s}`` stands for the quoted schema.
"""

from __future__ import annotations

from outlive.drivers.postgres.job_sql import CLAIMED_COLUMNS, compose

_COLUMNS = """j.id, j.queue, j.state, j.priority, j.payload, j.headers, j.token, j.attempts,
    j.losses, j.max_attempts, j.max_losses, j.retry, j.unique_key, j.ordering_key, j.blocked,
    j.cancel IS NOT NULL AND j.state = 'claimed' AS cancel_requested, j.worker, j.session,
    j.claimed_at, j.enqueued_at, j.due_at, j.ended_at, j.result, j.error, j.progress, j.number"""

GET = compose(
    "SELECT {columns} FROM {s}.job j WHERE j.id = $2 AND j.namespace || '' = $1", columns=_COLUMNS
)

# The first name behind ``{after}`` of a queue that has jobs. Here and below, claimed jobs and all
# others are looked for apart: each kind has an index, and its words are those of that index.
_NEXT_NAME = """
        SELECT f.queue FROM (
            (
                SELECT queue FROM {s}.job
                WHERE namespace = $1 AND state || '' <> 'claimed' AND queue > {after}
                ORDER BY queue LIMIT 1
            )
            UNION ALL
            (
                SELECT queue FROM {s}.job
                WHERE namespace = $1 AND state = 'claimed' AND queue > {after}
                ORDER BY queue LIMIT 1
            )
        ) f
        ORDER BY f.queue LIMIT 1"""

# Every such name: one step in each index, whatever the number of jobs.
_NAMES = compose(
    """
WITH RECURSIVE walk AS (
    ({first}
    )
    UNION ALL
    SELECT n.queue FROM walk w CROSS JOIN LATERAL ({next}
    ) n
)""",
    first=compose(_NEXT_NAME, after="''"),
    next=compose(_NEXT_NAME, after="w.queue"),
)

_MATCHING = """j.namespace = $1 AND j.queue = n.queue AND j.number > $3
            AND ($4::text[] IS NULL OR j.state = ANY($4::text[]))
            AND ($5::text IS NULL OR j.unique_key = $5::text)
            AND ($6::text IS NULL OR j.ordering_key = $6::text)
            AND ($7::text IS NULL OR j.session = $7::text)"""

# A page of one queue, or of each queue merged, in order of enqueueing. All claimed jobs of a queue
# are looked at for it: as many as the fleet runs at once. Neither kind is where it is not wanted.
LIST = compose(
    """{names}, name AS MATERIALIZED (
    SELECT $2::text AS queue WHERE $2::text IS NOT NULL
    UNION ALL SELECT queue FROM walk WHERE $2::text IS NULL
)
SELECT j.* FROM name n CROSS JOIN LATERAL (
    (
        SELECT {columns} FROM {s}.job j
        WHERE j.state || '' <> 'claimed' AND {matching}
            AND ($4::text[] IS NULL OR $4::text[] <> ARRAY['claimed'])
        ORDER BY j.number LIMIT $8
    )
    UNION ALL
    (
        SELECT {columns} FROM {s}.job j
        WHERE j.state = 'claimed' AND {matching}
            AND ($4::text[] IS NULL OR 'claimed' = ANY($4::text[]))
        ORDER BY j.number LIMIT $8
    )
) j
ORDER BY j.number LIMIT $8
""",
    names=_NAMES,
    columns=_COLUMNS,
    matching=_MATCHING,
)

ATTEMPTS = """
SELECT token, outcome, worker, claimed_at, ended_at, error FROM {s}.job_attempt
WHERE namespace = $1 AND job = $2 ORDER BY number DESC LIMIT $3
"""

# What is still claimed under one request of a session.
AGAIN = compose(
    """
WITH RECURSIVE walk AS (
    (
        SELECT queue FROM {s}.job WHERE namespace = $1 AND state = 'claimed'
        ORDER BY queue LIMIT 1
    )
    UNION ALL
    SELECT n.queue FROM walk w CROSS JOIN LATERAL (
        SELECT queue FROM {s}.job WHERE namespace = $1 AND state = 'claimed' AND queue > w.queue
        ORDER BY queue LIMIT 1
    ) n
)
SELECT j.* FROM walk w CROSS JOIN LATERAL (
    SELECT j.seq, {columns} FROM {s}.job j
    WHERE j.namespace = $1 AND j.queue = w.queue AND j.session = $2 AND j.state = 'claimed'
        AND j.request = $3 OFFSET 0
) j
""",
    columns=CLAIMED_COLUMNS,
)

# The session of a repeated claim. Waits for claims of the session that are still on their way: one
# of them may be the claim whose reply was lost.
SESSION = """
SELECT ended_at IS NULL AS open, expires_at > clock_timestamp() AS live FROM {s}.host
WHERE namespace = $1 AND id = $2
"""
LOCK_SESSION = SESSION + "FOR UPDATE"

# One job by its id, ready or due, and the queue that it is in.
TARGET = """
SELECT queue, state, due_at <= clock_timestamp() AS due FROM {s}.job
WHERE id = $2 AND namespace || '' = $1 AND NOT blocked
    AND state IN ('ready', 'scheduled', 'retrying')
"""

# The rows of queues with limits, in the order of their names. Claims of such a queue follow each
# other.
LOCK_QUEUES = """
SELECT name FROM {s}.queue
WHERE namespace = $1 AND name = ANY($2::text[]) AND (concurrency IS NOT NULL OR rate IS NOT NULL)
ORDER BY name
FOR NO KEY UPDATE
"""

# Under LOCK_QUEUES: how many more may be claimed now, and when the rate lets the next through.
ROOM = """
SELECT q.name, q.rate, least(q.concurrency - c.claimed, q.rate - p.made)::int AS room,
    CASE WHEN q.rate <= p.made THEN p.wait_s END AS wait_s
FROM unnest($2::text[]) AS w(name)
CROSS JOIN LATERAL (
    SELECT name, concurrency, rate, rate_period_us FROM {s}.queue
    WHERE namespace = $1 AND name = w.name OFFSET 0
) q
CROSS JOIN LATERAL (
    SELECT count(*) AS claimed FROM (
        SELECT FROM {s}.job WHERE namespace = $1 AND queue = q.name AND state = 'claimed'
        LIMIT coalesce(q.concurrency, 0)
    ) j
) c
CROSS JOIN LATERAL (
    SELECT coalesce(sum(claims), 0) AS made, extract(epoch FROM
        min(at) + q.rate_period_us * interval '1 microsecond' - clock_timestamp())::float8 AS wait_s
    FROM {s}.queue_pace
    WHERE namespace = $1 AND queue = q.name
        AND at > (SELECT clock_timestamp()) - q.rate_period_us * interval '1 microsecond'
) p
"""

# Under LOCK_QUEUES: so many were claimed from queues with a rate.
PACE = """
WITH made AS MATERIALIZED (
    SELECT $1::text AS namespace, m.*, q.rate_period_us
    FROM unnest($2::text[], $3::int[]) AS m(queue, claims)
    CROSS JOIN LATERAL (
        SELECT rate_period_us FROM {s}.queue
        WHERE namespace = $1 AND name = m.queue AND rate IS NOT NULL OFFSET 0
    ) q
), old AS (
    DELETE FROM {s}.queue_pace p USING (
        SELECT o.row FROM made m CROSS JOIN LATERAL (
            SELECT ctid AS row FROM {s}.queue_pace
            WHERE namespace = m.namespace AND queue = m.queue AND at
                <= (SELECT clock_timestamp()) - m.rate_period_us * interval '1 microsecond'
            OFFSET 0
        ) o
    ) o
    WHERE p.ctid = o.row
)
INSERT INTO {s}.queue_pace (namespace, queue, at, claims)
SELECT m.namespace, m.queue, clock_timestamp(), m.claims FROM made m
"""

# Limits are put, and the operator puts them or has none there.
_MAY_LIMIT = """$9 AND (
        $10 OR held.limits_by <> 'operator'
        OR num_nonnulls(held.concurrency, held.rate) = 0
    )"""

PUT_QUEUE = compose(
    """
INSERT INTO {s}.queue AS held (
    namespace, name, mode, concurrency, rate, rate_period_us, limits_by
) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (namespace, name) DO UPDATE SET
    mode = CASE WHEN $8 THEN $3 ELSE held.mode END,
    concurrency = CASE WHEN {may_limit} THEN $4 ELSE held.concurrency END,
    rate = CASE WHEN {may_limit} THEN $5 ELSE held.rate END,
    rate_period_us = CASE WHEN {may_limit} THEN $6 ELSE held.rate_period_us END,
    limits_by = CASE WHEN {may_limit} THEN $7 ELSE held.limits_by END
RETURNING mode
""",
    may_limit=_MAY_LIMIT,
)

# How many of the first jobs of a queue can be claimed now, or when they are due.
READY = """
SELECT count(*) AS jobs FROM (
    (
        SELECT FROM {s}.job WHERE namespace = $1 AND queue = $2 AND state = 'ready' AND NOT blocked
        LIMIT $3
    )
    UNION ALL
    (
        SELECT FROM {s}.job WHERE namespace = $1 AND queue = $2
            AND state IN ('scheduled', 'retrying') AND NOT blocked
        LIMIT $3
    )
) j
"""

# Jobs are counted in the order of their pages, so that only the index of pages will do.
QUEUES = compose(
    """{names}, name AS MATERIALIZED (
    SELECT queue FROM walk UNION SELECT name FROM {s}.queue WHERE namespace = $1
)
SELECT n.queue, q.mode, q.concurrency, q.rate, q.rate_period_us, q.limits_by, c.state, c.jobs,
    c.oldest_ready_s
FROM name n
LEFT JOIN LATERAL (
    SELECT mode, concurrency, rate, rate_period_us, limits_by FROM {s}.queue
    WHERE namespace = $1 AND name = n.queue OFFSET 0
) q ON true
LEFT JOIN LATERAL (
    SELECT state, count(*) AS jobs, extract(epoch FROM clock_timestamp() - min(due_at) FILTER (
        WHERE state = 'ready' AND NOT blocked))::float8 AS oldest_ready_s
    FROM (
        SELECT state, due_at, blocked FROM {s}.job
        WHERE namespace = $1 AND queue = n.queue AND state || '' <> 'claimed'
        ORDER BY number
    ) j
    GROUP BY state
    UNION ALL
    SELECT 'claimed', count(*), NULL FROM {s}.job
    WHERE namespace = $1 AND queue = n.queue AND state = 'claimed' HAVING count(*) > 0
) c ON true
ORDER BY n.queue, c.state
""",
    names=_NAMES,
)
