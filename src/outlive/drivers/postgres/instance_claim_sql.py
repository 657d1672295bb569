"""The statements by which instances change owners: claimed, given up, and taken from the dead.

Owns their text and nothing else. ``{s}`` stands for the quoted schema.
"""

from __future__ import annotations

from outlive.drivers.postgres import instance_sql
from outlive.drivers.postgres.job_sql import compose
from outlive.model.instance import LETTERS_MAX

# What a claimant is given of an instance ``i``: its first letters stand in JSON.
_CLAIMED = """i.id, i.kind, i.name, i.token, i.version, i.base, i.input, i.began_at_us, i.parent,
        i.headers, i.attributes, i.custom"""
_LETTERS = compose(
    """(
        SELECT json_agg(json_build_object('number', l.number, 'id', l.id, 'kind', l.kind,
            'name', l.name, 'payload', l.payload, 'sent_at_us', l.sent_at_us) ORDER BY l.number)
        FROM (
            SELECT number, id, kind, name, payload, sent_at_us FROM {s}.letter
            WHERE namespace = $1 AND box_kind = i.kind AND box_name = i.name AND instance = i.id
            ORDER BY number LIMIT {most}
        ) l
    )::text AS letters""",
    most=str(LETTERS_MAX),
)

# One claim, one statement.
#
# host    the session, locked against a peer that would end it, and judged under that lock: a claim
#         never commits for a session that was reaped meanwhile.
# full_   the mailboxes that are not empty: one step in the index each.
# mail    whose they are. Those of the session itself are named in the answer.
# cand    what can be claimed, the longest due first: by index for each definition, and from the
#         mailboxes. More than are wanted, because others are taking some. One that nobody has had
#         waits for its time with its letters, unless one of these is to cancel it: only the
#         letters of such an instance are looked through. OFFSET 0, so that it is not done for all
#         mailboxes at once.
# picked  those that nobody else is taking. Judged again under the lock: each claim changes the
#         token, so the row is as the snapshot saw it.
# taken   what is claimed before its time begins now, and so does its time; where something is
#         recorded, that was computed from the time there is.
_CLAIM = """
WITH RECURSIVE {instant}, {before}host AS MATERIALIZED (
    SELECT ended_at, expires_at FROM {s}.host WHERE namespace = $1 AND id = $2
    FOR KEY SHARE
), gate AS MATERIALIZED (
    SELECT EXISTS (
        SELECT FROM host WHERE ended_at IS NULL AND expires_at > clock_timestamp()
    ) AS alive
), full_ AS (
    (
        SELECT box_kind, box_name, instance FROM {s}.letter WHERE namespace = $1
        ORDER BY box_kind, box_name, instance LIMIT 1
    )
    UNION ALL
    SELECT n.* FROM full_ f CROSS JOIN LATERAL (
        SELECT box_kind, box_name, instance FROM {s}.letter
        WHERE namespace = $1
            AND (box_kind, box_name, instance) > (f.box_kind, f.box_name, f.instance)
        ORDER BY box_kind, box_name, instance LIMIT 1
    ) n
), mail AS MATERIALIZED (
    SELECT f.instance AS id, f.box_kind, f.box_name, i.* FROM full_ f
    CROSS JOIN LATERAL (
        SELECT number, token, session, suspended, due_at_us FROM {s}.instance
        WHERE id = f.instance AND namespace || '' = $1 AND ended_at_us IS NULL
            AND (session IS NULL OR session = $2) OFFSET 0
    ) i
), cand AS MATERIALIZED (
    SELECT c.id, c.number, c.token, min(c.since_us) AS since_us FROM (
        SELECT d.id, d.number, d.token, d.due_at_us AS since_us
        FROM (SELECT DISTINCT name FROM unnest($6::text[]) AS w(name)) w CROSS JOIN LATERAL (
            SELECT id, number, token, due_at_us FROM {s}.instance
            WHERE namespace = $1 AND kind = $5 AND name = w.name AND session IS NULL
                AND ended_at_us IS NULL AND NOT suspended AND due_at_us IS NOT NULL
                AND due_at_us <= (SELECT now_us FROM instant)
            ORDER BY due_at_us LIMIT $8
        ) d
        UNION ALL
        SELECT m.id, m.number, m.token, l.sent_at_us FROM mail m CROSS JOIN LATERAL (
            SELECT sent_at_us FROM {s}.letter
            WHERE namespace = $1 AND box_kind = $5 AND box_name = m.box_name AND instance = m.id
            ORDER BY number LIMIT 1
        ) l
        WHERE m.session IS NULL AND NOT m.suspended AND m.box_kind = $5
            AND m.box_name = ANY($6::text[])
            AND (m.token > 0 OR m.due_at_us IS NULL
                OR m.due_at_us <= (SELECT now_us FROM instant)
                OR EXISTS (
                    SELECT FROM {s}.letter
                    WHERE namespace = $1 AND box_kind = $5 AND box_name = m.box_name
                        AND instance = m.id AND kind = 'cancel' OFFSET 0
                ))
    ) c
    GROUP BY c.id, c.number, c.token ORDER BY min(c.since_us), c.number LIMIT $8
), picked AS MATERIALIZED (
    SELECT i.row, c.since_us, c.number, c.token = 0 AS first
    FROM (SELECT * FROM cand ORDER BY since_us, number) c
    CROSS JOIN LATERAL (
        SELECT ctid AS row FROM {s}.instance
        WHERE id = c.id AND namespace || '' = $1 AND token = c.token AND session IS NULL
            AND ended_at_us IS NULL AND NOT suspended
        FOR NO KEY UPDATE SKIP LOCKED
    ) i
    WHERE (SELECT alive FROM gate)
    LIMIT $7
), taken AS (
    UPDATE {s}.instance i SET token = 1 + greatest(i.token, {floor}), session = $2, worker = $3,
        request = $4,
        host = $9, status = 'running', updated_at_us = (SELECT now_us FROM instant),
        began_at_us = CASE WHEN i.version = i.base
            THEN least(i.began_at_us, (SELECT now_us FROM instant)) ELSE i.began_at_us END
    FROM picked p WHERE i.ctid = p.row
    RETURNING p.since_us, i.number, p.first, {claimed}
), state AS MATERIALIZED (
    SELECT g.alive, (SELECT now_us FROM instant) AS at_us, (SELECT count(*) FROM cand) AS seen,
        (SELECT min(d.due_at_us)
            FROM (SELECT DISTINCT name FROM unnest($6::text[]) AS w(name)) w CROSS JOIN LATERAL (
                SELECT due_at_us FROM {s}.instance
                WHERE namespace = $1 AND kind = $5 AND name = w.name AND session IS NULL
                    AND ended_at_us IS NULL AND NOT suspended AND due_at_us IS NOT NULL
                    AND due_at_us > (SELECT now_us FROM instant)
                ORDER BY due_at_us LIMIT 1
            ) d
        ) AS next_due_us,
        ARRAY(SELECT m.id FROM mail m WHERE m.session = $2) AS boxes, {standing} AS standing
    FROM gate g
){note}
SELECT s.alive, s.at_us, s.seen, s.next_due_us, s.boxes, s.standing, i.since_us, i.number,
    i.first, {claimed}, {letters}
FROM state s LEFT JOIN taken i ON true
"""

_PARTS = {
    "instant": instance_sql.INSTANT,
    "floor": instance_sql.FLOOR,
    "claimed": _CLAIMED,
    "letters": _LETTERS,
}

CLAIM = compose(_CLAIM, before="", note="", standing="false", **_PARTS)

# The same for a host that wants to be told of more: its notes enter with what was too little.
# Where those from before last for this wait too (``standing``) they are left as they are: who
# comes with something new passes over a note that is being written.
CLAIM_WAITING = compose(
    _CLAIM,
    note=""", note AS (
    INSERT INTO {s}.watch AS w (namespace, topic, host, since_us, until_us)
    SELECT $1, t.topic, $9, c.now_us, c.now_us + $10::bigint
    FROM (
        SELECT DISTINCT 'instances/' || $5::text || '/' || w.name AS topic
        FROM unnest($6::text[]) AS w(name)
    ) t CROSS JOIN instant c
    WHERE (SELECT alive AND NOT standing FROM state) AND (SELECT count(*) FROM picked) < $7
    ORDER BY t.topic
    ON CONFLICT (namespace, topic, host) DO UPDATE
    SET until_us = greatest(w.until_us, excluded.until_us)
)""",
    before="""before AS MATERIALIZED (
    SELECT count(*) = count(w.until_us) AND coalesce(bool_and(w.until_us >= w.enough_us), true)
            AS standing
    FROM unnest($6::text[]) AS v(name) LEFT JOIN LATERAL (
        SELECT n.until_us, c.now_us + $10::bigint AS enough_us
        FROM {s}.watch n CROSS JOIN instant c
        WHERE n.namespace = $1 AND n.topic = 'instances/' || $5::text || '/' || v.name
            AND n.host = $9
        OFFSET 0
    ) w ON true
), """,
    standing="(SELECT standing FROM before)",
    **_PARTS,
)

# What is still owned under one request of a session, and was not committed since.
AGAIN = compose(
    """
SELECT i.*, {letters} FROM (
    SELECT {claimed} FROM {s}.instance i
    WHERE i.session = $2 AND i.namespace || '' = $1 AND i.request = $3
    OFFSET 0
) i
""",
    claimed=_CLAIMED,
    letters=_LETTERS,
)

# Rings of ``freed`` (kind, name, id, suspended, due_at_us): what nobody owns any more and can be
# claimed at once.
_FREED_TOPIC = """
    SELECT 'instances/' || f.kind || '/' || f.name AS topic, count(*) AS items, false AS stays
    FROM freed f
    WHERE NOT f.suspended AND (
        f.due_at_us <= (SELECT now_us FROM instant)
        OR {s}.has_letters($1, f.kind, f.name, f.id)
    )
    GROUP BY f.kind, f.name"""

RELEASE = compose(
    """
WITH {instant}, held AS MATERIALIZED (
    SELECT r.n, r.due, i.row, x.parted FROM (
        SELECT r.* FROM unnest($2::text[], $3::bigint[], $4::boolean[])
            WITH ORDINALITY AS r(id, token, due, n) ORDER BY r.id COLLATE "C"
    ) r CROSS JOIN LATERAL (
        SELECT ctid AS row FROM {s}.instance
        WHERE id = r.id AND namespace || '' = $1 AND token = r.token AND {owned}
        FOR NO KEY UPDATE
    ) i {parted}
), freed AS (
    UPDATE {s}.instance i SET session = NULL, host = NULL, worker = NULL, request = NULL,
        updated_at_us = c.now_us, due_at_us = CASE WHEN h.due THEN c.now_us ELSE i.due_at_us END
    FROM held h CROSS JOIN instant c WHERE i.ctid = h.row
    RETURNING h.n, i.id, i.kind, i.name, i.suspended, i.due_at_us
), topic AS MATERIALIZED ({topic}
), {nobody}, {ring}
SELECT f.n, (SELECT hosts FROM rung) AS rung FROM freed f
""",
    instant=instance_sql.INSTANT,
    owned=instance_sql.OWNED_NOW,
    parted=compose(instance_sql.PARTED, when="true"),
    topic=_FREED_TOPIC,
    nobody=instance_sql.NOBODY,
    ring=compose(instance_sql.RING, channel="$5"),
)

# Which handbacks that changed nothing could be tried again.
LOOK_OWNED = compose(
    """
SELECT r.n FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS r(id, token, n)
CROSS JOIN LATERAL (
    SELECT FROM {s}.instance
    WHERE id = r.id AND namespace || '' = $1 AND token = r.token AND {owned} OFFSET 0
) i
""",
    owned=instance_sql.OWNED_NOW,
)

# Those of sessions that have ended or are unknown, found by walking over the sessions that own any,
# also in other namespaces, where they are unknown here and have nothing to be taken.
# A session that ended never lives again, so there is nothing to lock.
RECLAIM = compose(
    """
WITH RECURSIVE {instant}, owner AS (
    (
        SELECT session FROM {s}.instance
        WHERE session > '' ORDER BY session LIMIT 1
    )
    UNION ALL
    SELECT n.session FROM owner o CROSS JOIN LATERAL (
        SELECT session FROM {s}.instance
        WHERE session > o.session
        ORDER BY session LIMIT 1
    ) n
), gone AS MATERIALIZED (
    SELECT o.session FROM owner o LEFT JOIN LATERAL (
        SELECT true AS known, ended_at FROM {s}.host
        WHERE namespace = $1 AND id = o.session OFFSET 0
    ) h ON true
    WHERE h.known IS NULL OR h.ended_at IS NOT NULL
), held AS MATERIALIZED (
    SELECT i.row FROM gone g CROSS JOIN LATERAL (
        SELECT ctid AS row FROM {s}.instance
        WHERE session = g.session AND namespace || '' = $1
        FOR NO KEY UPDATE SKIP LOCKED
    ) i
    LIMIT $2
), freed AS (
    UPDATE {s}.instance i SET token = i.token + 1, session = NULL, host = NULL, worker = NULL,
        request = NULL, due_at_us = c.now_us, updated_at_us = c.now_us
    FROM held h CROSS JOIN instant c WHERE i.ctid = h.row
    RETURNING i.id, i.kind, i.name, i.suspended, i.due_at_us
), topic AS MATERIALIZED ({topic}
), {nobody}, {ring}
SELECT f.id, f.kind, f.name, (SELECT hosts FROM rung) AS rung FROM freed f
""",
    instant=instance_sql.INSTANT,
    topic=_FREED_TOPIC,
    nobody=instance_sql.NOBODY,
    ring=compose(instance_sql.RING, channel="$3"),
)
