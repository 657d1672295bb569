"""The statements that move jobs off their usual course: failed, released, lost, cancelled, expired.

Owns their text and nothing else. Each chooses its rows (``cand``), locked in the order of their
ids, and says what becomes of each; one common ending writes that. Where ``$2`` is true only jobs
with an ordering key are touched, and the caller holds the locks of their keys; where it is false
only the others. A claim stands while ``settled`` is null. ``{s}`` stands for the quoted schema.
"""

from __future__ import annotations

from outlive.drivers.postgres.job_sql import compose, ring_to
from outlive.model.job import ATTEMPTS_KEPT_MAX

# What each ``cand`` says of a row: its next state, how the claim ended, what is counted, when it
# is due, and what enters the attempts. The columns of the row itself come from here.
_ROW = """j.ctid AS row, j.queue, j.token, j.worker, j.claimed_at, j.retention_us, j.attempts,
        j.losses, j.max_losses, j.cancel, j.blocked, j.expires_us,
        j.error IS NULL AS unfailed"""

# moved      ended jobs leave the indexes of the living and get the end of their retention. Rows are
#            found again by their address; one that got a newer version between the snapshot and the
#            lock is not, has no row in the answer, and is met again by who asked.
# removed    those without retention.
# forgotten  the newest attempts stay; the one that enters now is one of them.
# fresh      what became claimable, and the room that an ended claim leaves in a queue with a limit;
#            in one with a rate, a claim that was given back may.
_ENDING = compose(
    """, judged AS MATERIALIZED (
    SELECT c.*, c.next IN ('dead', 'cancelled') AS final,
        c.next IN ('dead', 'cancelled') AND c.retention_us <= 0 AS gone
    FROM cand c
), moved AS (
    UPDATE {s}.job j SET state = c.next, settled = coalesce(c.settled, j.settled),
        attempts = j.attempts + c.failed, losses = j.losses + c.lost,
        error = coalesce(c.error, j.error), due_at = coalesce(c.due_at, j.due_at),
        blocked = j.blocked AND NOT c.final,
        ended_at = CASE WHEN c.final THEN clock_timestamp() END,
        kept_until = CASE WHEN c.final
            THEN clock_timestamp() + c.retention_us * interval '1 microsecond' END
    FROM judged c
    WHERE j.ctid = c.row AND NOT c.gone
    RETURNING c.*
), removed AS (
    DELETE FROM {s}.job j USING judged c WHERE j.ctid = c.row AND c.gone
    RETURNING c.*
), done AS MATERIALIZED (
    SELECT * FROM moved UNION ALL SELECT * FROM removed
), trouble AS (
    INSERT INTO {s}.job_attempt (
        namespace, job, token, outcome, worker, claimed_at, ended_at, error
    )
    SELECT c.namespace, c.id, c.token, c.trouble, CASE WHEN c.failed + c.lost > 0 THEN c.worker END,
        CASE WHEN c.failed + c.lost > 0 THEN c.claimed_at END, clock_timestamp(), c.why
    FROM done c WHERE c.trouble IS NOT NULL AND NOT c.gone
), forgotten AS (
    DELETE FROM {s}.job_attempt a USING (
        SELECT t.row FROM done c CROSS JOIN LATERAL (
            SELECT ctid AS row FROM {s}.job_attempt
            WHERE namespace = c.namespace AND job = c.id
            ORDER BY number DESC
            OFFSET CASE WHEN c.gone THEN 0 ELSE {older} END
        ) t
        WHERE c.gone OR c.trouble IS NOT NULL AND c.attempts + c.losses >= {older}
    ) t
    WHERE a.ctid = t.row
), fresh AS MATERIALIZED (
    SELECT c.queue, count(*) AS jobs FROM done c
    WHERE c.rings OR c.settled IS NOT NULL AND EXISTS (
        SELECT FROM {s}.queue q
        WHERE q.namespace = c.namespace AND q.name = c.queue
            AND (q.concurrency IS NOT NULL OR c.settled = 'released' AND q.rate IS NOT NULL)
    )
    GROUP BY c.queue
), {ring}
SELECT c.n, c.id, c.queue, c.next, (SELECT hosts FROM told) AS told FROM done c
""",
    ring=ring_to("$3"),
    older=str(ATTEMPTS_KEPT_MAX - 1),
)

_CLAIMED = compose(
    """
        SELECT {row} FROM {s}.job j
        WHERE j.id = r.id AND j.namespace || '' = r.namespace AND j.token = r.token AND r.token > 0
            AND j.settled IS NULL AND (j.ordering_key IS NOT NULL) = $2::boolean
        FOR NO KEY UPDATE""",
    row=_ROW,
)

# One that is tried again at once is ready, behind those that are. The place of the others does not
# matter: they get a new one when they become ready.
FAIL = compose(
    """
WITH req AS MATERIALIZED (
    SELECT $1::text AS namespace, r.* FROM unnest(
        $4::text[], $5::bigint[], $6::text[], $7::bigint[]
    ) WITH ORDINALITY AS r(id, token, error, retry_us, n)
), cand AS MATERIALIZED (
    SELECT r.namespace, r.id, r.n, j.*, 'failed' AS settled, 1 AS failed, 0 AS lost,
        CASE WHEN j.cancel IS NOT NULL THEN 'cancelled' WHEN r.retry_us IS NULL THEN 'dead'
            WHEN r.retry_us <= 0 THEN 'ready' ELSE 'retrying' END AS next,
        coalesce(to_json(j.cancel)::text, r.error) AS error, 'failed' AS trouble, r.error AS why,
        clock_timestamp() + r.retry_us * interval '1 microsecond' AS due_at,
        j.cancel IS NULL AND r.retry_us <= 0 AS rings
    FROM (SELECT * FROM req ORDER BY id COLLATE "C") r
    CROSS JOIN LATERAL ({claimed}
    ) j
){ending}""",
    claimed=_CLAIMED,
    ending=_ENDING.replace("SET state = c.next,", "SET state = c.next, seq = DEFAULT,"),
)

# Claims of which nothing was begun do not count towards the rate of their queue: they are taken
# from the window as of the instant at which they were made. Added, not changed: who counts and who
# prunes the window meanwhile waits for nobody.
_PACED = """, paced AS (
    INSERT INTO {s}.queue_pace (namespace, queue, at, claims)
    SELECT c.namespace, c.queue, c.claimed_at, -count(*)
    FROM done c CROSS JOIN LATERAL (
        SELECT rate_period_us FROM {s}.queue
        WHERE namespace = c.namespace AND name = c.queue AND rate IS NOT NULL OFFSET 0
    ) q
    WHERE c.unbegun
        AND c.claimed_at > clock_timestamp() - q.rate_period_us * interval '1 microsecond'
    GROUP BY c.namespace, c.queue, c.claimed_at
)
SELECT c.n, c.id"""

# To its old place, or after a while to a new one.
RELEASE = compose(
    """
WITH req AS MATERIALIZED (
    SELECT $1::text AS namespace, r.*
    FROM unnest($4::text[], $5::bigint[], $6::bigint[], $7::boolean[])
        WITH ORDINALITY AS r(id, token, delay_us, unbegun, n)
), cand AS MATERIALIZED (
    SELECT r.namespace, r.id, r.n, r.unbegun, j.*, 'released' AS settled, 0 AS failed, 0 AS lost,
        CASE WHEN j.cancel IS NOT NULL THEN 'cancelled' WHEN r.delay_us > 0 THEN 'scheduled'
            ELSE 'ready' END AS next,
        to_json(j.cancel)::text AS error, NULL AS trouble, NULL AS why,
        CASE WHEN r.delay_us > 0
            THEN clock_timestamp() + r.delay_us * interval '1 microsecond' END AS due_at,
        j.cancel IS NULL AND r.delay_us <= 0 AS rings
    FROM (SELECT * FROM req ORDER BY id COLLATE "C") r
    CROSS JOIN LATERAL ({claimed}
    ) j
){ending}""",
    claimed=_CLAIMED,
    ending=_ENDING.replace("\nSELECT c.n, c.id", _PACED),
)

# Claims whose session has ended or is unknown. Claimed rows are found by walking over the queues
# and sessions that have any, not over the rows. A session that ended never lives again, so there
# is nothing to lock.
_ORPHANED = """
WITH RECURSIVE pair AS (
    (
        SELECT queue, session FROM {s}.job
        WHERE namespace = $1 AND state = 'claimed'
        ORDER BY queue, session LIMIT 1
    )
    UNION ALL
    SELECT n.queue, n.session FROM pair p CROSS JOIN LATERAL (
        SELECT queue, session FROM {s}.job
        WHERE namespace = $1 AND state = 'claimed' AND (queue, session) > (p.queue, p.session)
        ORDER BY queue, session LIMIT 1
    ) n
), orphaned AS MATERIALIZED (
    SELECT p.queue, p.session FROM pair p
    LEFT JOIN LATERAL (
        SELECT true AS known, ended_at FROM {s}.host
        WHERE namespace = $1 AND id = p.session OFFSET 0
    ) h ON true
    WHERE h.known IS NULL OR h.ended_at IS NOT NULL
)"""

RECLAIM = compose(
    """{orphaned}, cand AS MATERIALIZED (
    SELECT $1::text AS namespace, j.*, 0::bigint AS n, 'lost' AS settled, 0 AS failed, 1 AS lost,
        CASE WHEN j.cancel IS NOT NULL THEN 'cancelled'
            WHEN j.losses + 1 > j.max_losses THEN 'dead' ELSE 'ready' END AS next,
        to_json(CASE WHEN j.cancel IS NOT NULL THEN j.cancel
            WHEN j.losses + 1 > j.max_losses THEN format(
                'lost too often: losses %s, max_losses %s, last host %s',
                j.losses + 1, j.max_losses, j.worker) END)::text AS error,
        'lost' AS trouble, NULL AS why,
        NULL::timestamptz AS due_at,
        j.cancel IS NULL AND j.losses + 1 <= j.max_losses AS rings
    FROM orphaned o CROSS JOIN LATERAL (
        SELECT j.id, {row} FROM {s}.job j
        WHERE j.namespace = $1 AND j.queue = o.queue AND j.session = o.session
            AND j.state = 'claimed' AND (j.ordering_key IS NOT NULL) = $2::boolean
            AND (NOT $2::boolean OR j.id = ANY($5::text[]))
        FOR NO KEY UPDATE SKIP LOCKED
    ) j
    LIMIT $4
){ending}""",
    orphaned=_ORPHANED,
    row=_ROW,
    ending=_ENDING,
)

# Those of them that have an ordering key, but for some; or any ($4).
ORPHANS = compose(
    """{orphaned}
SELECT j.id FROM orphaned o CROSS JOIN LATERAL (
    SELECT id FROM {s}.job
    WHERE namespace = $1 AND queue = o.queue AND session = o.session AND state = 'claimed'
        AND ($4::boolean OR ordering_key IS NOT NULL) AND id <> ALL($3::text[]) OFFSET 0
) j LIMIT $2
""",
    orphaned=_ORPHANED,
)

# Live jobs that nobody has claimed. Those that are claimed by now are asked for by ``ASK``.
CANCEL = compose(
    """
WITH req AS MATERIALIZED (
    SELECT $1::text AS namespace, r.* FROM unnest($4::text[]) WITH ORDINALITY AS r(id, n)
), cand AS MATERIALIZED (
    SELECT r.namespace, r.id, r.n, j.*, NULL AS settled, 0 AS failed, 0 AS lost,
        'cancelled' AS next, to_json($5::text)::text AS error, NULL AS trouble, NULL AS why,
        NULL::timestamptz AS due_at, false AS rings
    FROM (SELECT * FROM req ORDER BY id COLLATE "C") r
    CROSS JOIN LATERAL (
        SELECT {row} FROM {s}.job j
        WHERE j.id = r.id AND j.namespace || '' = r.namespace AND j.ended_at IS NULL
            AND j.state <> 'claimed' AND (j.ordering_key IS NOT NULL) = $2::boolean
        FOR NO KEY UPDATE
    ) j
){ending}""",
    row=_ROW,
    ending=_ENDING,
)

# Of a job that nobody claimed in time.
_EXPIRED = """CASE WHEN j.unfailed THEN to_json(format(
            'expired: not claimed within %s s', (j.expires_us / 1e6)::float8))::text END"""

# Unclaimed jobs whose expiry passed.
EXPIRE = compose(
    """
WITH cand AS MATERIALIZED (
    SELECT $1::text AS namespace, j.*, 0::bigint AS n, NULL AS settled, 0 AS failed, 0 AS lost,
        'dead' AS next, {expired} AS error, 'expired' AS trouble, NULL AS why,
        NULL::timestamptz AS due_at, false AS rings
    FROM (SELECT) one CROSS JOIN LATERAL (
        SELECT j.id, {row} FROM {s}.job j
        WHERE j.namespace = $1 AND j.expires_at <= (SELECT clock_timestamp())
            AND j.expires_at IS NOT NULL AND j.state IN ('scheduled', 'ready', 'retrying')
            AND (j.ordering_key IS NOT NULL) = $2::boolean
            AND (NOT $2::boolean OR j.id = ANY($5::text[]))
        ORDER BY j.expires_at LIMIT $4
        FOR NO KEY UPDATE SKIP LOCKED
    ) j
){ending}""",
    row=_ROW,
    ending=_ENDING,
    expired=_EXPIRED,
)

# Those of some jobs that expired, in the way of new ones.
EXPIRE_NAMED = compose(
    """
WITH req AS MATERIALIZED (
    SELECT $1::text AS namespace, r.* FROM unnest($4::text[]) WITH ORDINALITY AS r(id, n)
), cand AS MATERIALIZED (
    SELECT r.namespace, r.id, r.n, j.*, NULL AS settled, 0 AS failed, 0 AS lost,
        'dead' AS next, {expired} AS error, 'expired' AS trouble, NULL AS why,
        NULL::timestamptz AS due_at, false AS rings
    FROM (SELECT * FROM req ORDER BY id COLLATE "C") r
    CROSS JOIN LATERAL (
        SELECT {row} FROM {s}.job j
        WHERE j.id = r.id AND j.namespace || '' = r.namespace AND j.ended_at IS NULL
            AND j.state <> 'claimed' AND j.expires_at <= (SELECT clock_timestamp())
            AND (j.ordering_key IS NOT NULL) = $2::boolean
        FOR NO KEY UPDATE
    ) j
){ending}""",
    row=_ROW,
    ending=_ENDING,
    expired=_EXPIRED,
)

# Expired ones that have an ordering key, but for some; or any ($4).
EXPIRED = """
SELECT id FROM {s}.job
WHERE namespace = $1 AND expires_at <= (SELECT clock_timestamp()) AND expires_at IS NOT NULL
    AND state IN ('scheduled', 'ready', 'retrying') AND ($4::boolean OR ordering_key IS NOT NULL)
    AND id <> ALL($3::text[])
ORDER BY expires_at LIMIT $2
"""
