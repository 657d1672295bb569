"""The statements of operators and of upkeep: showing, stopping, reopening, removing instances.

Owns the SQL of everything that is not on the path of a healthy instance. Every statement carries
the namespace, or a number that was found under it in the same transaction. A listing is put
together from the constants here and from nothing else; what a caller gives is always a parameter.
"""

from __future__ import annotations

from typing import Any

from outlive.model.instance import InstanceFilter, InstanceStatus

_STATUS = "CASE WHEN i.suspended = 1 THEN 'suspended' ELSE i.status END"
_SHOWN = """
SELECT i.id, i.kind, i.name, {status},
    coalesce(i.input, (SELECT t.input FROM outlive_instance_input AS t
                       WHERE t.instance = i.number)),
    i.outcome, i.custom, i.attributes, i.headers, i.parent, i.token, i.version, i.base, i.session,
    i.worker, i.created_at_us, i.began_at_us, i.updated_at_us, i.ended_at_us, i.due_at_us, i.number
FROM outlive_instance AS i"""
_RECORD = _SHOWN.format(status=_STATUS)
GET = f"{_RECORD} WHERE i.id = ? AND i.namespace = ?"

REPLY = """
SELECT r.payload FROM outlive_instance AS i JOIN outlive_reply AS r ON r.instance = i.number
WHERE i.id = ? AND i.namespace = ? AND r.message = ?
"""

HISTORY = """
SELECT h.version, h.token, h.worker, h.at_us, h.events
FROM outlive_instance AS i JOIN outlive_history AS h ON h.instance = i.number
WHERE i.id = ? AND i.namespace = ? AND h.version > max(?, i.base)
ORDER BY h.version LIMIT ?
"""

# Every member of the wanted object is there with an equal value; true is not 1.
_ATTRIBUTES = """NOT EXISTS (
    SELECT 1 FROM json_each(:attributes) AS w WHERE NOT EXISTS (
        SELECT 1 FROM json_each(i.attributes) AS h
        WHERE h.key = w.key AND h.atom = w.atom
          AND (h.type IN ('true', 'false')) = (w.type IN ('true', 'false'))
    )
)"""
_TERMS = {
    "kind": "i.kind = :kind",
    "parent": "i.parent = :parent",
    "attributes": _ATTRIBUTES,
    "has_attribute": """EXISTS (
    SELECT 1 FROM json_each(i.attributes) AS h WHERE h.key = :has_attribute
)""",
    "created_from_us": "i.created_at_us >= :created_from_us",
    "created_before_us": "i.created_at_us < :created_before_us",
    "ended_before_us": "i.ended_at_us < :ended_before_us",
    # The range is what the index of ids can be asked for.
    "prefix": "i.id >= :prefix AND substr(i.id, 1, length(:prefix)) = :prefix",
}


def _where(wanted: InstanceFilter, namespace: str) -> tuple[str, dict[str, Any]]:
    terms = ["i.namespace = :namespace"]
    values: dict[str, Any] = {"namespace": namespace}
    for name, term in _TERMS.items():
        value = getattr(wanted, name)
        if value is not None:
            terms.append(term)
            values[name] = value
    if wanted.names:
        places = {f"name{place}": name for place, name in enumerate(wanted.names)}
        values |= places
        terms.append(f"i.name IN ({', '.join(f':{place}' for place in places)})")
    if wanted.statuses == (InstanceStatus.FAILED,):
        # Written out, because only then does its index apply.
        terms.append("i.status = 'failed'")
    elif wanted.statuses:
        statuses = ", ".join(f"'{InstanceStatus(status).value}'" for status in wanted.statuses)
        terms.append(f"{_STATUS} IN ({statuses})")
        if all(status in _LIVE for status in wanted.statuses):
            terms.append("i.ended_at_us IS NULL")
    return " AND ".join(terms), values


_LIVE = (InstanceStatus.PENDING, InstanceStatus.RUNNING, InstanceStatus.SUSPENDED)


def listing(wanted: InstanceFilter, namespace: str) -> tuple[str, dict[str, Any]]:
    """The statement of a page that begins after ``:after``, and its other parameters."""
    where, values = _where(wanted, namespace)
    return f"{_RECORD} WHERE {where} AND i.number > :after ORDER BY i.number LIMIT :limit", values


_COUNT = "SELECT {status}, count(*) FROM outlive_instance AS i WHERE {where} GROUP BY 1"


def counting(wanted: InstanceFilter, namespace: str) -> tuple[str, dict[str, Any]]:
    """The statement that counts what matches by status, and its parameters."""
    where, values = _where(wanted, namespace)
    return _COUNT.format(status=_STATUS, where=where), values


# Where an instance stands, for operators.
STANDING = """
SELECT i.number, i.status, i.suspended, i.version, CASE WHEN i.session IS NOT NULL THEN i.host END,
    i.kind || '/' || i.name, i.token
FROM outlive_instance AS i WHERE i.id = ? AND i.namespace = ?
"""

TERMINATE = """
UPDATE outlive_instance
SET status = 'terminated', suspended = 0, outcome = ?, token = token + 1, session = NULL,
    claim = NULL, due_at_us = NULL, updated_at_us = ?, ended_at_us = ?,
    prune_at_us = ? + retention_us
WHERE number = ?
"""
# Those that the runs of a JSON list of numbers have started and that are not to outlive them. A run
# that began anew has left those of the run before alone.
BELOW = """
SELECT c.number, c.id, CASE WHEN c.session IS NOT NULL THEN c.host END
FROM json_each(?) AS j JOIN outlive_instance AS p ON p.number = j.value
JOIN outlive_instance AS c ON c.parent = p.id AND c.namespace = p.namespace
WHERE c.parent IS NOT NULL AND c.ended_at_us IS NULL AND c.outlives = 0
    AND (p.base = 0 OR c.created_at_us > p.began_at_us)
"""
SUSPEND = "UPDATE outlive_instance SET suspended = 1, updated_at_us = ? WHERE number = ?"
# What its last owner left undone nobody else knows: let somebody look. One that was never claimed
# has left nothing, and keeps its time.
RESUME = """
UPDATE outlive_instance
SET suspended = 0, updated_at_us = ?,
    due_at_us = CASE WHEN session IS NULL AND token > 0 THEN min(?, coalesce(due_at_us, ?))
        ELSE due_at_us END
WHERE number = ?
"""
# One that was to begin later begins now, and so does its time; where something is recorded, that
# was computed from the time there is.
REOPEN = """
UPDATE outlive_instance
SET status = 'running', version = ?, outcome = NULL, due_at_us = ?, updated_at_us = ?,
    ended_at_us = NULL, prune_at_us = NULL,
    began_at_us = CASE WHEN version = base THEN min(began_at_us, ?) ELSE began_at_us END
WHERE number = ?
"""
REOPENED = """
SELECT events FROM outlive_history WHERE instance = ? AND version = ? AND commit_id = ?
"""

REMOVE = "DELETE FROM outlive_instance WHERE number IN (SELECT value FROM json_each(?))"
ENDED = """
SELECT j.value, i.number, i.ended_at_us IS NOT NULL
FROM json_each(?) AS j JOIN outlive_instance AS i ON i.id = j.value AND i.namespace = ?
"""
# As many as those before them leave room for: so many rows of histories, which go with them.
PRUNE = """
DELETE FROM outlive_instance WHERE number IN (
    SELECT number FROM (
        SELECT number, rows, sum(rows) OVER (ORDER BY prune_at_us, number) AS together FROM (
            SELECT number, prune_at_us, version - base AS rows FROM outlive_instance
            WHERE namespace = ? AND prune_at_us IS NOT NULL AND prune_at_us <= ?
            ORDER BY prune_at_us LIMIT ?
        )
    ) WHERE together - rows < ?
)
"""

# Whose instances there are; asked of the sidecar file then.
OWNERS = """
SELECT DISTINCT session FROM outlive_instance INDEXED BY outlive_instance_live
WHERE namespace = ? AND ended_at_us IS NULL AND session IS NOT NULL
"""
RECLAIM = """
UPDATE outlive_instance
SET session = NULL, claim = NULL, token = token + 1, updated_at_us = ?,
    due_at_us = min(?, coalesce(due_at_us, ?))
WHERE number IN (
    SELECT i.number FROM outlive_instance AS i INDEXED BY outlive_instance_live
    WHERE i.namespace = ? AND i.ended_at_us IS NULL
      AND i.session IN (SELECT value FROM json_each(?))
    LIMIT ?
)
RETURNING id, kind, name, suspended
"""
