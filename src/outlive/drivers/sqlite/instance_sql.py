"""The statements that start, claim and advance instances.

Owns the SQL of the hot paths. Every statement carries the namespace, or a number that was found
under it in the same transaction. Conditions of partial indexes are written out, because only then
does SQLite see that they apply. Rows are looked up by one statement for a whole batch and written
by number: RETURNING costs more than both together.
"""

from __future__ import annotations

from outlive.drivers.sqlite.statements import Lookup

# A write that changes nothing: a lazy connection of the user's begins its transaction with it.
LOCK = "UPDATE outlive_instance_waiter SET called = called WHERE note = 0"

_ONE = "FROM outlive_instance AS i WHERE i.id = ? AND i.namespace = ?"
_MANY = """
FROM json_each(?) AS j JOIN outlive_instance AS i ON i.id = j.value AND i.namespace = ?
"""

# Of some ids, those that are there.
_STARTED = "SELECT i.id, i.request, i.name, i.parent, i.created_at_us, i.number, i.first_token "
STARTED = Lookup(_STARTED + _ONE, _STARTED + _MANY)

_START = """
INSERT INTO outlive_instance (
    namespace, began_at_us, updated_at_us, created_at_us, id, kind, name, status, token, version,
    session, host, worker, due_at_us, retention_us, request, headers, attributes, input,
    first_token, parent, outlives
) SELECT
    ?, {began}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    {family}
"""

# Namespace and instant; then what is told of each instance. Its time begins when it is due: a nap
# of one that is started for tomorrow is as long as that of any other.
START = _START.format(began="max(?, ?)", family="?, ?")

# One that its session owns from the beginning and that has no parent, unless the id is there, or
# the token is none that a new one may have. To tell SQLite of a null takes longer than to write it
# here.
_UNLESS = """
WHERE ? > coalesce((SELECT f.token FROM outlive_instance_floor AS f WHERE f.namespace = ?), 0)
ON CONFLICT (id, namespace) DO NOTHING
"""
START_OWNED = _START.format(began="?", family="NULL, 0") + _UNLESS

# The greatest token of what was removed; no row if nothing was.
FLOOR = "SELECT token FROM outlive_instance_floor WHERE namespace = ?"

ADD_INPUT = """
INSERT INTO outlive_instance_input (instance, input) VALUES (?, ?)
ON CONFLICT (instance) DO UPDATE SET input = excluded.input
"""
DROP_INPUT = "DELETE FROM outlive_instance_input WHERE instance = ?"

ADD_HISTORY = """
INSERT INTO outlive_history (instance, version, commit_id, token, worker, at_us, events)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""


# -- commits --------------------------------------------------------------------------------------

# Where the instances of some ids stand; those without an owner accept no commit. The last column:
# whether there is nothing in it that a commit without a due time would have to take out.
_STANDING = """
SELECT i.id, i.number, i.token, i.version, i.worker, i.suspended,
    i.due_at_us IS NULL AND i.claim IS NULL
"""
STANDING = Lookup(
    f"{_STANDING} {_ONE} AND i.session IS NOT NULL",
    f"{_STANDING} {_MANY} WHERE i.session IS NOT NULL",
)

# The same of one that is to end, and whether anything hangs on it; see ``mail_sql.ATTACHED``.
_HUNG_ON = """,
    EXISTS (SELECT 1 FROM outlive_watcher AS w WHERE w.instance = i.number)
    OR EXISTS (SELECT 1 FROM outlive_mailbox AS m WHERE m.instance = i.number)
"""
STANDING_LAST = f"{_STANDING} {_HUNG_ON} {_ONE} AND i.session IS NOT NULL"

# The fence once more: the token of the newest claim, not given up, at the version before. Several
# statements, because one writes the entries of every index whose columns it names: an instance that
# goes on with its owner has none to be written. Nulls stand in them: to tell SQLite of a null takes
# longer than of a number or a text.
_FENCE = "WHERE number = ? AND token = ? AND version = ? - 1 AND session IS NOT NULL"
_GO_ON = """
UPDATE outlive_instance SET version = ?, updated_at_us = ?, due_at_us = ?, claim = NULL
"""
GO_ON_UNTIL = _GO_ON + _FENCE
GO_ON = GO_ON_UNTIL.replace("due_at_us = ?", "due_at_us = NULL")
# The usual one. To write a null over a null takes as long as all else: its index is looked at.
ONLY_GO_ON = GO_ON.replace(", due_at_us = NULL, claim = NULL", "")
_GIVE_UP = """
UPDATE outlive_instance
SET version = ?, updated_at_us = ?, claim = NULL, session = NULL, status = ?
"""
GIVE_UP = f"{_GIVE_UP}, due_at_us = ? {_FENCE}"
_END = """, due_at_us = NULL, outcome = ?, ended_at_us = ?, prune_at_us = ? + retention_us,
    suspended = 0
"""
END = _GIVE_UP + _END + _FENCE

# The commit that made a version, and when, for callers who ask again.
COMMITTED = """
SELECT h.commit_id, i.suspended, h.at_us FROM outlive_instance AS i
JOIN outlive_history AS h ON h.instance = i.number AND h.version = ?
WHERE i.id = ? AND i.namespace = ?
"""

DESCRIBE = """
UPDATE outlive_instance
SET custom = coalesce(?, custom), attributes = coalesce(?, attributes) WHERE number = ?
"""
RESTART = """
UPDATE outlive_instance SET base = version - 1, began_at_us = ?, input = ? WHERE number = ?
"""
FORGET_HISTORY = "DELETE FROM outlive_history WHERE instance = ? AND version < ?"
ADD_REPLY = """
INSERT INTO outlive_reply (instance, message, payload) VALUES (?, ?, ?)
ON CONFLICT (instance, message) DO UPDATE SET payload = excluded.payload
"""
HAVE_MAIL = """
SELECT m.instance FROM json_each(?) AS j JOIN outlive_mailbox AS m ON m.instance = j.value
"""
DEFINITIONS = """
SELECT i.number, i.kind || '/' || i.name
FROM json_each(?) AS j JOIN outlive_instance AS i ON i.number = j.value
"""


# -- claims ---------------------------------------------------------------------------------------

_DUE = """d.namespace = ? AND d.kind = ? AND d.name = j.value AND d.session IS NULL
          AND d.ended_at_us IS NULL AND d.suspended = 0 AND d.due_at_us IS NOT NULL"""

# The longest due of each name, and those that have letters; one may be both. One that nobody has
# had waits for its time with its letters, unless one of these is to cancel it: the letters are
# looked through for those only, which are few.
_CLAIMABLE = """
SELECT number, token FROM (
    SELECT i.number AS number, i.token AS token, i.due_at_us AS since
    FROM json_each(?) AS j CROSS JOIN outlive_instance AS i ON i.number IN (
        SELECT d.number FROM outlive_instance AS d INDEXED BY outlive_instance_due
        WHERE {due} AND d.due_at_us <= ? ORDER BY d.due_at_us LIMIT ?
    )
    UNION ALL
    SELECT i.number, i.token, m.since_at_us
    FROM json_each(?) AS j
    CROSS JOIN outlive_mailbox AS m ON m.namespace = ? AND m.kind = ? AND m.name = j.value
    CROSS JOIN outlive_instance AS i ON i.number = m.instance
        AND i.session IS NULL AND i.ended_at_us IS NULL AND i.suspended = 0
        AND (i.token > 0 OR i.due_at_us IS NULL OR i.due_at_us <= ? OR EXISTS (
            SELECT 1 FROM outlive_letter AS l
            WHERE l.instance = i.number AND l.payload IS NOT NULL AND l.kind = 'cancel'
        ))
)
GROUP BY number ORDER BY min(since), number LIMIT ?
"""
CLAIMABLE = _CLAIMABLE.format(due=_DUE)

_NEXT_DUE = """
SELECT min((
    SELECT d.due_at_us FROM outlive_instance AS d INDEXED BY outlive_instance_due
    WHERE {due} ORDER BY d.due_at_us LIMIT 1
)) FROM json_each(?) AS j
"""
NEXT_DUE = _NEXT_DUE.format(due=_DUE)

_COLUMNS = """number, id, kind, name, token, version, base,
    coalesce(input, (SELECT t.input FROM outlive_instance_input AS t WHERE t.instance = number)),
    began_at_us, parent, headers, attributes, custom"""

# Rows come back in no order that counts. What is claimed before its time begins now, and so does
# its time; where something is recorded, that was computed from the time there is.
_TAKE = """
UPDATE outlive_instance
SET session = ?, host = ?, worker = ?, claim = ?, status = 'running', updated_at_us = ?,
    began_at_us = CASE WHEN version = base THEN min(began_at_us, ?) ELSE began_at_us END,
    token = 1 + max(token, coalesce((
        SELECT f.token FROM outlive_instance_floor AS f
        WHERE f.namespace = outlive_instance.namespace
    ), 0))
WHERE number IN (SELECT value FROM json_each(?))
RETURNING {columns}
"""
TAKE = _TAKE.format(columns=_COLUMNS)
_BEFORE = """
SELECT {columns} FROM outlive_instance
WHERE namespace = ? AND session = ? AND ended_at_us IS NULL AND claim = ?
"""
CLAIMED_BEFORE = _BEFORE.format(columns=_COLUMNS)

# Instances of a session whose mailboxes are not empty, except those of a JSON list of numbers.
OWN_MAIL = """
SELECT i.id FROM outlive_mailbox AS m CROSS JOIN outlive_instance AS i ON i.number = m.instance
WHERE m.namespace = ? AND i.session = ? AND i.number NOT IN (SELECT value FROM json_each(?))
"""

RELEASE = """
UPDATE outlive_instance AS i
SET session = NULL, claim = NULL, updated_at_us = ?,
    due_at_us = CASE WHEN json_extract(j.value, '$[2]') THEN min(?, coalesce(i.due_at_us, ?))
        ELSE i.due_at_us END
FROM json_each(?) AS j
WHERE i.id = json_extract(j.value, '$[0]') AND i.namespace = ?
  AND i.token = json_extract(j.value, '$[1]') AND i.session IS NOT NULL
RETURNING id, number, suspended, due_at_us, token
"""
