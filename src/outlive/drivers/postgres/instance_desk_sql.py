"""The statements of operators: end, suspend, resume, reopen and remove instances; and of retention.

Owns their text and nothing else. Each locks its row first and judges it under the lock, so it says
of every instance what it was and what became of it. ``{s}`` stands for the quoted schema.
"""

from __future__ import annotations

from outlive.drivers.postgres import instance_sql
from outlive.drivers.postgres.job_sql import compose

# One row, as it is under its lock, for a transaction that goes on with it.
LOCK = """
SELECT status, suspended, version, token, ended_at_us IS NOT NULL AS ended FROM {s}.instance
WHERE id = $2 AND namespace || '' = $1
FOR NO KEY UPDATE
"""

# The endings below act on ``was``: the row before, and ``now``: the row after, under LOCK.
_WAS = """was AS MATERIALIZED (
    SELECT ctid AS row, host FROM {s}.instance WHERE id = $2 AND namespace || '' = $1
)"""

_TOLD = """, direct AS MATERIALIZED (
    SELECT w.host, 'operate/' || n.id AS topic FROM was w CROSS JOIN changed n
    WHERE w.host IS NOT NULL
), topic AS MATERIALIZED (
    {topic}
), {ring}
SELECT n.id, (SELECT hosts FROM rung) AS rung FROM changed n
"""

_CLAIMABLE = """SELECT 'instances/' || n.kind || '/' || n.name AS topic, 1 AS items, false AS stays
    FROM changed n WHERE n.session IS NULL AND NOT n.suspended AND n.ended_at_us IS NULL"""

_RING = compose(instance_sql.RING, channel="$3")

# Those that the runs of $2 have started and that are not to outlive them, locked in the order of
# their ids. A run that began anew has left those of the run before alone. The runs themselves are
# locked before: whoever was about to start one more has done so, or is refused.
LOCK_BELOW = """
SELECT i.id FROM (
    SELECT c.id FROM unnest($2::text[]) AS r(id) CROSS JOIN LATERAL (
        SELECT id, base, began_at_us FROM {s}.instance WHERE id = r.id AND namespace || '' = $1
        OFFSET 0
    ) p CROSS JOIN LATERAL (
        SELECT id FROM {s}.instance
        WHERE parent = p.id AND namespace = $1 AND parent IS NOT NULL AND ended_at_us IS NULL
            AND NOT outlives AND (p.base = 0 OR created_at_us > p.began_at_us)
        OFFSET 0
    ) c
    ORDER BY c.id
) c CROSS JOIN LATERAL (
    SELECT id FROM {s}.instance
    WHERE id = c.id AND namespace || '' = $1 AND ended_at_us IS NULL
    FOR NO KEY UPDATE
) i
"""

# All of $2, under their locks.
TERMINATE = compose(
    """
WITH {instant}, was AS MATERIALIZED (
    SELECT i.* FROM unnest($2::text[]) AS r(id) CROSS JOIN LATERAL (
        SELECT ctid AS row, id, host FROM {s}.instance WHERE id = r.id AND namespace || '' = $1
        OFFSET 0
    ) i
), changed AS (
    UPDATE {s}.instance i SET token = i.token + 1, status = 'terminated', outcome = $4,
        session = NULL, host = NULL, worker = NULL, request = NULL, due_at_us = NULL,
        suspended = false, updated_at_us = c.now_us, ended_at_us = c.now_us,
        kept_until_us = c.now_us + i.retention_us
    FROM was w CROSS JOIN instant c WHERE i.ctid = w.row
    RETURNING i.id, i.kind, i.name
), emptied AS (
    DELETE FROM {s}.letter l USING (
        SELECT t.row FROM changed n CROSS JOIN LATERAL (
            SELECT ctid AS row FROM {s}.letter
            WHERE namespace = $1 AND box_kind = n.kind AND box_name = n.name AND instance = n.id
            OFFSET 0
        ) t
    ) t
    WHERE l.ctid = t.row
), direct AS MATERIALIZED (
    SELECT w.host, 'operate/' || w.id AS topic FROM was w WHERE w.host IS NOT NULL
), topic AS MATERIALIZED (
    SELECT 'instance/' || n.id AS topic, 1000 AS items, false AS stays FROM changed n
), {ring}
SELECT n.id, (SELECT hosts FROM rung) AS rung FROM changed n
""",
    instant=instance_sql.INSTANT,
    ring=_RING,
)

SUSPEND = compose(
    """
WITH {instant}, {was}, changed AS (
    UPDATE {s}.instance i SET suspended = true, updated_at_us = c.now_us
    FROM was w CROSS JOIN instant c WHERE i.ctid = w.row
    RETURNING i.id, i.kind, i.name, i.session, i.suspended, i.ended_at_us
){told}""",
    instant=instance_sql.INSTANT,
    was=_WAS,
    told=compose(_TOLD, topic=_CLAIMABLE, ring=_RING),
)

# Without an owner it is due now, because what the last one left undone nobody else knows. One that
# never ran has left nothing, and keeps the time that it was started for.
RESUME = compose(
    """
WITH {instant}, {was}, changed AS (
    UPDATE {s}.instance i SET suspended = false, updated_at_us = c.now_us,
        due_at_us = CASE WHEN i.session IS NULL AND i.token > 0 THEN c.now_us ELSE i.due_at_us END
    FROM was w CROSS JOIN instant c WHERE i.ctid = w.row
    RETURNING i.id, i.kind, i.name, i.session, i.suspended, i.ended_at_us
){told}""",
    instant=instance_sql.INSTANT,
    was=_WAS,
    told=compose(_TOLD, topic=_CLAIMABLE, ring=_RING),
)

# One that was to begin later begins now, and so does its time; where something is recorded, that
# was computed from the time there is.
REOPEN = compose(
    """
WITH {instant}, {was}, changed AS (
    UPDATE {s}.instance i SET status = 'running', outcome = NULL, suspended = false,
        version = $4::bigint, due_at_us = c.now_us, updated_at_us = c.now_us, ended_at_us = NULL,
        kept_until_us = NULL, began_at_us = CASE WHEN i.version = i.base
            THEN least(i.began_at_us, c.now_us) ELSE i.began_at_us END
    FROM was w CROSS JOIN instant c WHERE i.ctid = w.row
    RETURNING i.id, i.kind, i.name, i.session, i.suspended, i.ended_at_us, i.token, c.now_us
), kept AS (
    INSERT INTO {s}.instance_history (namespace, instance, version, commit, token, at_us, events)
    SELECT $1, n.id, $4::bigint, $6, n.token, n.now_us, $5 FROM changed n
){told}""",
    instant=instance_sql.INSTANT,
    was=_WAS,
    told=compose(_TOLD, topic=_CLAIMABLE, ring=_RING),
)

# Whether this very row of history is there.
WRITTEN = """
SELECT events = $4 AND commit = $5 AS same FROM {s}.instance_history
WHERE instance = $2 AND namespace || '' = $1 AND version = $3
"""

# All that hangs on the instances of ``gone`` (id, kind, name).
_FORGET = """, histories AS (
    DELETE FROM {s}.instance_history h USING (
        SELECT t.row FROM gone g CROSS JOIN LATERAL (
            SELECT ctid AS row FROM {s}.instance_history
            WHERE instance = g.id AND namespace || '' = $1 OFFSET 0
        ) t
    ) t
    WHERE h.ctid = t.row
), letters AS (
    DELETE FROM {s}.letter l USING (
        SELECT t.row FROM gone g CROSS JOIN LATERAL (
            SELECT ctid AS row FROM {s}.letter
            WHERE namespace = $1 AND box_kind = g.kind AND box_name = g.name AND instance = g.id
            OFFSET 0
        ) t
    ) t
    WHERE l.ctid = t.row
), ids AS (
    DELETE FROM {s}.letter_id l USING (
        SELECT t.row FROM gone g CROSS JOIN LATERAL (
            SELECT ctid AS row FROM {s}.letter_id
            WHERE instance = g.id AND namespace || '' = $1 OFFSET 0
        ) t
    ) t
    WHERE l.ctid = t.row
), replies AS (
    DELETE FROM {s}.instance_reply r USING (
        SELECT t.row FROM gone g CROSS JOIN LATERAL (
            SELECT ctid AS row FROM {s}.instance_reply
            WHERE instance = g.id AND namespace || '' = $1 OFFSET 0
        ) t
    ) t
    WHERE r.ctid = t.row
)"""

# Those of the ids that are there, in their order, so that what a statement after this one sees of
# their mailboxes is all that there will be: who sends holds the row as well.
LOCK_ALL = """
SELECT r.id FROM (SELECT id FROM unnest($2::text[]) AS r(id) ORDER BY id COLLATE "C") r
CROSS JOIN LATERAL (
    SELECT FROM {s}.instance WHERE id = r.id AND namespace || '' = $1
    FOR UPDATE
) i
"""

# Under their locks. What is removed leaves the greatest of its tokens.
PURGE = compose(
    """
WITH held AS MATERIALIZED (
    SELECT r.n, i.row, i.ended FROM (
        SELECT r.* FROM unnest($2::text[]) WITH ORDINALITY AS r(id, n) ORDER BY r.id COLLATE "C"
    ) r CROSS JOIN LATERAL (
        SELECT ctid AS row, ended_at_us IS NOT NULL AS ended FROM {s}.instance
        WHERE id = r.id AND namespace || '' = $1
        FOR UPDATE
    ) i
), gone AS (
    DELETE FROM {s}.instance i USING held h WHERE i.ctid = h.row AND h.ended
    RETURNING h.n, i.id, i.kind, i.name, i.token
), floor AS (
    INSERT INTO {s}.instance_floor AS f (namespace, token)
    SELECT $1, max(g.token) FROM gone g HAVING count(*) > 0
    ON CONFLICT (namespace) DO UPDATE SET token = excluded.token WHERE excluded.token > f.token
){forget}
SELECT h.n, h.ended, g.n IS NOT NULL AS gone FROM held h LEFT JOIN gone g ON g.n = h.n
""",
    forget=_FORGET,
)

# What was kept long enough, locked for ``PURGE``, as many as those before them leave room for: $3
# rows of histories. Notes of hosts that never came back go with it.
LOCK_LATE = compose(
    """
WITH {instant}, silent AS (
    DELETE FROM {s}.watch
    WHERE namespace = $1 AND until_us < (SELECT now_us FROM instant) - 60000000
), late AS MATERIALIZED (
    SELECT id, kept_until_us, version - base AS rows FROM {s}.instance
    WHERE namespace = $1 AND kept_until_us <= (SELECT now_us FROM instant)
        AND kept_until_us IS NOT NULL
    ORDER BY kept_until_us LIMIT $2
    FOR UPDATE SKIP LOCKED
)
SELECT id FROM (
    SELECT id, rows, sum(rows) OVER (ORDER BY kept_until_us, id) AS together FROM late
) l WHERE together - rows < $3::bigint
""",
    instant=instance_sql.INSTANT,
)

# Whoever a letter in these mailboxes would ring.
RING = compose(
    """
WITH {instant}, box AS MATERIALIZED (
    SELECT i.* FROM unnest($2::text[]) AS r(id) CROSS JOIN LATERAL (
        SELECT id, kind, name, session, host, suspended FROM {s}.instance
        WHERE id = r.id AND namespace || '' = $1 AND ended_at_us IS NULL OFFSET 0
    ) i
), direct AS MATERIALIZED (
    SELECT b.host, 'mail/' || b.id AS topic FROM box b WHERE b.session IS NOT NULL
), topic AS MATERIALIZED (
    SELECT 'instances/' || b.kind || '/' || b.name AS topic, count(*) AS items, false AS stays
    FROM box b WHERE b.session IS NULL AND NOT b.suspended GROUP BY b.kind, b.name
), {ring}
SELECT hosts AS rung FROM rung
""",
    instant=instance_sql.INSTANT,
    ring=_RING,
)
