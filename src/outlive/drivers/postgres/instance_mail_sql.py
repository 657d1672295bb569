"""The statements of mailboxes: sending and reading letters, and commits that bring more along.

Owns their text and nothing else. A sender locks the receiver's row against its removal only, which
no commit of the receiver waits for, and never changes it. ``{s}`` stands for the quoted schema.
"""

from __future__ import annotations

from outlive.drivers.postgres import instance_sql
from outlive.drivers.postgres.job_sql import ENQUEUE_INTO, compose, ring_to
from outlive.model.instance import CANCEL_KIND, CANCELS_MAX, MAILBOX_MAX

# With those that are to be heard whatever else lies there.
_ALL_MAX = MAILBOX_MAX + CANCELS_MAX

# The letters of ``post`` (n, receiver, id, kind, name, payload), each once.
#
# box    the receivers that live, in the order of their ids, and how many letters they have. The
#        lock of those without an owner is for hosts that are about to wait; see ``job_sql``.
# fits   the first of each id, and of these those for which there is room.
# known  their ids; one that was there has been sent before.
_POST = compose(
    """box AS MATERIALIZED (
    SELECT b.*, l.letters, CASE WHEN b.session IS NULL THEN pg_advisory_xact_lock_shared(
        hashtextextended({flight} || 'instances/' || b.box_kind || '/' || b.box_name, 0))
        END AS flight
    FROM ({receivers}
    ) b
    CROSS JOIN LATERAL (
        SELECT count(*) AS letters FROM (
            SELECT FROM {s}.letter
            WHERE namespace = $1 AND box_kind = b.box_kind AND box_name = b.box_name
                AND instance = b.receiver
            LIMIT {counted}
        ) l
    ) l
), first AS (
    SELECT p.*, b.box_kind, b.box_name, b.letters FROM (
        SELECT DISTINCT ON (p.receiver, p.id) p.* FROM post p ORDER BY p.receiver, p.id, p.n
    ) p JOIN box b ON b.receiver = p.receiver
), fits AS MATERIALIZED ({fits}
), known AS (
    INSERT INTO {s}.letter_id (namespace, instance, id)
    SELECT $1, p.receiver, p.id FROM fits p ORDER BY p.receiver, p.id
    ON CONFLICT DO NOTHING
    RETURNING instance, id
), put AS (
    INSERT INTO {s}.letter (
        namespace, box_kind, box_name, instance, id, kind, name, payload, sent_at_us
    )
    SELECT $1, p.box_kind, p.box_name, p.receiver, p.id, p.kind, p.name, p.payload, c.now_us
    FROM fits p JOIN known k ON k.instance = p.receiver AND k.id = p.id CROSS JOIN instant c
    ORDER BY p.n
    RETURNING instance, id
), reached AS MATERIALIZED (
    SELECT b.* FROM box b WHERE b.receiver IN (SELECT t.instance FROM put t)
), direct AS MATERIALIZED (
    SELECT b.host, 'mail/' || b.receiver AS topic FROM reached b WHERE b.session IS NOT NULL
)""",
)

_RECEIVERS = """
        SELECT p.receiver, i.* FROM (
            SELECT DISTINCT p.receiver COLLATE "C" AS receiver FROM post p {which} ORDER BY 1
        ) p CROSS JOIN LATERAL (
            SELECT kind AS box_kind, name AS box_name, session, host, suspended FROM {s}.instance
            WHERE id = p.receiver AND namespace || '' = $1 AND ended_at_us IS NULL
            FOR KEY SHARE
        ) i"""

_REACHED_TOPIC = """
    SELECT 'instances/' || b.box_kind || '/' || b.box_name AS topic, count(*) AS items,
        false AS stays
    FROM reached b WHERE b.session IS NULL AND NOT b.suspended GROUP BY b.box_kind, b.box_name"""

# The letters that a mailbox takes, as if they came one after another. What was sent before takes no
# place (``place``), nor does a signal that is refused (``taken``): the wish to cancel behind it has
# its own.
_ROOM = compose(
    """
    SELECT * FROM (
        SELECT p.*, count(*) FILTER (
                WHERE p.kind = '{cancel}' OR p.letters + p.place <= {most}
            ) OVER (PARTITION BY p.receiver ORDER BY p.n) AS taken
        FROM (
            SELECT p.*, row_number() OVER (PARTITION BY p.receiver ORDER BY p.n) AS place
            FROM first p WHERE p.known IS NULL
        ) p
    ) p
    WHERE CASE p.kind WHEN '{cancel}' THEN p.letters + p.taken <= {all}
        ELSE p.letters + p.place <= {most} END""",
    cancel=CANCEL_KIND,
    most=str(MAILBOX_MAX),
    all=str(_ALL_MAX),
)

# No mailbox is too full for what must not be refused.
_ALL = "SELECT * FROM first"

# Of letters that were not put: whether the receiver is there, has ended, or got a letter of that id
# before, all as the snapshot saw it.
_SEND = compose(
    """
WITH {instant}, post AS MATERIALIZED (
    SELECT r.*, k.known FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
        WITH ORDINALITY AS r(receiver, id, kind, name, payload, n)
    LEFT JOIN LATERAL (
        SELECT true AS known FROM {s}.letter_id
        WHERE instance = r.receiver AND id = r.id AND namespace || '' = $1 OFFSET 0
    ) k ON true
), {post}, topic AS MATERIALIZED ({topic}
), {ring}
SELECT p.n, t.id IS NOT NULL AS put, p.known, i.ended, b.lives, f.fits,
    (SELECT hosts FROM rung) AS rung
FROM post p
LEFT JOIN LATERAL (SELECT id FROM put t WHERE t.instance = p.receiver AND t.id = p.id) t ON true
LEFT JOIN LATERAL (SELECT true AS lives FROM box b WHERE b.receiver = p.receiver) b ON true
LEFT JOIN LATERAL (SELECT true AS fits FROM fits f WHERE f.n = p.n) f ON true
LEFT JOIN LATERAL (
    SELECT ended_at_us IS NOT NULL AS ended FROM {s}.instance
    WHERE id = p.receiver AND namespace || '' = $1 OFFSET 0
) i ON true
""",
    instant=instance_sql.INSTANT,
    post=compose(_POST, receivers=compose(_RECEIVERS, which="")),
    topic=_REACHED_TOPIC,
    ring=compose(instance_sql.RING, channel="$7"),
)

SEND = compose(_SEND, fits=_ROOM, counted=str(_ALL_MAX))

# The same for letters that must not be refused.
DELIVER = compose(_SEND, fits=_ALL, counted="0")

# All rows that a batch will lock, its own and those of receivers, in the order of their ids: two
# batches that give up what the other one sends to would else block each other.
_LOCKS = """, locked AS MATERIALIZED (
    SELECT k.id, a.row AS parted, b.row AS own, c.row AS other FROM (
        SELECT r.id COLLATE "C" AS id, true AS mine, r.release FROM asked r
        UNION ALL
        SELECT DISTINCT v."to" COLLATE "C", false, false
        FROM json_to_recordset($16::json) AS e(v json)
        CROSS JOIN LATERAL json_to_record(e.v) AS v("to" text)
        WHERE v."to" NOT IN (SELECT r.id FROM asked r)
        ORDER BY 1
    ) k LEFT JOIN LATERAL (
        SELECT ctid AS row FROM {s}.instance
        WHERE id = k.id AND namespace || '' = $1 AND k.mine AND k.release
        FOR UPDATE
    ) a ON true LEFT JOIN LATERAL (
        SELECT ctid AS row FROM {s}.instance
        WHERE id = k.id AND namespace || '' = $1 AND k.mine AND NOT k.release
        FOR NO KEY UPDATE
    ) b ON true LEFT JOIN LATERAL (
        SELECT ctid AS row FROM {s}.instance
        WHERE id = k.id AND namespace || '' = $1 AND NOT k.mine
        FOR KEY SHARE
    ) c ON true
)"""

# A commit that does more than record events: it reads letters, sends, starts, enqueues, replies, or
# begins a new run. What it brings along stands in JSON, each with the number ``c`` of its commit
# in the batch, and takes effect only where that commit did. Rows that the statement itself changed
# or made are receivers too, and cannot be looked up or locked by it. A job whose queue drains is
# answered at once.
COMMIT_MORE = compose(
    """
WITH {instant}, {held}, consumed AS (
    DELETE FROM {s}.letter l USING (
        SELECT t.row FROM unnest($14::bigint[], $15::bigint[]) AS r(c, number)
        JOIN moved m ON m.n = r.c AND NOT m.final CROSS JOIN LATERAL (
            SELECT ctid AS row FROM {s}.letter
            WHERE namespace = $1 AND box_kind = m.kind AND box_name = m.name AND instance = m.id
                AND number = r.number OFFSET 0
        ) t
    ) t
    WHERE l.ctid = t.row
    RETURNING l.number
), past AS (
    DELETE FROM {s}.instance_history h USING (
        SELECT t.row FROM moved m CROSS JOIN LATERAL (
            SELECT ctid AS row FROM {s}.instance_history
            WHERE instance = m.id AND namespace || '' = $1 AND version < m.version OFFSET 0
        ) t WHERE m.restart IS NOT NULL
    ) t
    WHERE h.ctid = t.row
), new AS MATERIALIZED (
    SELECT e.n, e.c, v.*, NULL::text AS session, NULL::text AS host,
        json_array_length(v.history) AS version
    FROM json_to_recordset($17::json) AS e(c bigint, n bigint, v json)
    JOIN moved m ON m.n = e.c
    CROSS JOIN LATERAL json_to_record(e.v) AS v(
        id text, kind text, name text, input text, request text, delay_us bigint, due_at_us bigint,
        parent text, attributes text, headers text, retention_us bigint, worker text, history json,
        outlives boolean
    )
), {born}, begun AS (
    INSERT INTO {s}.instance_history (
        namespace, instance, version, commit, token, worker, at_us, events
    )
    SELECT $1, r.id, h.version, '', 0, nullif(r.worker, ''), b.created_at_us, h.events
    FROM new r JOIN born b ON b.id = r.id
    CROSS JOIN LATERAL json_array_elements_text(r.history) WITH ORDINALITY AS h(events, version)
    WHERE r.version > 0
), answer AS (
    INSERT INTO {s}.instance_reply (namespace, instance, message, payload)
    SELECT DISTINCT ON (m.id, v.message) $1, m.id, v.message, v.payload
    FROM json_to_recordset($19::json) AS e(c bigint, n bigint, v json)
    JOIN moved m ON m.n = e.c
    CROSS JOIN LATERAL json_to_record(e.v) AS v(message text, payload text)
    ORDER BY m.id, v.message, e.n DESC
    ON CONFLICT (instance, message, namespace) DO UPDATE SET payload = excluded.payload
    RETURNING instance
), req AS MATERIALIZED (
    SELECT e.n, v.* FROM json_to_recordset($18::json) AS e(c bigint, n bigint, v json)
    JOIN moved m ON m.n = e.c
    CROSS JOIN LATERAL json_to_record(e.v) AS v(
        id text, queue text, payload text, priority int, delay_us bigint, due_at_us bigint,
        unique_key text, ordering_key text, max_attempts int, max_losses int, retry text,
        expires_us bigint, retention_us bigint, headers text, instance text, step text
    )
), {into}, fresh AS MATERIALIZED (
    SELECT i.queue, count(*) AS jobs FROM ins i
    WHERE i.state = 'ready' AND NOT i.blocked GROUP BY i.queue
), {ring_queues}, post AS MATERIALIZED (
    SELECT e.n, v."to" AS receiver, v.id, v.kind, v.name, v.payload
    FROM json_to_recordset($16::json) AS e(c bigint, n bigint, v json)
    JOIN moved m ON m.n = e.c
    CROSS JOIN LATERAL json_to_record(e.v)
        AS v("to" text, id text, kind text, name text, payload text)
    UNION ALL
    SELECT r.n, r.instance, 'job/' || r.id, 'step', r.step, $21
    FROM req r JOIN name q ON q.queue = r.queue
    WHERE r.instance IS NOT NULL AND (q.closed OR r.id NOT IN (SELECT i.id FROM ins i) AND EXISTS (
        SELECT FROM {s}.job j
        WHERE j.id = r.id AND j.namespace || '' = $1 AND j.queue || '' <> r.queue))
), {post}, topic AS MATERIALIZED ({moved_topic}
    UNION ALL ({reached_topic})
    UNION ALL ({born_topic})
    UNION ALL SELECT 'instance/' || a.instance, 1000, true FROM answer a GROUP BY a.instance
), {ring}
SELECT m.n, m.suspended, m.now_us AS at_us, (SELECT hosts FROM rung) AS rung,
    (SELECT hosts FROM told) AS told,
    ARRAY(
        SELECT r.id FROM new r WHERE r.c = m.n AND r.id NOT IN (SELECT b.id FROM born b)
    ) AS met
FROM moved m
""",
    instant=instance_sql.INSTANT,
    held=compose(
        instance_sql.HELD,
        locks=_LOCKS,
        before=" WHERE (SELECT count(*) FROM locked) >= 0",
        more_values=", $13::text[]",
        more_names=", restart",
        more_set=""", input = coalesce(h.restart, i.input),
        base = CASE WHEN h.restart IS NULL THEN i.base ELSE h.version - 1 END,
        began_at_us = CASE WHEN h.restart IS NULL THEN i.began_at_us ELSE c.now_us END""",
        more_back=", h.restart, i.session, i.host",
    ),
    post=compose(
        _POST,
        receivers="""
        SELECT m.id AS receiver, m.kind AS box_kind, m.name AS box_name, m.session, m.host,
            m.suspended
        FROM moved m WHERE NOT m.final
        UNION ALL
        SELECT b.id, b.kind, b.name, NULL, NULL, false FROM born b
        UNION ALL SELECT * FROM ({others}
        ) o""",
        others=compose(
            _RECEIVERS,
            which="""
            WHERE p.receiver NOT IN (SELECT m.id FROM moved m)
                AND p.receiver NOT IN (SELECT b.id FROM born b)""",
        ),
        fits=_ALL,
        counted="0",
    ),
    born=instance_sql.BORN,
    into=ENQUEUE_INTO,
    ring_queues=ring_to("$20"),
    moved_topic=compose(
        instance_sql.MOVED_TOPIC, after=" AND (SELECT count(*) FROM consumed) >= 0"
    ),
    reached_topic=_REACHED_TOPIC,
    born_topic=instance_sql.BORN_TOPIC,
    ring=compose(instance_sql.RING, channel="$20"),
)

# The letters of a mailbox behind a number.
LETTERS = """
SELECT l.number, l.id, l.kind, l.name, l.payload, l.sent_at_us FROM (
    SELECT id, kind, name FROM {s}.instance WHERE id = $2 AND namespace || '' = $1 OFFSET 0
) i CROSS JOIN LATERAL (
    SELECT number, id, kind, name, payload, sent_at_us FROM {s}.letter
    WHERE namespace = $1 AND box_kind = i.kind AND box_name = i.name AND instance = i.id
        AND number > $3
    ORDER BY number LIMIT $4
) l
ORDER BY l.number
"""

REPLY = """
SELECT payload FROM {s}.instance_reply
WHERE instance = $2 AND message = $3 AND namespace || '' = $1
"""
