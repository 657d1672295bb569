"""Who waits for jobs or instances, and who is rung when there are some.

Owns the notes of waiting hosts. A note is taken in the transaction that makes something claimable,
and its host is rung after COMMIT. A note is a hint: losing one costs latency, never work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from outlive.drivers.sqlite.statements import Operation, Statement, as_json
from outlive.drivers.sqlite.transaction import Bell, Turn
from outlive.names import HostId

# The note of a place that ends last, and the oldest ones, if the place gives something. A host
# whose time to wait is over is not rung, and one that was called already need not be.
_CHOSEN = """
    SELECT w.note FROM {table} AS w
    WHERE w.namespace = ? AND w.{place} = ? AND w.until_at_us > ? AND w.called = 0
      AND {gives}
    ORDER BY w.note <> (
        SELECT note FROM {table} WHERE namespace = ? AND {place} = ? AND called = 0
        ORDER BY until_at_us DESC, note DESC LIMIT 1
    ), w.note LIMIT ?
"""
_TAKE = "DELETE FROM {table} WHERE note IN ({chosen}) RETURNING host"
_CALL = "UPDATE {table} SET called = ? WHERE note IN ({chosen})"

# A host that is noted already keeps its place, and may be called anew. For a JSON list of places;
# without its WHERE the clause behind it would be taken for a part of the join.
_LEAVE = """
INSERT INTO {table} (namespace, {place}, host, until_at_us)
SELECT ?, j.value, ?, ? FROM json_each(?) AS j WHERE true
ON CONFLICT (namespace, {place}, host) DO UPDATE
SET until_at_us = max(until_at_us, excluded.until_at_us), called = 0
"""
_FORGET_OLD = """
DELETE FROM {table}
WHERE namespace = ? AND {place} IN (SELECT value FROM json_each(?)) AND until_at_us <= ?
"""


class Notes(NamedTuple):
    """One kind of notes: what its hosts hear, and the statements."""

    topic: str
    take: str
    call: str
    leave: str
    forget_old: str


def _notes(topic: str, table: str, place: str, gives: str) -> Notes:
    chosen = _CHOSEN.format(table=table, place=place, gives=gives)
    return Notes(
        topic,
        _TAKE.format(table=table, chosen=chosen),
        _CALL.format(table=table, chosen=chosen),
        _LEAVE.format(table=table, place=place),
        _FORGET_OLD.format(table=table, place=place),
    )


# Queues, by name.
FOR_JOBS = _notes(
    "work/",
    "outlive_job_waiter",
    "queue",
    """NOT EXISTS (
          SELECT 1 FROM outlive_queue AS q
          WHERE q.namespace = w.namespace AND q.name = w.queue AND q.mode = 'paused'
      )""",
)

# Definitions: a kind and a name, with a slash between them.
FOR_INSTANCES = _notes("instances/", "outlive_instance_waiter", "definition", "1")


class Bells:
    """The notes of one kind in one namespace; ``host`` is whoever asks through this driver."""

    def __init__(self, notes: Notes, namespace: str, host: HostId) -> None:
        self._notes = notes
        self._namespace = namespace
        self._host = host

    def ring(self, turn: Turn, fresh: Mapping[str, int]) -> None:
        """Ring for what became claimable: how much there is at each place.

        One host more than that: the first may be dead, or take less than it wanted. Hosts that died
        leave old notes behind, and may be all of the first; so one is the host that asked last.
        """
        for place, count in fresh.items():
            at = (self._namespace, place)
            values = (*at, turn.wall_us, *at, count + 1)
            for (host,) in turn.cursor.execute(self._notes.take, values).fetchall():
                turn.freed.append(Bell(HostId(host), self._notes.topic + place))

    def call(self, fresh: Mapping[str, int], mark: int, now_us: int) -> Operation[None]:
        """Do the same inside a transaction of the user's, after which nobody can ring.

        The notes stay and say so; their hosts find them when they look at the file. ``mark`` tells
        one call from the next, and is not 0.
        """
        for place, count in fresh.items():
            at = (self._namespace, place)
            values = (mark, *at, now_us, *at, count + 1)
            yield Statement(self._notes.call, values)

    def leave(self, turn: Turn, places: Iterable[str], wait_us: int) -> None:
        """Note that this host waits for what comes to ``places``."""
        now_us, listed = turn.wall_us, as_json(list(places))
        turn.cursor.execute(self._notes.forget_old, (self._namespace, listed, now_us))
        values = (self._namespace, self._host, now_us + wait_us, listed)
        turn.cursor.execute(self._notes.leave, values)
