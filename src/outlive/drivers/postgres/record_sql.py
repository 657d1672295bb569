"""The statements that only read: records, pages of records, history.

Owns their text and nothing else. ``{s}`` stands for the quoted schema. ``_RECORD`` is what one
record needs; rows above the key's limit are left over from a larger one and are not shown.
"""

from __future__ import annotations

_RECORD = """
SELECT l.key, l.slot, l.limit_, l.token, l.version, l.owner,
    l.owner IS NOT NULL AND l.expires_at > clock_timestamp() AS active, l.ttl_us,
    coalesce(extract(epoch FROM l.expires_at - clock_timestamp()), 0)::float8 AS remaining_s,
    l.acquired_at, l.renewed_at, l.expires_at, l.metadata, l.state, (
        SELECT count(*) FROM {s}.waiter w
        WHERE w.namespace = $1 AND w.key = l.key AND w.expires_at > clock_timestamp()
    ) AS waiters
FROM {s}.lease l
WHERE l.namespace = $1 AND l.slot < l.limit_
"""

GET = _RECORD + "AND l.key = $2 ORDER BY l.slot"

# Everything a page selects by: the bounds of the prefix (a null upper bound has no end), the page
# before, the owner or its host name, and whether somebody owns it now.
_MATCH = """
l.key >= $2 AND ($3::text IS NULL OR l.key < $3) AND ($4::text IS NULL OR l.key > $4)
AND ($5::text IS NULL OR l.owner = $5 OR substring(l.owner FROM '^(.*)/[^/]*$') = $5)
AND (NOT $6::boolean OR (l.owner IS NOT NULL AND l.expires_at > clock_timestamp()))
"""

# A page ends only between keys: it runs to the last slot of the key that the limit falls into.
_PAGE = """
{record} AND {match} AND l.key <= (
    SELECT max(p.key) FROM (
        SELECT l.key FROM {s}.lease l
        WHERE l.namespace = $1 AND l.slot < l.limit_ AND {match}
        ORDER BY l.key, l.slot LIMIT $7
    ) p
)
ORDER BY l.key, l.slot
"""
LIST = _PAGE.replace("{record}", _RECORD).replace("{match}", _MATCH)

# Every column of the table, whatever they are: for people who debug.
RAW = "SELECT * FROM {s}.lease WHERE namespace = $1 AND key = $2 ORDER BY slot"

# A present owner has no end, not even when its time ran out: nobody has ended it yet.
HISTORY = """
SELECT * FROM (
    SELECT h.slot, h.token, h.owner, h.acquired_at, h.ended_at, h.ended, h.detail
    FROM {s}.lease_history h WHERE h.namespace = $1 AND h.key = $2
    UNION ALL
    SELECT l.slot, l.token, l.owner, l.acquired_at, NULL, NULL, NULL
    FROM {s}.lease l WHERE l.namespace = $1 AND l.key = $2 AND l.owner IS NOT NULL
) e
ORDER BY e.token DESC LIMIT $3
"""
