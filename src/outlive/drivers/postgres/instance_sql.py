"""The statements that every instance passes through: start and commit, and the parts they share.

Owns their text and nothing else. Every statement carries the namespace as its first parameter.
Instants are microseconds of the server's wall clock, read once in each statement (``instant``).
``{s}`` stands for the quoted schema.

As with jobs, nothing is left for the planner to choose: rows are looked up in LATERAL parts, and
those to be changed are named by their addresses. A row that got a newer version between the
snapshot and the lock is not found by its address, has no row in the answer, and is met again by who
asked.
"""

from __future__ import annotations

from outlive.drivers.postgres.job_sql import compose
from outlive.model.flow_options import POLL_MAX_S

# Somebody owns it, in words that no partial index answers to: it is looked up by its id.
OWNED_NOW = "coalesce(session, '') <> ''"

INSTANT = """instant AS MATERIALIZED (
    SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now_us
)"""

# Hosts that are told of one instance at most; more of them poll.
_WATCHERS_MAX = 1000

# Tells the hosts that wait for the topics of ``topic`` (topic, items, stays): the oldest notes, as
# many as there are items, and the one that ends last, because the oldest may be of hosts that died;
# and takes them away unless they stay. Tells also the hosts of ``direct`` (host, topic), which own
# what it is about. Without either nothing is sent: a commit that notifies takes a lock of the whole
# database.
_RING = """
called AS MATERIALIZED (
    SELECT t.topic, t.stays, w.host, w.row FROM topic t CROSS JOIN LATERAL (
        SELECT host, ctid AS row FROM {s}.watch
        WHERE namespace = $1 AND topic = t.topic AND until_us > (SELECT now_us FROM instant)
        ORDER BY until_us < (
            SELECT max(until_us) FROM {s}.watch WHERE namespace = $1 AND topic = t.topic
        ), since_us LIMIT t.items + 1
        {taking}
    ) w
), silenced AS (
    DELETE FROM {s}.watch w USING called c WHERE w.ctid = c.row AND NOT c.stays
), rung AS MATERIALIZED (
    SELECT count(pg_notify({channel}, json_build_object(
        'ns', $1::text, 'host', c.host, 'topic', c.topic, 'waiter', 0, 'position', 0)::text))
        AS hosts
    FROM (SELECT host, topic FROM called UNION ALL SELECT host, topic FROM direct) c
)"""

RING = compose(_RING, taking="FOR UPDATE SKIP LOCKED")

NOBODY = "direct AS MATERIALIZED (SELECT NULL::text AS host, NULL::text AS topic WHERE false)"

# The greatest token of what was removed from the namespace. Whoever finds a new instance of an id
# in a snapshot finds with it what the removal of the former one left here.
FLOOR = "coalesce((SELECT token FROM {s}.instance_floor WHERE namespace = $1), 0)"

# For ever, in microseconds: so much later than any instant of today is still a number, whereas an
# instance whose end could not be written would never end.
_FOREVER_US = 2**62

# The instances of ``new``, in their order; an id that is there already changes nothing. The time of
# each begins when it is due: a nap of one that is started for tomorrow is as long as that of any
# other.
BORN = compose(
    """born AS (
    INSERT INTO {s}.instance (
        namespace, id, kind, name, status, token, first_token, version, session, host, worker,
        origin, parent, due_at_us, created_at_us, began_at_us, updated_at_us, retention_us, input,
        attributes, headers, outlives
    )
    SELECT $1, r.id, r.kind, r.name, CASE WHEN r.session IS NULL THEN 'pending' ELSE 'running' END,
        CASE WHEN r.session IS NULL THEN 0 ELSE 1 + {floor} END,
        CASE WHEN r.session IS NULL THEN 0 ELSE 1 + {floor} END, r.version, r.session, r.host,
        CASE WHEN r.session IS NOT NULL THEN r.worker END, r.request, r.parent,
        coalesce(r.due_at_us, c.now_us + r.delay_us), c.now_us,
        greatest(coalesce(r.due_at_us, c.now_us + r.delay_us), c.now_us), c.now_us,
        least(r.retention_us, {forever}),
        r.input, r.attributes, r.headers, r.outlives
    FROM new r CROSS JOIN instant c
    ORDER BY r.n
    ON CONFLICT DO NOTHING
    RETURNING id, kind, name, session, due_at_us, created_at_us
)""",
    floor=FLOOR,
    forever=str(_FOREVER_US),
)

# What of ``born`` can be claimed at once.
BORN_TOPIC = """
    SELECT 'instances/' || b.kind || '/' || b.name AS topic, count(*) AS items, false AS stays
    FROM born b WHERE b.session IS NULL AND b.due_at_us <= (SELECT now_us FROM instant)
    GROUP BY b.kind, b.name"""

# Parts of the starts below; what they are for stands there.
_REQ = """
    SELECT r.* FROM unnest(
        $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
        $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::text[], $14::bigint[],
        $15::bigint[], $16::boolean[]
    ) WITH ORDINALITY AS r(
        id, kind, name, input, request, session, worker, delay_us, due_at_us, parent, attributes,
        headers, retention_us, version, outlives, n
    )"""
_LIVE = """
    SELECT h.id FROM (SELECT DISTINCT session FROM req WHERE session IS NOT NULL) r
    CROSS JOIN LATERAL (
        SELECT id, ended_at, expires_at FROM {s}.host WHERE namespace = $1 AND id = r.session
        FOR KEY SHARE
    ) h
    WHERE h.ended_at IS NULL AND h.expires_at > clock_timestamp()"""
_ABSENT = """(
            SELECT true FROM {s}.instance WHERE id = r.id AND namespace || '' = $1 OFFSET 0
        ) IS NULL"""
_DEAD = """EXISTS (
            SELECT FROM req r
            WHERE r.session IS NOT NULL AND r.session <> ALL(ARRAY(SELECT id FROM live))
        )"""

# Instances of one or several calls.
#
# flight  a shared lock for each definition until commit, for hosts that are about to wait; see
#         ``job_sql``. Not where a session owns what it starts, because nobody waits for that.
# live    the sessions that are to own some, locked against a peer that would end them, and judged
#         under that lock.
# new     what may be started. With $18 a dead session keeps all from being started. Of those that a
#         session is to own, none whose id the snapshot shows: it may be on its way out, and its
#         tokens are not below the floor of this snapshot.
_START_TEXT = """
WITH {instant}, req AS MATERIALIZED ({req}
), flight AS MATERIALIZED (
    SELECT count(pg_advisory_xact_lock_shared(hashtextextended({flight} || t.topic, 0))) AS held
    FROM (
        SELECT DISTINCT 'instances/' || r.kind || '/' || r.name AS topic FROM req r
        WHERE r.session IS NULL
    ) t
), live AS MATERIALIZED ({live}
), new AS MATERIALIZED (
    SELECT r.*, CASE WHEN r.session IS NOT NULL THEN $17::text END AS host FROM req r
    WHERE (r.session IS NULL OR r.session = ANY(ARRAY(SELECT id FROM live)))
        AND (SELECT held FROM flight) >= 0
        AND (r.session IS NULL OR {absent})
        AND NOT ($18::boolean AND {dead})
), {born}{begun}, topic AS MATERIALIZED ({born_topic}
), {nobody}, {ring}
SELECT (SELECT now_us FROM instant) AS at_us, (SELECT count(*) FROM born) AS made,
    1 + {floor} AS first_token, (SELECT hosts FROM rung) AS rung
"""

_BEGUN = """, begun AS (
    INSERT INTO {s}.instance_history (
        namespace, instance, version, commit, token, worker, at_us, events
    )
    SELECT $1, h.id, h.version, '', 0, h.worker, b.created_at_us, h.events
    FROM unnest($20::text[], $21::bigint[], $22::text[], $23::text[])
        AS h(id, version, events, worker)
    JOIN born b ON b.id = h.id
)"""

_START = compose(
    _START_TEXT,
    instant=INSTANT,
    req=_REQ,
    live=_LIVE,
    absent=_ABSENT,
    dead=_DEAD,
    born=BORN,
    nobody=NOBODY,
    floor=FLOOR,
)
_START_OURS = compose(_START, born_topic=BORN_TOPIC, ring=compose(RING, channel="$19"))

# Inside a transaction of the caller's, who may take his time: notes stay where they are, because a
# host that waits again would wait for whoever takes its note away. What comes due before hosts look
# by themselves is rung for as well, because nobody else can after the commit: they learn when.
_START_THEIRS = compose(
    _START,
    born_topic=BORN_TOPIC.replace("false AS stays", "true AS stays").replace(
        "FROM instant)", "FROM instant) + {soon_us}"
    ),
    ring=compose(_RING, taking="", channel="$19"),
    soon_us=str(round(POLL_MAX_S * 1e6)),
)

START = compose(_START_OURS, begun="")

# The usual start at less cost: one session owns all of them, of one kind and with one retention, so
# that nobody waits for any; they begin now, without a parent or a past.
START_OWNED = compose(
    """
WITH {instant}, live AS MATERIALIZED (
    SELECT true AS lives FROM (
        SELECT ended_at, expires_at FROM {s}.host WHERE namespace = $1 AND id = $8
        FOR KEY SHARE
    ) h
    WHERE h.ended_at IS NULL AND h.expires_at > clock_timestamp()
), first AS MATERIALIZED (
    SELECT 1 + {floor} AS token
), born AS (
    INSERT INTO {s}.instance (
        namespace, id, kind, name, status, token, first_token, version, session, host, worker,
        origin, due_at_us, created_at_us, began_at_us, updated_at_us, retention_us, input,
        attributes, headers
    )
    SELECT $1, r.id, $10::text, r.name, 'running', f.token, f.token, 0, $8, $12::text, $9::text,
        r.request, c.now_us, c.now_us, c.now_us, c.now_us, least($11::bigint, {forever}), r.input,
        r.attributes, r.headers
    FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
        WITH ORDINALITY AS r(id, name, input, request, attributes, headers, n)
    CROSS JOIN instant c CROSS JOIN first f
    WHERE (SELECT lives FROM live) AND {absent}
    ORDER BY r.n
    ON CONFLICT DO NOTHING
    RETURNING true
)
SELECT (SELECT now_us FROM instant) AS at_us, (SELECT count(*) FROM born) AS made,
    (SELECT token FROM first) AS first_token
""",
    instant=INSTANT,
    floor=FLOOR,
    forever=str(_FOREVER_US),
    absent=_ABSENT,
)
START_IN = compose(_START_THEIRS, begun="")

# The same with rows to begin with, of instances that are new.
START_BEGUN = compose(_START_OURS, begun=_BEGUN)
START_BEGUN_IN = compose(_START_THEIRS, begun=_BEGUN)

# Who has these ids now.
LOOK_STARTED = """
SELECT r.n, i.origin, i.name, i.parent, i.created_at_us, i.first_token
FROM unnest($2::text[]) WITH ORDINALITY AS r(id, n) CROSS JOIN LATERAL (
    SELECT origin, name, parent, created_at_us, first_token FROM {s}.instance
    WHERE id = r.id AND namespace || '' = $1 OFFSET 0
) i
"""

# Who gives up the instance ``r.id`` waits for those who are sending to it, who hold its row FOR KEY
# SHARE, and they for him. Else he could not see their letter, nor they that nobody owns it now, and
# no host that waits would be told of it.
PARTED = """LEFT JOIN LATERAL (
        SELECT true AS parted FROM {s}.instance
        WHERE id = r.id AND namespace || '' = $1 AND {when}
        FOR UPDATE
    ) x ON true"""

# The commits of a batch, each under its token and on the version before its own.
#
# held    the rows, locked in the order of their ids, so that two batches which share some cannot
#         block each other. Judged under the lock.
# moved   the rows as they are now. While nobody ends it or gives it up, no indexed column changes.
# kept    the history, only of what was moved.
_ADVANCED = compose(
    """asked AS MATERIALIZED (
    SELECT r.*, coalesce(r.leave, false) AS release FROM unnest(
        $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::text[],
        $9::text[], $10::text[], $11::text[], $12::boolean[]{more_values}
    ) WITH ORDINALITY AS r(
        id, token, version, commit, events, due_at_us, status, outcome, custom, attributes,
        leave{more_names}, n
    )
){locks}, held AS MATERIALIZED (
    SELECT r.*, r.status <> 'running' AS final, r.status <> 'running' OR r.release AS leaves,
        i.row, i.worker{parting}
    FROM (SELECT * FROM asked{before} ORDER BY id COLLATE "C") r CROSS JOIN LATERAL (
        SELECT ctid AS row, worker FROM {s}.instance
        WHERE id = r.id AND namespace || '' = $1 AND token = r.token
            AND version = r.version - 1 AND {owned}{only}
        FOR NO KEY UPDATE
    ) i {parted}
), moved AS (
    UPDATE {s}.instance i SET version = h.version, status = h.status,
        due_at_us = CASE WHEN NOT h.final THEN h.due_at_us END, updated_at_us = c.now_us,
        ended_at_us = CASE WHEN h.final THEN c.now_us END,
        kept_until_us = CASE WHEN h.final THEN c.now_us + i.retention_us END,
        session = CASE WHEN NOT h.leaves THEN i.session END,
        host = CASE WHEN NOT h.leaves THEN i.host END,
        worker = CASE WHEN NOT h.leaves THEN i.worker END,
        request = NULL, outcome = h.outcome, custom = coalesce(h.custom, i.custom),
        attributes = coalesce(h.attributes, i.attributes),
        suspended = i.suspended AND NOT h.final{more_set}
    FROM held h CROSS JOIN instant c
    WHERE i.ctid = h.row
    RETURNING h.n, i.id, i.kind, i.name, i.suspended, i.due_at_us, h.final, h.leaves, h.version,
        h.commit, h.token, h.worker, h.events, c.now_us{more_back}
), kept AS (
    INSERT INTO {s}.instance_history (
        namespace, instance, version, commit, token, worker, at_us, events
    )
    SELECT $1, m.id, m.version, m.commit, m.token, m.worker, m.now_us, m.events FROM moved m
)""",
    owned=OWNED_NOW,
)

# Those of a batch of any kind; what has ended has no letters any more.
HELD = compose(
    """{advanced}, emptied AS (
    DELETE FROM {s}.letter l USING (
        SELECT t.row FROM moved m CROSS JOIN LATERAL (
            SELECT ctid AS row FROM {s}.letter
            WHERE namespace = $1 AND box_kind = m.kind AND box_name = m.name AND instance = m.id
            OFFSET 0
        ) t WHERE m.final
    ) t
    WHERE l.ctid = t.row
)""",
    advanced=compose(
        _ADVANCED, only="", parting=", x.parted", parted=compose(PARTED, when="r.release")
    ),
)

# Who watches hears of an end, and who waits of what was given up and can be claimed at once.
MOVED_TOPIC = compose(
    """
    SELECT 'instance/' || m.id AS topic, {watchers} AS items, false AS stays
    FROM moved m WHERE m.final
    UNION ALL
    SELECT 'instances/' || m.kind || '/' || m.name, count(*), false FROM moved m
    WHERE m.leaves AND NOT m.final AND NOT m.suspended{after}
        AND (m.due_at_us <= m.now_us OR {s}.has_letters($1, m.kind, m.name, m.id))
    GROUP BY m.kind, m.name""",
    watchers=str(_WATCHERS_MAX),
)

COMMIT = compose(
    """
WITH {instant}, {held}, topic AS MATERIALIZED ({topic}
), {nobody}, {ring}
SELECT m.n, m.suspended, m.now_us AS at_us, (SELECT hosts FROM rung) AS rung FROM moved m
""",
    instant=INSTANT,
    held=compose(
        HELD, locks="", before="", more_values="", more_names="", more_set="", more_back=""
    ),
    topic=compose(MOVED_TOPIC, after=""),
    nobody=NOBODY,
    ring=compose(RING, channel="$13"),
)

# The usual commits at less cost: none gives its instance up, and those that end an instance find no
# letters in its mailbox and nobody who watches it, so that there is nothing to empty or to ring. A
# member without a row in the answer is asked of the statement above.
COMMIT_QUIET = compose(
    """
WITH {instant}, {advanced}
SELECT m.n, m.suspended, m.now_us AS at_us FROM moved m
""",
    instant=INSTANT,
    advanced=compose(
        _ADVANCED,
        only="""
            AND (r.status = 'running' OR NOT EXISTS (
                SELECT FROM {s}.watch WHERE namespace = $1 AND topic = 'instance/' || r.id OFFSET 0
            ) AND NOT EXISTS (
                SELECT FROM {s}.letter l WHERE l.namespace = $1 AND l.box_kind = instance.kind
                    AND l.box_name = instance.name AND l.instance = r.id OFFSET 0
            ))""",
        **dict.fromkeys(("parting", "parted", "locks", "before"), ""),
        **dict.fromkeys(("more_values", "more_names", "more_set", "more_back"), ""),
    ),
)

# What became of commits that changed nothing: whether they could be tried again, and when they had
# been made if they had.
LOOK_COMMITTED = compose(
    """
WITH {instant}
SELECT r.n, (SELECT now_us FROM instant) AS at_us, i.suspended, i.stands, h.made_at_us
FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[])
    WITH ORDINALITY AS r(id, token, version, commit, n)
LEFT JOIN LATERAL (
    SELECT suspended, token = r.token AND version = r.version - 1 AND session IS NOT NULL AS stands
    FROM {s}.instance WHERE id = r.id AND namespace || '' = $1 OFFSET 0
) i ON true
LEFT JOIN LATERAL (
    SELECT at_us AS made_at_us FROM {s}.instance_history
    WHERE instance = r.id AND namespace || '' = $1 AND version = r.version AND commit = r.commit
    OFFSET 0
) h ON true
""",
    instant=INSTANT,
)

# Whether somebody owns an instance, before anything is done in its name.
OWNED = compose(
    """
WITH {instant}
SELECT (SELECT now_us FROM instant) AS at_us, EXISTS (
    SELECT FROM {s}.instance WHERE id = $2 AND namespace || '' = $1 AND {owned}
) AS owned
""",
    instant=INSTANT,
    owned=OWNED_NOW,
)
