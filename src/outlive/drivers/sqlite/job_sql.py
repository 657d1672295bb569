"""The statements that enqueue, claim and settle jobs.

Owns the SQL of the hot paths. Every statement carries the namespace. Conditions on ``state`` and
``blocked`` are written out, because only then does SQLite see that a partial index applies. Batches
come as one JSON text, so that a statement runs once for all of them.
"""

from __future__ import annotations

# Numbers for so many rows; the last of them is returned.
TAKE_NUMBERS = "UPDATE outlive_job_counter SET last = last + ? WHERE one = 1 RETURNING last"

CLOSED_QUEUES = "SELECT name FROM outlive_queue WHERE namespace = ? AND mode = 'draining'"

# A job behind a live one of its key is blocked. Rows of one batch see those before them.
_ROW = """
INSERT INTO outlive_job (
    number, namespace, id, queue, state, blocked, priority, seq, token, due_at_us, expires_us,
    expires_at_us, ordering_key, unique_key, max_attempts, max_losses, enqueued_at_us,
    retention_us, retry, headers, payload, instance, step
) VALUES (
    ?, ?, ?, ?, ?,
    CASE WHEN ? IS NULL THEN 0 ELSE EXISTS (
        SELECT 1 FROM outlive_job AS o
        WHERE o.namespace = ? AND o.queue = ? AND o.ordering_key = ?
          AND o.state IN ('scheduled', 'ready', 'claimed', 'retrying')
    ) END,
    ?, ?, ?, ?, ?, ? + ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
)
"""
# An id that is there already in the same queue means that this very call was made before.
INSERT = _ROW + "ON CONFLICT (namespace, id) DO NOTHING"

# Of the jobs with ordering keys among those just added, the ones whose turn it is.
UNBLOCKED = """
SELECT queue, count(*) FROM outlive_job
WHERE number BETWEEN ? AND ? AND ordering_key IS NOT NULL AND +state = 'ready' AND blocked = 0
GROUP BY +queue
"""

FIND_ID = "SELECT queue FROM outlive_job WHERE namespace = ? AND id = ?"
# The queues in which ids of a batch are, and the numbers that they got there.
HOMES = """
SELECT id, queue, number FROM outlive_job
WHERE namespace = ? AND id IN (SELECT value FROM json_each(?))
"""
UNIQUE_OWNER = """
SELECT number, id, state, expires_at_us FROM outlive_job
WHERE namespace = ? AND queue = ? AND unique_key = ?
  AND state IN ('scheduled', 'ready', 'claimed', 'retrying')
"""
REPLACE = """
UPDATE outlive_job
SET state = 'cancelled', ended_at_us = ?, prune_at_us = ? + retention_us, blocked = 0
WHERE number = ? RETURNING ordering_key, retention_us, instance, token
"""
EXPIRE_ONE = REPLACE.replace(
    "'cancelled'",
    "'dead', error = coalesce(error, json_quote(printf("
    "'expired: not claimed within %g s', expires_us / 1e6)))",
)
# An instance would wait for ever for a job that never was.
ANSWER_REFUSED = """
INSERT INTO outlive_letter (instance, id, kind, name, sent_at_us, payload)
SELECT i.number, 'job/' || ?, 'step', ?, ?,
    '{"state":"cancelled","outcome":"the queue rejected the job: draining or duplicate unique key"}'
FROM outlive_instance AS i WHERE i.id = ? AND i.namespace = ? AND i.ended_at_us IS NULL
ON CONFLICT (instance, id) DO NOTHING
"""
REMOVE = "DELETE FROM outlive_job WHERE number = ?"

# The first live job of each (queue, key) of a JSON list may go on, unless another one has the turn:
# one that was retried stands before those that came after it, and yet behind the one that runs.
UNBLOCK = """
UPDATE outlive_job SET blocked = 0
WHERE blocked = 1 AND number IN (
    SELECT (
        SELECT o.number FROM outlive_job AS o
        WHERE o.namespace = ? AND o.queue = json_extract(j.value, '$[0]')
          AND o.ordering_key = json_extract(j.value, '$[1]')
          AND o.state IN ('scheduled', 'ready', 'claimed', 'retrying')
        ORDER BY o.blocked, o.number LIMIT 1
    ) FROM json_each(?) AS j
)
RETURNING queue, state, due_at_us
"""

# What a claim must know of a queue before it takes anything: its settings, when the next job comes
# due, when the next one expires anywhere, and whether the queue has a suspect.
LOOK = """
SELECT
    (SELECT d.due_at_us FROM outlive_job AS d
     WHERE d.namespace = ? AND d.queue = ?
       AND d.state IN ('scheduled', 'retrying') AND d.blocked = 0
     ORDER BY d.due_at_us LIMIT 1),
    (SELECT e.expires_at_us FROM outlive_job AS e
     WHERE e.namespace = ? AND e.expires_at_us IS NOT NULL
       AND e.state IN ('scheduled', 'ready', 'retrying')
     ORDER BY e.expires_at_us LIMIT 1),
    EXISTS (
        SELECT 1 FROM outlive_job AS s INDEXED BY outlive_job_suspect
        WHERE s.namespace = ? AND s.queue = ?
          AND s.state = 'ready' AND s.blocked = 0 AND s.losses >= 2
    ),
    q.mode, q.concurrency, q.rate, q.rate_period_us
FROM (SELECT 1) LEFT JOIN outlive_queue AS q ON q.namespace = ? AND q.name = ?
"""

# Numbers follow the due times, not the order of enqueueing.
DUE = """
SELECT number FROM outlive_job INDEXED BY outlive_job_due
WHERE namespace = ? AND queue = ? AND state IN ('scheduled', 'retrying') AND blocked = 0
  AND due_at_us <= ?
ORDER BY due_at_us LIMIT ?
"""
PROMOTE = "UPDATE outlive_job SET state = 'ready', seq = ? WHERE number = ?"

COUNT_CLAIMED = """
SELECT count(*) FROM (
    SELECT 1 FROM outlive_job WHERE namespace = ? AND queue = ? AND state = 'claimed' LIMIT ?
)
"""

# The window of a rate: claims in it and the oldest of them. What lies ahead was written before the
# clock was set back, and counts no more.
RATE_WINDOW = """
SELECT coalesce(sum(claims), 0), min(at_us) FROM outlive_queue_claims
WHERE namespace = ? AND queue = ? AND at_us > ? AND at_us <= ? AND claims > 0
"""
RATE_FORGET = """
DELETE FROM outlive_queue_claims
WHERE namespace = ? AND queue = ? AND (at_us <= ? OR at_us > ?)
"""
RATE_COUNT = """
INSERT INTO outlive_queue_claims (namespace, queue, at_us, claims) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET claims = claims + excluded.claims
"""

# A claim of which nothing was begun; its window has the very instant of the claim.
RATE_UNCOUNT = """
UPDATE outlive_queue_claims SET claims = claims - 1
WHERE namespace = ? AND queue = ? AND at_us = ? AND claims > 0
"""

# What can be claimed from a queue now, in the order in which it is; suspects (``SUSPECT_LOSSES``)
# apart, whose number is written out for the sake of their index.
_NEXT = """FROM outlive_job INDEXED BY outlive_job_ready
    WHERE namespace = ? AND queue = ? AND state = 'ready' AND blocked = 0
      AND losses < 2 AND (expires_at_us IS NULL OR expires_at_us > ?) {unless}
    ORDER BY priority DESC, seq LIMIT ?"""

# Nothing must be moved first, and no limit holds: nothing has come due or expired, and nobody set
# anything for the queue. SQLite asks each of these once, not for each job.
_PLAIN = """
      AND NOT EXISTS (SELECT 1 FROM outlive_queue WHERE namespace = ? AND name = ?)
      AND NOT EXISTS (
          SELECT 1 FROM outlive_job AS d
          WHERE d.namespace = ? AND d.queue = ? AND d.due_at_us <= ?
            AND d.state IN ('scheduled', 'retrying') AND d.blocked = 0
      )
      AND NOT EXISTS (
          SELECT 1 FROM outlive_job AS e
          WHERE e.namespace = ? AND e.expires_at_us IS NOT NULL AND e.expires_at_us <= ?
            AND e.state IN ('scheduled', 'ready', 'retrying')
      )
      AND NOT EXISTS (
          SELECT 1 FROM outlive_job AS s INDEXED BY outlive_job_suspect
          WHERE s.namespace = ? AND s.queue = ?
            AND s.state = 'ready' AND s.blocked = 0 AND s.losses >= 2
      )"""

# The fields of ``ClaimedJob``, in their order.
_COLUMNS = """id, queue, token, payload, attempts, losses, max_attempts, retry, priority,
    headers, enqueued_at_us, unique_key, ordering_key"""

# Jobs are read first and marked as claimed by a second statement, under the same write lock:
# RETURNING would keep each of them in a table of its own meanwhile, and forget their order. The
# number comes last, behind what becomes a ``ClaimedJob``.
_READ = f"SELECT {_COLUMNS.replace('token', 'token + 1')}, number {_NEXT}"
READ_NEXT = _READ.format(unless="")
READ_PLAIN = _READ.format(unless=_PLAIN)
READ_SUSPECTS = (
    READ_NEXT.replace("outlive_job_ready", "outlive_job_suspect")
    .replace("losses < 2", "losses >= 2")
    .replace("priority DESC", "losses")
)

_TAKE = """
UPDATE outlive_job
SET state = 'claimed', token = token + 1, session = ?, host = ?, worker = ?, request = ?,
    claimed_at_us = ?, claim_ended = NULL, max_losses = coalesce(?, max_losses)
WHERE {which}
"""
# Takes the same jobs as were read just before: a single one by its number, and many by looking for
# them again, which costs less than handing their numbers over.
TAKE_NEXT = _TAKE.format(which=f"number IN (SELECT number {_NEXT.format(unless='')})")
TAKE_ONE = _TAKE.format(which="number = ?")
TAKE_TARGET = f"{TAKE_ONE}RETURNING {_COLUMNS}"

TARGET = """
SELECT number, queue, state, blocked, due_at_us, expires_at_us FROM outlive_job
WHERE namespace = ? AND id = ?
"""

_BEFORE = """
SELECT {columns} FROM outlive_job
WHERE namespace = ? AND state = 'claimed' AND session = ? AND request = ?
ORDER BY priority DESC, seq
"""
CLAIMED_BEFORE = _BEFORE.format(columns=_COLUMNS)

# A claim that is still the newest and has not ended; ``j`` is the caller's list. The plus keeps
# SQLite from walking all claims: each member is looked up by its id.
_HELD = """b.namespace = ? AND b.id = json_extract(j.value, '$[0]')
  AND b.token = json_extract(j.value, '$[1]') AND +b.state = 'claimed'"""
_SETTLE = """
UPDATE outlive_job AS b SET {what} FROM json_each(?) AS j WHERE {held}
RETURNING id, token, state, queue, ordering_key, retention_us, number, worker, claimed_at_us,
    instance
"""

COMPLETE = _SETTLE.format(
    held=_HELD,
    what="""state = 'done', claim_ended = 'done', result = json_extract(j.value, '$[2]'),
    ended_at_us = ?, prune_at_us = ? + b.retention_us""",
)

# A job somebody wants cancelled is not tried again.
FAIL = _SETTLE.format(
    held=_HELD,
    what="""
    state = CASE WHEN b.cancel_reason IS NOT NULL THEN 'cancelled'
        WHEN json_extract(j.value, '$[3]') IS NULL THEN 'dead' ELSE 'retrying' END,
    claim_ended = 'failed', attempts = b.attempts + 1,
    error = coalesce(b.cancel_reason, json_extract(j.value, '$[2]')),
    due_at_us = ? + coalesce(json_extract(j.value, '$[3]'), 0),
    ended_at_us = CASE WHEN b.cancel_reason IS NOT NULL OR json_extract(j.value, '$[3]') IS NULL
        THEN ? END,
    prune_at_us = CASE WHEN b.cancel_reason IS NOT NULL OR json_extract(j.value, '$[3]') IS NULL
        THEN ? + b.retention_us END""",
)

RELEASE = _SETTLE.format(
    held=_HELD,
    what="""
    state = CASE WHEN b.cancel_reason IS NOT NULL THEN 'cancelled'
        WHEN json_extract(j.value, '$[2]') > 0 THEN 'scheduled' ELSE 'ready' END,
    claim_ended = 'released', error = coalesce(b.cancel_reason, b.error),
    due_at_us = CASE WHEN json_extract(j.value, '$[2]') > 0
        THEN ? + json_extract(j.value, '$[2]') ELSE b.due_at_us END,
    ended_at_us = CASE WHEN b.cancel_reason IS NOT NULL THEN ? END,
    prune_at_us = CASE WHEN b.cancel_reason IS NOT NULL THEN ? + b.retention_us END""",
)

# Claims that stand, and whether they are to be cancelled; written only where there is progress.
_STANDING = """
SELECT b.id, b.token, b.cancel_reason IS NOT NULL
FROM json_each(?) AS j JOIN outlive_job AS b ON {held}
"""
HELD = _STANDING.format(held=_HELD)
_TELL = """
UPDATE outlive_job AS b SET progress = json_extract(j.value, '$[2]') FROM json_each(?) AS j
WHERE {held} AND json_extract(j.value, '$[2]') IS NOT NULL
"""
PROGRESS = _TELL.format(held=_HELD)

# How the newest claim of each job of the list ended, for callers who ask again.
ENDED_AS = """
SELECT b.id, b.token, b.claim_ended FROM json_each(?) AS j JOIN outlive_job AS b
ON b.namespace = ? AND b.id = json_extract(j.value, '$[0]')
WHERE b.state <> 'claimed'
"""

REMOVE_MANY = "DELETE FROM outlive_job WHERE number IN (SELECT value FROM json_each(?))"

ADD_ATTEMPT = """
INSERT INTO outlive_job_attempt
    (job, token, outcome, worker, claimed_at_us, ended_at_us, error)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
PRUNE_ATTEMPTS = """
DELETE FROM outlive_job_attempt WHERE job = ? AND entry <= (
    SELECT entry FROM outlive_job_attempt WHERE job = ? ORDER BY entry DESC LIMIT 1 OFFSET ?
)
"""
