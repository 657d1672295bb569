"""The statements that every job passes through: enqueue, claim, complete, and promoting the due.

Owns their text and nothing else. Every statement carries the namespace as its first parameter and
reads ``clock_timestamp()``. ``{s}`` stands for the quoted schema.

A connection plans each statement once, perhaps on empty tables, so nothing is left to choose: what
is looked up stands in LATERAL parts; rows to be changed are named by their addresses, for which
there is but one way; and a job is meant by ``id = … AND namespace || '' = …``, because every index
that begins with the namespace would else do, and be read from end to end.
"""

from __future__ import annotations

# Tells the hosts that wait in the queues of ``fresh`` (queue, jobs): the oldest notes, as many as
# there are jobs, and the one that ends last, because the oldest may be of hosts that died. Takes
# their notes away; not those of a paused queue, which gives nothing. Without a note nothing is
# sent: a commit that notifies takes a lock of the whole database. ``{channel}`` is the parameter
# with the channel.
_RING = """
bell AS MATERIALIZED (
    SELECT f.queue, w.host, w.row FROM (
        SELECT f.queue, f.jobs FROM fresh f LEFT JOIN LATERAL (
            SELECT mode FROM {s}.queue WHERE namespace = $1 AND name = f.queue OFFSET 0
        ) q ON true
        WHERE q.mode IS DISTINCT FROM 'paused' OFFSET 0
    ) f CROSS JOIN LATERAL (
        SELECT host, ctid AS row FROM {s}.waiting
        WHERE namespace = $1 AND queue = f.queue AND until > clock_timestamp()
        ORDER BY until < (
            SELECT max(until) FROM {s}.waiting WHERE namespace = $1 AND queue = f.queue
        ), since LIMIT f.jobs + 1
        FOR UPDATE SKIP LOCKED
    ) w
), answered AS (
    DELETE FROM {s}.waiting w USING bell b WHERE w.ctid = b.row
), told AS MATERIALIZED (
    SELECT count(pg_notify({channel}, json_build_object(
        'ns', $1::text, 'host', b.host, 'topic', 'work/' || b.queue, 'waiter', 0,
        'position', 0)::text)) AS hosts
    FROM bell b
)"""


def compose(text: str, **parts: str) -> str:
    """``text`` with each ``{name}`` in it replaced by the part of that name; other braces stay."""
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return text


def ring_to(channel: str) -> str:
    """``_RING`` with the parameter that holds the channel."""
    return compose(_RING, channel=channel)


# Words of ``_RING`` that take notes away, and those that leave them where they are.
_TAKING = (
    ("LIMIT f.jobs + 1\n        FOR UPDATE SKIP LOCKED", "LIMIT f.jobs + 1"),
    ("USING bell b WHERE w.ctid = b.row", "USING bell b WHERE w.ctid = b.row AND false"),
)


def staying(text: str) -> str:
    """A statement that rings as before, but takes nobody's note.

    For a transaction of the caller's, who may take his time: a host that waits again would wait for
    whoever takes its note away.
    """
    for taking, leaving in _TAKING:
        text = text.replace(taking, leaving)
    return text


# Jobs of one call, in their order. An id that is there already changes nothing, and neither does a
# live unique key; who asked learns which of them it was by looking (see ``job_enqueue``). A job
# with an ordering key enters blocked, and the one whose turn it is is unblocked afterwards.
#
# flight  a shared lock for each queue until commit. A host that is about to wait asks whether
#         anybody holds it: such a job may be too young for the host's snapshot, and its note too
#         young for the snapshot here, so the host looks again soon instead of sleeping.
# ins     one that answers an instance is kept for a minute at least: the letter hangs on the update
#         that ends it, and a removal is none.
ENQUEUE_INTO = """name AS MATERIALIZED (
    SELECT q.queue, c.mode = 'draining' AS closed,
        pg_advisory_xact_lock_shared(hashtextextended({flight} || q.queue, 0)) AS flight
    FROM (SELECT DISTINCT queue FROM req) q
    LEFT JOIN LATERAL (
        SELECT mode FROM {s}.queue WHERE namespace = $1 AND name = q.queue OFFSET 0
    ) c ON true
), clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now, count(n.flight) AS flights FROM name n
), ins AS (
    INSERT INTO {s}.job (
        namespace, id, queue, token, state, blocked, priority, max_attempts, max_losses,
        retention_us, expires_us, enqueued_at, due_at, expires_at, unique_key, ordering_key, retry,
        headers, payload, instance, step
    )
    SELECT $1, r.id, r.queue, 0,
        CASE WHEN r.due_at <= r.now THEN 'ready' ELSE 'scheduled' END,
        r.ordering_key IS NOT NULL, r.priority, r.max_attempts, r.max_losses,
        CASE WHEN r.instance IS NULL THEN r.retention_us
            ELSE greatest(r.retention_us, 60000000) END,
        r.expires_us, r.now, r.due_at, r.now + r.expires_us * interval '1 microsecond',
        r.unique_key, r.ordering_key, r.retry, r.headers, r.payload, r.instance, r.step
    FROM (
        SELECT r.*, c.now, coalesce(
            timestamptz 'epoch' + r.due_at_us * interval '1 microsecond',
            c.now + r.delay_us * interval '1 microsecond') AS due_at
        FROM req r CROSS JOIN clock c
    ) r
    WHERE r.queue NOT IN (SELECT n.queue FROM name n WHERE n.closed)
    ORDER BY r.n
    ON CONFLICT DO NOTHING
    RETURNING id, queue, state, blocked
)"""

_ENQUEUE = """
WITH req AS MATERIALIZED (
    SELECT r.* FROM unnest(
        $2::text[], $3::text[], $4::text[], $5::int[], $6::bigint[], $7::bigint[], $8::text[],
        $9::text[], $10::int[], $11::int[], $12::text[], $13::bigint[], $14::bigint[], $15::text[],
        $16::text[], $17::text[]
    ) WITH ORDINALITY AS r(
        id, queue, payload, priority, delay_us, due_at_us, unique_key, ordering_key,
        max_attempts, max_losses, retry, expires_us, retention_us, headers, instance, step, n
    )
), {into}"""

# Who waits hears of what can be claimed at once.
_ENQUEUE_RINGING = compose(
    """{enqueue}, fresh AS MATERIALIZED (
    SELECT i.queue, count(*) AS jobs FROM ins i
    WHERE i.state = 'ready' AND NOT i.blocked GROUP BY i.queue
), {ring}
SELECT (SELECT hosts FROM told) AS told,
    ARRAY(SELECT n.queue FROM name n WHERE n.closed) AS closed""",
    ring=ring_to("$18"),
    enqueue=compose(_ENQUEUE, into=ENQUEUE_INTO),
)

# A batch without keys: nothing more is to be known of it.
ENQUEUE_PLAIN = compose(
    """{enqueue}, CASE WHEN (SELECT count(*) FROM ins) < cardinality($2::text[])
        THEN ARRAY(SELECT i.id FROM ins i) END AS made""",
    enqueue=_ENQUEUE_RINGING,
)

# The same with keys, inside a transaction that looks after them.
ENQUEUE_KEYED = compose(
    "{enqueue}, ARRAY(SELECT i.id FROM ins i) AS made", enqueue=_ENQUEUE_RINGING
)

# What a claimant is given of a job.
CLAIMED_COLUMNS = """j.id, j.queue, j.token, j.payload, j.attempts, j.losses, j.max_attempts,
        j.retry, j.priority, j.headers,
        (date_part('epoch', j.enqueued_at) * 1000000)::bigint AS enqueued_at_us,
        j.unique_key, j.ordering_key"""

# When the next waiting job of the queue ``w`` is due.
_NEXT_DUE = """LEFT JOIN LATERAL (
        SELECT due_at FROM {s}.job
        WHERE namespace = $1 AND queue = w.queue AND state IN ('scheduled', 'retrying')
            AND NOT blocked
        ORDER BY due_at LIMIT 1
    ) d ON true"""

# One claim, one statement.
#
# host    the session, locked against a peer that would end it, and judged under that lock: a claim
#         never commits for a session that was reaped meanwhile.
# want    the queues, what holds for them, and when their next waiting job is due: one look-up in
#         an index that holds nothing else.
# suspect the one suspect that may be taken, of $12: of its queue the one lost least often, by which
#         alone the index of suspects is ordered. The number is ``SUSPECT_LOSSES``.
# gate    nothing is taken for a dead session; nor while due jobs are to be promoted first ($9 says
#         that they were), nor from queues with limits, whose row is then locked before ($8).
# picked  the first of each queue in the order of the index, skipping what others are taking. The
#         newest version of each row is judged again under its lock.
# taken   the claims, with fresh tokens. Rows are found again by their addresses, all in one scan: a
#         join would begin a scan for each, and ask the system for the size of the table each time.
#         One that got a newer version since the snapshot is left to the next claim.
_CLAIM = compose(
    """
WITH host AS MATERIALIZED (
    SELECT ended_at, expires_at FROM {s}.host WHERE namespace = $1 AND id = $2
    FOR KEY SHARE
), want AS MATERIALIZED (
    SELECT w.queue, w.most, w.max_losses, w.n, q.mode IS DISTINCT FROM 'paused' AS open, q.limited,
        d.due_at
    FROM unnest($5::text[], $6::int[], $11::int[])
        WITH ORDINALITY AS w(queue, most, max_losses, n)
    LEFT JOIN LATERAL (
        SELECT mode, concurrency IS NOT NULL OR rate IS NOT NULL AS limited
        FROM {s}.queue WHERE namespace = $1 AND name = w.queue OFFSET 0
    ) q ON true
    {next_due}
), gate AS MATERIALIZED (
    SELECT EXISTS (
            SELECT FROM host WHERE ended_at IS NULL AND expires_at > clock_timestamp()
        ) AS alive,
        NOT $9::boolean AND coalesce(bool_or(w.open AND w.due_at <= clock_timestamp()), false)
            AS due,
        NOT $8::boolean AND coalesce(bool_or(w.open AND w.limited), false) AS limited,
        extract(epoch FROM min(w.due_at) FILTER (WHERE w.open)
            - clock_timestamp())::float8 AS next_due_s
    FROM want w
), suspect AS MATERIALIZED (
    SELECT j.row FROM want w CROSS JOIN LATERAL (
        SELECT ctid AS row FROM {s}.job
        WHERE namespace = $1 AND queue = w.queue AND state = 'ready' AND NOT blocked
            AND losses >= 2 AND (expires_at IS NULL OR expires_at > clock_timestamp())
        ORDER BY losses, seq LIMIT 1
    ) j
    WHERE $12::boolean AND w.open AND w.most > 0 ORDER BY w.n LIMIT 1
), picked AS MATERIALIZED (
    SELECT j.row
    FROM (SELECT queue, most, n FROM want WHERE open ORDER BY n) w
    CROSS JOIN LATERAL (
        SELECT ctid AS row FROM {s}.job
        WHERE namespace = $1 AND queue = w.queue AND state = 'ready' AND NOT blocked
            AND (losses < 2 OR ctid = (SELECT row FROM suspect))
            AND (expires_at IS NULL OR expires_at > clock_timestamp())
        ORDER BY priority DESC, seq LIMIT w.most
        FOR NO KEY UPDATE SKIP LOCKED
    ) j
    WHERE (SELECT g.alive AND NOT g.due AND NOT g.limited FROM gate g)
    LIMIT $7
), taken AS (
    UPDATE {s}.job j SET state = 'claimed', token = DEFAULT, session = $2, worker = $3,
        request = $4, host = $10, claimed_at = clock_timestamp(), settled = NULL,
        max_losses = coalesce(
            (SELECT w.max_losses FROM want w WHERE w.queue = j.queue LIMIT 1), j.max_losses)
    WHERE j.ctid = ANY(ARRAY(SELECT row FROM picked))
    RETURNING j.seq, {columns}
)""",
    columns=CLAIMED_COLUMNS,
    next_due=_NEXT_DUE,
)

# One queue that is open, has no limits and no suspects, and where nothing is due.
_LONE = """host AS MATERIALIZED (
    SELECT ended_at, expires_at FROM {s}.host WHERE namespace = $1 AND id = $2
    FOR KEY SHARE
), picked AS MATERIALIZED (
    SELECT ctid AS row FROM {s}.job
    WHERE namespace = $1 AND queue = $5 AND state = 'ready' AND NOT blocked
        AND (expires_at IS NULL OR expires_at > clock_timestamp())
        AND (SELECT ended_at IS NULL AND expires_at > clock_timestamp() FROM host)
        AND NOT EXISTS (
            SELECT FROM {s}.queue WHERE namespace = $1 AND name = $5
                AND (mode = 'paused' OR concurrency IS NOT NULL OR rate IS NOT NULL)
        )
        AND coalesce((
            SELECT due_at FROM {s}.job
            WHERE namespace = $1 AND queue = $5 AND state IN ('scheduled', 'retrying')
                AND NOT blocked
            ORDER BY due_at LIMIT 1
        ) > clock_timestamp(), true)
        AND (
            SELECT losses FROM {s}.job
            WHERE namespace = $1 AND queue = $5 AND state = 'ready' AND NOT blocked
                AND losses >= 2
            ORDER BY losses, seq LIMIT 1
        ) IS NULL
    ORDER BY priority DESC, seq LIMIT $6
    FOR NO KEY UPDATE SKIP LOCKED
)"""
_TAKE_LONE = compose(
    """UPDATE {s}.job j SET state = 'claimed', token = DEFAULT, session = $2, worker = $3,
    request = $4, host = $7, claimed_at = clock_timestamp(), settled = NULL,
    max_losses = coalesce($8::int, j.max_losses)
WHERE j.ctid = ANY(ARRAY(SELECT row FROM picked))
RETURNING j.seq, {columns}""",
    columns=CLAIMED_COLUMNS,
)

# The usual case at half the cost. No row in the answer means "ask the general statement".
CLAIM_LONE = compose("\nWITH {lone}\n{take}\n", lone=_LONE, take=_TAKE_LONE)

# ``overdue``: less was had than was wanted, and somewhere a job expired that nobody has ended. It
# may have the turn of its ordering key.
_ANSWER = """
SELECT g.alive, g.due, g.limited, g.next_due_s, {standing} AS standing, {noted} AS noted,
    CASE WHEN (SELECT count(*) FROM picked) < $7 THEN coalesce((
        SELECT expires_at FROM {s}.job
        WHERE namespace = $1 AND expires_at IS NOT NULL
            AND state IN ('scheduled', 'ready', 'retrying')
        ORDER BY expires_at LIMIT 1
    ) <= clock_timestamp(), false) ELSE false END AS overdue, t.*
FROM gate g LEFT JOIN taken t ON true
"""

CLAIM = _CLAIM + compose(_ANSWER, standing="false", noted="false")

# The same for a host that wants to be told of more: its notes enter with what was too little.
# Where those from before last for this wait too (``standing``) they are left as they are: who
# comes with something new passes over a note that is being written. ``noted`` says that they last
# still, however long.
CLAIM_WAITING = compose(
    """{claim}, before AS MATERIALIZED (
    SELECT coalesce(bool_and(
            w.until >= clock_timestamp() + $13::bigint * interval '1 microsecond'), true)
            AND count(*) = count(w.until) AS standing,
        coalesce(bool_and(w.until > clock_timestamp()), true) AND count(*) = count(w.until) AS noted
    FROM want v LEFT JOIN LATERAL (
        SELECT until FROM {s}.waiting
        WHERE namespace = $1 AND queue = v.queue AND host = $10 OFFSET 0
    ) w ON true
), note AS (
    INSERT INTO {s}.waiting AS w (namespace, queue, host, since, until)
    SELECT $1, v.queue, $10, clock_timestamp(),
        clock_timestamp() + $13::bigint * interval '1 microsecond'
    FROM (SELECT DISTINCT queue FROM want) v
    WHERE (SELECT g.alive AND NOT g.due AND NOT g.limited FROM gate g)
        AND NOT (SELECT standing FROM before)
        AND (SELECT count(*) FROM picked) < $7
    ORDER BY v.queue
    ON CONFLICT (namespace, queue, host) DO UPDATE SET until = greatest(w.until, excluded.until)
){answer}""",
    claim=_CLAIM,
    answer=compose(
        _ANSWER,
        standing="(SELECT standing FROM before)",
        noted="(SELECT noted FROM before)",
    ),
)

# One job by its id, whatever stands before it. Its state is asked for in words that no partial
# index answers to.
_FIRST = """WHERE namespace = $1 AND queue = w.queue AND state = 'ready' AND NOT blocked
            AND (losses < 2 OR ctid = (SELECT row FROM suspect))
            AND (expires_at IS NULL OR expires_at > clock_timestamp())
        ORDER BY priority DESC, seq LIMIT w.most"""
_NAMED = """WHERE id = $13 AND namespace || '' = $1 AND state = 'ready'
            AND coalesce(blocked, false) = false
            AND (expires_at IS NULL OR expires_at > clock_timestamp())"""
CLAIM_NAMED = CLAIM.replace(_FIRST, _NAMED)

# The notes alone, for who asked for one job by its id.
NOTE = """
INSERT INTO {s}.waiting AS w (namespace, queue, host, since, until)
SELECT $1, v.queue, $3, clock_timestamp(),
    clock_timestamp() + $4::bigint * interval '1 microsecond'
FROM (SELECT DISTINCT queue FROM unnest($2::text[]) AS r(queue) ORDER BY queue) v
ON CONFLICT (namespace, queue, host) DO UPDATE SET until = greatest(w.until, excluded.until)
"""

# Whether anybody is enqueueing into these queues right now; see ``flight`` above.
IN_FLIGHT = """
SELECT bool_or(NOT pg_try_advisory_xact_lock(hashtextextended({flight} || w.queue, 0))) AS busy
FROM unnest($2::text[]) AS w(queue)
"""

# Whether a claim from these queues would find anything now, and when the next waiting job is due.
# Reads only, so that nothing is flushed for it; what others are taking counts as found.
GLANCE = compose(
    """
SELECT coalesce(bool_or(r.ready OR d.due_at <= clock_timestamp()), false) AS found,
    extract(epoch FROM min(d.due_at) - clock_timestamp())::float8 AS next_due_s
FROM unnest($2::text[]) AS w(queue)
LEFT JOIN LATERAL (
    SELECT mode FROM {s}.queue WHERE namespace = $1 AND name = w.queue OFFSET 0
) q ON true
LEFT JOIN LATERAL (
    SELECT true AS ready FROM {s}.job
    WHERE namespace = $1 AND queue = w.queue AND state = 'ready' AND NOT blocked
        AND (expires_at IS NULL OR expires_at > clock_timestamp())
    ORDER BY priority DESC, seq LIMIT 1
) r ON true
{next_due}
WHERE q.mode IS DISTINCT FROM 'paused'
""",
    next_due=_NEXT_DUE,
)

# Due jobs become ready in the order of their times, at most $3 in each queue. The clock stands in
# a subquery, read once: compared with a function that changes, an index could not end its search.
PROMOTE = """
WITH due AS MATERIALIZED (
    SELECT j.row FROM unnest($2::text[]) AS w(queue)
    CROSS JOIN LATERAL (
        SELECT ctid AS row FROM {s}.job
        WHERE namespace = $1 AND queue = w.queue AND state IN ('scheduled', 'retrying')
            AND NOT blocked AND due_at <= (SELECT clock_timestamp())
        ORDER BY due_at, number LIMIT $3
        FOR NO KEY UPDATE SKIP LOCKED
    ) j
)
UPDATE {s}.job j SET state = 'ready', seq = DEFAULT FROM due d
WHERE j.ctid = d.row
RETURNING j.queue
"""

# One job by its id, if it is due.
PROMOTE_NAMED = """
UPDATE {s}.job SET state = 'ready', seq = DEFAULT
WHERE id = $2 AND namespace || '' = $1 AND state IN ('scheduled', 'retrying')
    AND coalesce(blocked, false) = false AND due_at <= clock_timestamp()
"""

# The usual end: claimed under this token, without an ordering key, and to be kept. A member without
# a row in the answer is looked at by ``job_settle``. A claim stands while ``settled`` is null. What
# changed since the snapshot is judged again under the lock.
#
# Rows come sorted, so that two batches that share some meet them in one order. An id is looked up
# as one of a list of one: for a plain equation the planner might read the whole index to join it in
# order.
_CLAIMED = """j.id = ANY(ARRAY[r.id]) AND j.namespace || '' = $1 AND j.token = r.token
        AND r.token > 0 AND j.settled IS NULL AND j.ordering_key IS NULL"""
_AS_DONE = """UPDATE {s}.job j SET state = 'done', settled = 'done', result = r.result,
        ended_at = clock_timestamp(),
        kept_until = clock_timestamp() + j.retention_us * interval '1 microsecond'"""
_KEPT = compose(
    """{as_done}
    FROM unnest($2::text[], $3::bigint[], $4::text[]) WITH ORDINALITY AS r(id, token, result, n)
    WHERE {claimed} AND j.retention_us > 0""",
    as_done=_AS_DONE,
    claimed=_CLAIMED,
)

# The usual case at less cost: of a queue that does not limit how many of its jobs run, so that
# nobody waits for the room that they leave. Each queue is looked up, however many have limits.
_UNLIMITED = """NOT EXISTS (
        SELECT FROM {s}.queue
        WHERE namespace = $1 AND name = j.queue AND concurrency IS NOT NULL OFFSET 0
    )"""
COMPLETE_KEPT = compose(
    """
{kept}
    AND {unlimited}
RETURNING r.n
""",
    kept=_KEPT,
    unlimited=_UNLIMITED,
)

# The usual claim and usual completions in one commit. It waits for no job: who holds some of those
# that it takes may want those that it completes, and a claim must not wait with a completion. The
# session is locked before the jobs, as by who ends it and takes its claims.
#
# free    those of the completed that nobody else has locked. The others are asked of a statement
#         that waits.
# done    their places in the batch, and null for all of them.
EXCHANGE = compose(
    """
WITH {lone}, taken AS (
{take}
), free AS MATERIALIZED (
    SELECT r.n, r.result, j.row
    FROM unnest($9::text[], $10::bigint[], $11::text[]) WITH ORDINALITY AS r(id, token, result, n)
    CROSS JOIN LATERAL (
        SELECT ctid AS row FROM {s}.job j
        WHERE {claimed} AND j.retention_us > 0 AND {unlimited}
        FOR NO KEY UPDATE SKIP LOCKED
    ) j
    WHERE (SELECT count(*) FROM host) >= 0
), ended AS (
    {as_done}
    FROM free r WHERE j.ctid = r.row
    RETURNING r.n
)
SELECT t.*, CASE WHEN (SELECT count(*) FROM ended) < cardinality($9::text[])
    THEN ARRAY(SELECT n FROM ended) END AS done
FROM (SELECT) one LEFT JOIN taken t ON true
""",
    lone=_LONE,
    take=_TAKE_LONE,
    as_done=_AS_DONE,
    claimed=_CLAIMED,
    unlimited=_UNLIMITED,
)

# All of them. Those that are kept come before those that are not, for the same order.
#
# gone    those that are not kept; not looked for where the others were all.
# usual   whether the statement above would have done.
COMPLETE = compose(
    """
WITH kept AS (
    {kept}
    RETURNING r.n, j.queue
), gone AS (
    DELETE FROM {s}.job j
    USING unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS r(id, token, n)
    WHERE (SELECT count(*) FROM kept) < cardinality($2::text[])
        AND {claimed} AND j.retention_us <= 0
    RETURNING r.n, j.queue, j.namespace, j.id, j.attempts + j.losses > 0 AS tried
), forgotten AS (
    DELETE FROM {s}.job_attempt a USING (
        SELECT t.row FROM gone g CROSS JOIN LATERAL (
            SELECT ctid AS row FROM {s}.job_attempt
            WHERE namespace = g.namespace AND job = g.id OFFSET 0
        ) t WHERE g.tried
    ) t
    WHERE a.ctid = t.row
), ended AS MATERIALIZED (
    SELECT n, queue, true AS kept FROM kept UNION ALL SELECT n, queue, false FROM gone
), fresh AS MATERIALIZED (
    SELECT e.queue, e.jobs FROM (SELECT queue, count(*) AS jobs FROM ended GROUP BY queue) e
    CROSS JOIN LATERAL (
        SELECT FROM {s}.queue
        WHERE namespace = $1 AND name = e.queue AND concurrency IS NOT NULL OFFSET 0
    ) q
), {ring}
SELECT e.n, e.kept AND e.queue NOT IN (SELECT queue FROM fresh) AS usual,
    (SELECT hosts FROM told) AS told
FROM ended e
""",
    ring=ring_to("$5"),
    kept=_KEPT,
    claimed=_CLAIMED,
)

# The same for jobs with an ordering key, whose locks the caller holds.
COMPLETE_ORDERED = COMPLETE.replace("ordering_key IS NULL", "ordering_key IS NOT NULL")
