"""What a host that waits would find if it asked: the fallback behind the doorbells.

Owns the questions that are asked when the file has changed. What was added in a transaction of the
user's rings nobody, and what comes due does not even change the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from outlive.clock import Clock, microseconds
from outlive.drivers.sqlite.lease_reader import LeaseReader
from outlive.names import HostId

# Hosts are told of what came due up to so many; one machine has fewer that wait.
_DUE_MAX = 100

# Places this host is noted for: for what it was called, how many hosts were noted before it, how
# much has come due, and when the next does.
_LOOK = """
SELECT w.{place}, w.called,
    (SELECT count(*) FROM {notes} AS o
     WHERE o.namespace = w.namespace AND o.{place} = w.{place} AND o.until_at_us > ?
       AND o.note < w.note),
    (SELECT count(*) FROM (
        SELECT 1 FROM {table} AS d WHERE {waits} AND d.due_at_us <= ? LIMIT ?
    )),
    (SELECT d.due_at_us FROM {table} AS d WHERE {waits} AND d.due_at_us > ?
     ORDER BY d.due_at_us LIMIT 1)
FROM {notes} AS w
WHERE w.namespace = ? AND w.host = ? AND w.until_at_us > ? AND {gives}
"""


class Question(NamedTuple):
    """What is asked for one kind of notes, and what its hosts hear."""

    topic: str
    look: str


FOR_JOBS = Question(
    "work/",
    _LOOK.format(
        place="queue",
        notes="outlive_job_waiter",
        table="outlive_job",
        waits="""d.namespace = w.namespace AND d.queue = w.queue
          AND d.state IN ('scheduled', 'retrying') AND d.blocked = 0""",
        gives="""NOT EXISTS (
            SELECT 1 FROM outlive_queue AS q
            WHERE q.namespace = w.namespace AND q.name = w.queue AND q.mode = 'paused'
        )""",
    ),
)
FOR_INSTANCES = Question(
    "instances/",
    _LOOK.format(
        place="definition",
        notes="outlive_instance_waiter",
        table="outlive_instance",
        waits="""d.namespace = w.namespace
          AND d.kind = substr(w.definition, 1, instr(w.definition, '/') - 1)
          AND d.name = substr(w.definition, instr(w.definition, '/') + 1)
          AND d.session IS NULL AND d.ended_at_us IS NULL AND d.suspended = 0
          AND d.due_at_us IS NOT NULL""",
        gives="1",
    ),
)


class Waiting:
    """Looks on behalf of one host."""

    def __init__(self, reader: LeaseReader, clock: Clock, namespace: str, host: HostId) -> None:
        self._reader = reader
        self._clock = clock
        self._namespace = namespace
        self._host = host
        # For what this host was last told of a place, by topic.
        self._told: dict[str, int] = {}

    def look(self) -> tuple[Sequence[str], float | None]:
        """The topics that have something for this host, and the seconds until another has."""
        now = microseconds(self._clock.now())
        values = (now, now, _DUE_MAX, now, self._namespace, self._host, now)
        rows = [
            (question.topic + place, *rest)
            for question in (FOR_JOBS, FOR_INSTANCES)
            for place, *rest in self._reader.rows(question.look, values)
        ]
        # Of what came due the oldest notes are told, one more than there is.
        found = [
            topic
            for topic, called, before, due, _ in rows
            if (due and before <= due) or (called and called != self._told.get(topic))
        ]
        self._told = {topic: called for topic, called, *_ in rows}
        later = [next_due for *_, next_due in rows if next_due is not None]
        return found, (min(later) - now) / 1e6 if later else None
