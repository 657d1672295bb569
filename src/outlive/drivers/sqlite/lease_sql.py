"""The statements of the lease store.

Owns the SQL of leases, their history and their queues. Every statement carries the namespace.
Parameters are plain ``?``, in the order of the text: binding by
name costs a lookup for each of them, and Python 3.12 warns of numbered ones.
"""

from __future__ import annotations

from outlive.model.turns import PASS_AFTER_US

# The live places before mine, restating model/turns.py for one slot. Places of another domain
# cannot be judged by this clock; they are served, but nobody waits for them.
_AHEAD = """
        SELECT count(*) FROM outlive_waiter AS w
        WHERE w.namespace = excluded.namespace AND w.key = excluded.key AND w.passed = 0
          AND w.domain = excluded.domain AND w.expires_us > excluded.free_us
          AND w.owner <> excluded.owner"""

# Everybody in the queue was there before a newcomer.
_BEFORE_NEWCOMER = ""

# A place counts from its number as long as it lives; one that has run out is a newcomer's.
_BEFORE_WAITER = """
          AND w.seq < coalesce(
              (SELECT p.seq FROM outlive_waiter AS p
               WHERE p.seq = ? AND p.owner = excluded.owner AND p.expires_us > excluded.free_us),
              9223372036854775807)"""

# The same owner asking again (its reply was lost) keeps its token and overtakes nobody. Otherwise
# the row must be free, or expired by a clock that may be compared, and it must be our turn.
# excluded.free_us is the present: it was read after BEGIN IMMEDIATE returned. The triggers on the
# table write the history and keep the queue, which leaves this one statement, atomic by itself.
_ACQUIRE = """
INSERT INTO outlive_lease AS l (
    namespace, key, slot, limit_, token, version, owner, host, domain,
    expires_us, free_us, ttl_us, acquired_at_us, renewed_at_us, metadata
) {source}
ON CONFLICT DO UPDATE SET
    token = token + (owner IS NOT excluded.owner),
    version = version + 1,
    previous_owner = CASE WHEN owner IS excluded.owner THEN previous_owner ELSE owner END,
    acquired_at_us =
        CASE WHEN owner IS excluded.owner THEN acquired_at_us ELSE excluded.acquired_at_us END,
    owner = excluded.owner,
    host = excluded.host,
    domain = excluded.domain,
    expires_us = excluded.expires_us,
    ttl_us = excluded.ttl_us,
    renewed_at_us = excluded.renewed_at_us,
    metadata = excluded.metadata,
    ended = 'expired',
    detail = NULL
WHERE limit_ = 1 AND (
    owner = excluded.owner
    OR (
        (owner IS NULL OR (domain = excluded.domain AND expires_us <= excluded.free_us))
        AND excluded.free_us >=
            CASE WHEN domain <> excluded.domain THEN 0 WHEN owner IS NULL THEN free_us
                 ELSE expires_us END
            + {pass_after} * ({ahead}{before}
            )
    )
)
RETURNING {owner}token, version, state, previous_owner, endings
"""
_ONE = {
    "pass_after": PASS_AFTER_US,
    "ahead": _AHEAD,
    "source": "VALUES (?, ?, 0, 1, 1, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "owner": "",
}
ACQUIRE_AS_NEWCOMER = _ACQUIRE.format(**_ONE, before=_BEFORE_NEWCOMER)
ACQUIRE_AS_WAITER = _ACQUIRE.format(**_ONE, before=_BEFORE_WAITER)

# Many newcomers at once: an object of owners and the keys they ask for. Without the WHERE the
# parser takes ON for a join.
_MANY = _ONE | {
    "source": """
SELECT ?, j.value, 0, 1, 1, 1, j.key, ?, ?, ?, ?, ?, ?, ?, ?
FROM json_each(?) AS j WHERE true""",
    "owner": "owner, ",
}
ACQUIRE_MANY = _ACQUIRE.format(**_MANY, before=_BEFORE_NEWCOMER)

# Strict: an expired grant never revives, even when nobody took the key.
RENEW = """
UPDATE outlive_lease
SET expires_us = ?, ttl_us = ?, renewed_at_us = ?, version = version + 1,
    state = coalesce(?, state)
WHERE namespace = ? AND key = ? AND slot = ? AND owner = ? AND token = ? AND domain = ?
  AND expires_us > ?
RETURNING version, state
"""

# The token stays: the next grant must be greater. Returns whether anybody may be waiting, so that
# a release nobody waits for costs nothing more.
RELEASE = """
UPDATE outlive_lease
SET owner = NULL, free_us = ?, renewed_at_us = ?, version = version + 1,
    ended = 'released', detail = NULL
WHERE namespace = ? AND key = ? AND slot = ? AND owner = ? AND token = ?
RETURNING EXISTS (
    SELECT 1 FROM outlive_waiter AS w
    WHERE w.namespace = outlive_lease.namespace AND w.key = outlive_lease.key
)
"""

# Many grants at once, as an array of arrays. Materialized, or the planner walks all leases of the
# namespace and looks each of them up in the array. It returns nothing, because rows that come back
# cost a third of the whole; what was done is asked once for all of them.
RELEASE_MANY = """
WITH given AS MATERIALIZED (
    SELECT json_extract(value, '$[0]') AS given_key, json_extract(value, '$[1]') AS given_slot,
        json_extract(value, '$[2]') AS given_owner, json_extract(value, '$[3]') AS given_token
    FROM json_each(?)
)
UPDATE outlive_lease
SET owner = NULL, free_us = ?, renewed_at_us = ?, version = version + 1,
    ended = 'released', detail = NULL
FROM given
WHERE namespace = ? AND key = given_key AND slot = given_slot AND owner = given_owner
  AND token = given_token
"""
# How many rows the statement before this one changed, and whether anybody waits for any key.
RELEASED_MANY = """
SELECT changes(), EXISTS (SELECT 1 FROM outlive_waiter WHERE namespace = ?)
"""
# Of the given keys, those that may be waited for.
AWAITED = """
SELECT DISTINCT w.key FROM outlive_waiter AS w
WHERE w.namespace = ? AND w.key IN (SELECT json_extract(value, '$[0]') FROM json_each(?))
"""

# Why a renewal or release was refused: the row as it is, and how the grant ended.
REFUSED_ROW = """
SELECT owner, token FROM outlive_lease WHERE namespace = ? AND key = ? AND slot = ?
"""

# The entries of all slots of a key, found by following each slot's chain from its newest. An entry
# that names an earlier one which was pruned is the last of its chain.
_CHAIN = """
WITH RECURSIVE chain(id, place) AS (
    SELECT history, 1 FROM outlive_lease
    WHERE namespace = ? AND key = ? AND history IS NOT NULL{slot}
    UNION ALL
    SELECT h.earlier, c.place + 1 FROM chain AS c JOIN outlive_lease_history AS h ON h.id = c.id
    WHERE h.namespace = ? AND h.key = ? AND h.earlier IS NOT NULL
)
"""
_ENTRIES = """
FROM chain AS c JOIN outlive_lease_history AS h ON h.id = c.id
WHERE h.namespace = ? AND h.key = ?
"""


def of_chain(namespace: str, key: str, last: int) -> tuple[str | int, ...]:
    """The parameters of ``ENDED_OF`` and ``HISTORY``."""
    return (namespace, key, namespace, key, namespace, key, last)


ENDED_OF = _CHAIN.format(slot="") + "SELECT h.ended, h.detail" + _ENTRIES + "AND h.token = ?"

# How many endings of a slot pass between two looks at the length of its history. A look follows the
# whole chain; at this distance it costs a grant less than a twentieth, and a slot keeps about twice
# what it shows.
PRUNE_EVERY = 100
_PRUNED = "DELETE FROM outlive_lease_history WHERE id IN (SELECT id FROM chain WHERE place > ?)"
PRUNE_HISTORY = _CHAIN.format(slot=" AND slot = ?") + _PRUNED

# The token grows past every token of the key, so that the old owners' writes are refused.
BREAK = """
UPDATE outlive_lease
SET owner = NULL, domain = ?, free_us = ?, renewed_at_us = ?, version = version + 1,
    ended = 'broken', detail = ?, token = ?
WHERE namespace = ? AND key = ? AND owner IS NOT NULL
"""

# The slow path sees all slots, those above a lowered limit included: their tokens still count.
SLOTS = """
SELECT slot, limit_, token, version, owner, domain, expires_us, free_us, ttl_us, previous_owner
FROM outlive_lease WHERE namespace = ? AND key = ? ORDER BY slot
"""
GRANT_NEW_SLOT = """
INSERT INTO outlive_lease (
    limit_, token, version, owner, host, domain, expires_us, free_us, ttl_us,
    acquired_at_us, renewed_at_us, metadata, previous_owner, ended, namespace, key, slot
) VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
RETURNING version, state, endings
"""
GRANT_SLOT = """
UPDATE outlive_lease
SET limit_ = ?, token = ?, version = version + 1, owner = ?, host = ?, domain = ?, expires_us = ?,
    free_us = ?, ttl_us = ?, acquired_at_us = ?, renewed_at_us = ?, metadata = ?,
    previous_owner = ?, ended = ?, detail = NULL
WHERE namespace = ? AND key = ? AND slot = ?
RETURNING version, state, endings
"""
GRANT_AGAIN = """
UPDATE outlive_lease
SET version = version + 1, host = ?, domain = ?, expires_us = ?, ttl_us = ?, renewed_at_us = ?,
    metadata = ?
WHERE namespace = ? AND key = ? AND slot = ?
RETURNING version, state
"""
SET_LIMIT = "UPDATE outlive_lease SET limit_ = ? WHERE namespace = ? AND key = ?"

# The observation rule: what this domain has seen of a row of another domain.
OBSERVED = """
SELECT version, seen_us FROM outlive_observation
WHERE namespace = ? AND key = ? AND slot = ? AND domain = ?
"""
OBSERVE = """
INSERT INTO outlive_observation (namespace, key, slot, domain, version, seen_us)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET version = excluded.version, seen_us = excluded.seen_us
"""

# Places that have run out go when somebody next looks at the queue. Those of another domain are
# judged by their age in UTC, generously: this is housekeeping and decides nothing.
PRUNE_WAITERS = """
DELETE FROM outlive_waiter
WHERE namespace = ? AND key = ?
  AND CASE WHEN domain = ? THEN expires_us <= ? ELSE seen_at_us < ? END
"""
PLACE_OF = """
SELECT min(seq) FROM outlive_waiter WHERE namespace = ? AND key = ? AND owner = ?
"""
COUNT_AHEAD = """
SELECT count(*) FROM outlive_waiter
WHERE namespace = ? AND key = ? AND seq < ? AND passed = 0 AND domain = ? AND expires_us > ?
  AND owner <> ?
"""
ENQUEUE = """
INSERT INTO outlive_waiter (namespace, key, owner, host, domain, expires_us, seen_at_us)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
# An attempt of its own shows that a passed place is alive after all.
REFRESH = """
UPDATE outlive_waiter SET expires_us = ?, seen_at_us = ?, domain = ?, host = ?, passed = 0
WHERE seq = ?
"""
# A waiter that asks again while the key is plainly held: refreshes its live place and tells who
# owns the key, until when, and how many stand before. One statement, so that a host that only
# waits stays cheap; whatever is not plain yields no row and is decided in the slow path.
STILL_WAITING = """
UPDATE outlive_waiter SET expires_us = ?, seen_at_us = ?, host = ?, passed = 0
WHERE seq = ? AND namespace = ? AND key = ? AND owner = ? AND domain = ? AND expires_us > ?
  AND EXISTS (
      SELECT 1 FROM outlive_lease AS l
      WHERE l.namespace = outlive_waiter.namespace AND l.key = outlive_waiter.key AND l.slot = 0
        AND l.limit_ = 1 AND l.owner <> outlive_waiter.owner
        AND l.domain = outlive_waiter.domain AND l.expires_us > ?
  )
RETURNING
    (SELECT l.owner FROM outlive_lease AS l
     WHERE l.namespace = outlive_waiter.namespace AND l.key = outlive_waiter.key AND l.slot = 0),
    (SELECT l.expires_us FROM outlive_lease AS l
     WHERE l.namespace = outlive_waiter.namespace AND l.key = outlive_waiter.key AND l.slot = 0),
    (SELECT count(*) FROM outlive_waiter AS w
     WHERE w.namespace = outlive_waiter.namespace AND w.key = outlive_waiter.key
       AND w.seq < outlive_waiter.seq AND w.passed = 0 AND w.domain = outlive_waiter.domain
       AND w.expires_us > ? AND w.owner <> outlive_waiter.owner)
"""
# Only those for whom no slot was left over have had their chance.
OVERTAKE = """
UPDATE outlive_waiter SET passed = 1 WHERE seq IN (
    SELECT seq FROM outlive_waiter
    WHERE namespace = ? AND key = ? AND seq < ? AND passed = 0 AND domain = ? AND expires_us > ?
      AND owner <> ?
    ORDER BY seq LIMIT ?
)
"""
LEAVE_BY_OWNER = "DELETE FROM outlive_waiter WHERE namespace = ? AND key = ? AND owner = ?"
# A place of 0 is whatever place the owner has: it was cancelled before it learned of it.
LEAVE = """
DELETE FROM outlive_waiter
WHERE namespace = ? AND key = ? AND owner = ? AND ? IN (0, seq)
"""

# How many slots of the key can be had now. A slot that was never granted is not counted: nobody
# queues while there is one.
FREE_SLOTS = """
SELECT count(*) FROM outlive_lease
WHERE namespace = ? AND key = ? AND slot < limit_
  AND (owner IS NULL OR (domain = ? AND expires_us <= ?))
"""
# The head of the queue. Those of other domains come last, because nobody here can say whether
# they live, and the dead among them must not use up the bells.
HEAD = """
SELECT seq, host FROM outlive_waiter
WHERE namespace = ? AND key = ? AND (domain <> ? OR expires_us > ?) AND passed = 0
ORDER BY domain <> ?, seq LIMIT ?
"""

# A record as people and programs see it. For a row of another domain the observation says how
# much of its ttl has passed here.
RECORD = """
SELECT l.key, l.slot, l.limit_, l.token, l.version, l.owner, l.domain, l.expires_us, l.ttl_us,
    l.acquired_at_us, l.renewed_at_us, l.metadata, l.state,
    (SELECT count(*) FROM outlive_waiter AS w
     WHERE w.namespace = l.namespace AND w.key = l.key
       AND (w.domain <> :domain OR w.expires_us > :now)) AS waiters,
    (SELECT o.seen_us FROM outlive_observation AS o
     WHERE o.namespace = l.namespace AND o.key = l.key AND o.slot = l.slot
       AND o.domain = :domain AND o.version = l.version) AS seen_us
FROM outlive_lease AS l
WHERE l.namespace = :namespace AND l.slot < l.limit_
"""
RECORDS_OF_KEY = RECORD + "  AND l.key = :key ORDER BY l.slot"

# Text is compared byte by byte, which for UTF-8 is code-point order: a prefix is a range, and no
# pattern is ever built from user's text. A host name is what stands before the last slash.
LIST_FILTER = """
  AND (:owner IS NULL OR l.owner = :owner
       OR (substr(l.owner, 1, length(:owner) + 1) = :owner || '/'
           AND instr(substr(l.owner, length(:owner) + 2), '/') = 0))
  AND (NOT :active OR (l.owner IS NOT NULL AND CASE
       WHEN l.domain = :domain THEN l.expires_us > :now
       ELSE coalesce(seen_us + l.ttl_us > :now, 1) END))
"""
LIST = f"""{RECORD}
  AND l.key >= :prefix AND (:upper IS NULL OR l.key < :upper)
  AND (:after IS NULL OR l.key > :after){LIST_FILTER}
ORDER BY l.key, l.slot LIMIT :limit
"""
# A page ends only between keys.
LIST_REST = f"{RECORD}  AND l.key = :key AND l.slot > :slot{LIST_FILTER}ORDER BY l.slot"

# Every column of the table, whatever they are: for people who debug.
RAW = "SELECT * FROM outlive_lease WHERE namespace = ? AND key = ? ORDER BY slot"

HISTORY = (
    _CHAIN.format(slot="")
    + "SELECT h.slot, h.token, h.owner, h.acquired_at_us, h.ended_at_us, h.ended, h.detail"
    + _ENTRIES
    + "ORDER BY h.token DESC LIMIT ?"
)
PRESENT = """
SELECT slot, token, owner, acquired_at_us, NULL, NULL, NULL
FROM outlive_lease WHERE namespace = ? AND key = ? AND owner IS NOT NULL AND slot < limit_
ORDER BY token DESC
"""

# A write that changes nothing, because a SELECT on a default connection opens no transaction and
# locks nothing out.
GUARD = """
UPDATE outlive_lease SET token = token
WHERE namespace = ? AND key = ? AND slot = ? AND token = ? AND owner = ?
RETURNING 1
"""

# What the fallback without doorbells looks at.
WAITERS_OF_HOST = """
SELECT key, seq FROM outlive_waiter WHERE namespace = ? AND host = ? ORDER BY seq LIMIT ?
"""
