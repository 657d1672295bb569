"""The statements of the host store, for the sidecar file.

Owns the SQL of sessions. Every statement carries the namespace.
"""

from __future__ import annotations

FIND = "SELECT ended_at_us FROM outlive_session WHERE namespace = ? AND id = ?"

# Opening again while it lives (the reply was lost) counts the ttl anew; an ended one is refused
# before this statement runs.
OPEN = """
INSERT INTO outlive_session
    (namespace, id, name, domain, ttl_us, expires_us, version, metadata, started_at_us)
VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?)
ON CONFLICT DO UPDATE SET
    name = excluded.name, domain = excluded.domain, ttl_us = excluded.ttl_us,
    expires_us = excluded.expires_us, version = version + 1, metadata = excluded.metadata
"""

# Ids are random and never come back after so long; a tombstone need not stay for ever.
PRUNE = "DELETE FROM outlive_session WHERE namespace = ? AND ended_at_us < ?"

# Strict: a session that ran out stays so, because peers may have taken over its work.
RENEW = """
UPDATE outlive_session SET expires_us = ?, ttl_us = ?, version = version + 1
WHERE namespace = ? AND id = ? AND domain = ? AND ended_at_us IS NULL AND expires_us > ?
"""

END = """
UPDATE outlive_session SET ended_at_us = ?, version = version + 1
WHERE namespace = ? AND id = ? AND ended_at_us IS NULL
"""
FORGET = "DELETE FROM outlive_observation WHERE namespace = ? AND id = ?"

# Sessions that have not ended, with what this domain has seen of those of other domains.
LIVING = """
SELECT s.id, s.name, s.domain, s.ttl_us, s.expires_us, s.version, s.metadata, s.started_at_us,
    (SELECT o.seen_us FROM outlive_observation AS o
     WHERE o.namespace = s.namespace AND o.id = s.id AND o.domain = :domain
       AND o.version = s.version) AS seen_us
FROM outlive_session AS s
WHERE s.namespace = :namespace AND s.ended_at_us IS NULL
"""
GET = LIVING + "AND s.id = :id"
LIST = LIVING + "ORDER BY s.started_at_us, s.id LIMIT :limit"
# Those of this domain that ran out, and all of other domains, which have to be looked at.
SUSPECTS = f"""{LIVING}
  AND (s.domain <> :domain OR s.expires_us <= :now)
ORDER BY s.started_at_us, s.id
"""

OBSERVE = """
INSERT INTO outlive_observation (namespace, id, domain, version, seen_us) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET version = excluded.version, seen_us = excluded.seen_us
"""
