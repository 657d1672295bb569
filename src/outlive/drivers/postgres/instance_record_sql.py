"""The statements that show instances and their histories.

Owns their text and nothing else. ``{s}`` stands for the quoted schema.
"""

from __future__ import annotations

from outlive.drivers.postgres import instance_sql
from outlive.drivers.postgres.job_sql import compose

_STATUS = "CASE WHEN i.ended_at_us IS NULL AND i.suspended THEN 'suspended' ELSE i.status END"

_COLUMNS = compose(
    """i.id, i.kind, i.name, {status} AS status, i.input, i.outcome, i.custom, i.attributes,
    i.headers, i.parent, i.token, i.version, i.base, i.session, i.worker, i.created_at_us,
    i.began_at_us, i.updated_at_us, i.ended_at_us, i.due_at_us, i.number""",
    status=_STATUS,
)

GET = compose(
    "SELECT {columns} FROM {s}.instance i WHERE i.id = $2 AND i.namespace || '' = $1",
    columns=_COLUMNS,
)

# A host that wants to be told, of an instance that lives.
WATCH = compose(
    """
WITH {instant}
INSERT INTO {s}.watch AS w (namespace, topic, host, since_us, until_us)
SELECT $1, 'instance/' || i.id, $3, c.now_us, c.now_us + $4::bigint FROM instant c
CROSS JOIN LATERAL (
    SELECT id FROM {s}.instance
    WHERE id = $2 AND namespace || '' = $1 AND ended_at_us IS NULL OFFSET 0
) i
ON CONFLICT (namespace, topic, host) DO UPDATE
SET until_us = greatest(w.until_us, excluded.until_us)
""",
    instant=instance_sql.INSTANT,
)

HISTORY = """
SELECT version, token, worker, at_us, events FROM {s}.instance_history
WHERE instance = $2 AND namespace || '' = $1 AND version > $3
ORDER BY version LIMIT $4
"""

# ``jsonb`` cannot hold the character NUL, which JSON writes as an escape behind an even number of
# backslashes. Compared are texts in which a character that stands for nothing takes its place.
_AS_JSONB = r"""regexp_replace({text}, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufdd0', 'g')::jsonb"""

_MATCHES = compose(
    """($2::text IS NULL OR i.kind = $2::text)
        AND ($3::text[] IS NULL OR i.name = ANY($3::text[]))
        AND ($4::text[] IS NULL OR {status} = ANY($4::text[]))
        AND ($5::text IS NULL OR starts_with(i.id, $5::text))
        AND ($6::text IS NULL OR i.parent = $6::text)
        AND ($7::text IS NULL OR {attributes} @> {wanted})
        AND ($8::bigint IS NULL OR i.created_at_us >= $8::bigint)
        AND ($9::bigint IS NULL OR i.created_at_us < $9::bigint)
        AND ($10::bigint IS NULL OR i.ended_at_us < $10::bigint)
        AND ($11::text IS NULL OR {attributes} ? $11::text)""",
    status=_STATUS,
    attributes=_AS_JSONB.replace("{text}", "i.attributes"),
    wanted=_AS_JSONB.replace("{text}", "$7::text"),
)

# A page in order of creation, of what a window of $14 rows holds: a filter that few rows match must
# not let one statement read the whole namespace.
#
# page       ends its reading with the last row that it needs, wherever the window ends.
# looked_to  the last row of the window, if it was gone through and there is one: the next window
#            begins behind it. Found in the same snapshot, and by index alone; of a page that is
#            full, and behind the last row of all, there is none.
LIST = compose(
    """
WITH page AS MATERIALIZED (
    SELECT {columns} FROM (
        SELECT * FROM {s}.instance WHERE namespace = $1 AND number > $12
        ORDER BY number LIMIT $14::bigint
    ) i
    WHERE {matches}
    ORDER BY i.number LIMIT $13::bigint
)
SELECT p.*, CASE WHEN (SELECT count(*) FROM page) < $13::bigint THEN (
    SELECT number FROM {s}.instance WHERE namespace = $1 AND number > $12
    ORDER BY number OFFSET $14::bigint - 1 LIMIT 1
) END AS looked_to
FROM (VALUES (1)) one LEFT JOIN page p ON true
ORDER BY p.number
""",
    columns=_COLUMNS,
    matches=_MATCHES,
)

# The same of one parent, without windows: its children stand in an index of their own, which is
# taken first, and there are no more of them than a flow may have.
LIST_CHILDREN = compose(
    """
SELECT {columns} FROM (
    SELECT * FROM {s}.instance WHERE parent = $6::text AND namespace = $1 OFFSET 0
) i
WHERE i.number > $12
        AND {matches}
ORDER BY i.number LIMIT $13::bigint
""",
    columns=_COLUMNS,
    matches=_MATCHES,
)

# How many match, by status, in a window of $13 rows behind the number $12, as pages have them.
#
# looked_at  all rows of the window that have this status: if it was full, another one follows.
# looked_to  the last of them; the next window begins behind the last of all.
COUNT = compose(
    """
SELECT {status} AS status, count(*) FILTER (WHERE {matches}) AS instances,
    count(*) AS looked_at, max(i.number) AS looked_to
FROM (
    SELECT * FROM {s}.instance WHERE namespace = $1 AND number > $12
    ORDER BY number LIMIT $13::bigint
) i
GROUP BY 1
""",
    status=_STATUS,
    matches=_MATCHES,
)

# The same of one parent, without windows.
COUNT_CHILDREN = compose(
    """
SELECT {status} AS status, count(*) AS instances FROM (
    SELECT * FROM {s}.instance WHERE parent = $6::text AND namespace = $1 OFFSET 0
) i
WHERE {matches}
GROUP BY 1
""",
    status=_STATUS,
    matches=_MATCHES,
)
