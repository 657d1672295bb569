"""The statements of mailboxes: putting, reading and emptying, and who is to hear of it.

Owns the SQL of letters. Numbers of instances were found under the namespace in the same
transaction, or are looked up under it here.
"""

from __future__ import annotations

from outlive.drivers.sqlite.statements import Lookup

# Where each of a JSON list of (receiver, message) stands: its place in the list, the receiver, how
# many letters lie there, and whether this one was sent before.
RECEIVERS = """
SELECT j.key, i.number, i.id, i.ended_at_us IS NOT NULL,
    CASE WHEN i.session IS NOT NULL THEN i.host END, i.suspended, i.kind || '/' || i.name,
    coalesce(m.letters, 0),
    EXISTS (
        SELECT 1 FROM outlive_letter AS l
        WHERE l.instance = i.number AND l.id = json_extract(j.value, '$[1]')
    )
FROM json_each(?) AS j
JOIN outlive_instance AS i ON i.id = json_extract(j.value, '$[0]') AND i.namespace = ?
LEFT JOIN outlive_mailbox AS m ON m.instance = i.number
"""
PUT = """
INSERT INTO outlive_letter (instance, id, kind, name, sent_at_us, payload)
VALUES (?, ?, ?, ?, ?, ?)
"""

READ = """
SELECT number, id, kind, name, payload, sent_at_us FROM outlive_letter
WHERE instance = ? AND payload IS NOT NULL AND number > ? ORDER BY number LIMIT ?
"""
UNREAD = """
SELECT l.number, l.id, l.kind, l.name, l.payload, l.sent_at_us
FROM outlive_instance AS i JOIN outlive_letter AS l ON l.instance = i.number
WHERE i.id = ? AND i.namespace = ? AND l.payload IS NOT NULL AND l.number > ?
ORDER BY l.number LIMIT ?
"""

CONSUME = "UPDATE outlive_letter SET payload = NULL WHERE number = ? AND instance = ?"
EMPTY = """
UPDATE outlive_letter SET payload = NULL
WHERE instance IN (SELECT value FROM json_each(?)) AND payload IS NOT NULL
"""

WATCH = """
INSERT INTO outlive_watcher (instance, host, until_at_us) VALUES (?, ?, ?)
ON CONFLICT (instance, host) DO UPDATE
SET until_at_us = max(until_at_us, excluded.until_at_us)
"""
# What hangs on instances that most often have neither: hosts that watch, and unread letters.
_ATTACHED = """
SELECT w.instance, w.host, w.until_at_us FROM outlive_watcher AS w WHERE w.instance {is_asked}
UNION ALL
SELECT m.instance, NULL, 0 FROM outlive_mailbox AS m WHERE m.instance {is_asked}
"""
ATTACHED = Lookup(
    _ATTACHED.format(is_asked="= ?"),
    _ATTACHED.format(is_asked="IN (SELECT value FROM json_each(?))"),
)
FORGET_WATCHERS = "DELETE FROM outlive_watcher WHERE instance = ?"
