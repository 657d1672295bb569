"""Whether the session of a claimant lives, as the sidecar file says.

Owns the driver's second connection to the sidecar, which only reads. It is asked while the write
lock of the main file is held: a peer first ends a session in the sidecar, and takes its jobs under
that lock afterwards, so that one of both sees the other. It must never keep a snapshot open between
two questions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from outlive.drivers.sqlite.statements import as_json
from outlive.errors import Fenced, LeaseExpired
from outlive.names import HostId
from outlive.process import current

_FIND = """
SELECT ended_at_us, domain, expires_us FROM outlive_session WHERE namespace = ? AND id = ?
"""

# Of a JSON list of sessions, those that have ended or were never heard of. One that ran out and
# was not reaped may still be renewed by nobody, but its jobs are not taken before that.
_GONE = """
SELECT j.value FROM json_each(?) AS j
WHERE NOT EXISTS (
    SELECT 1 FROM outlive_session AS s
    WHERE s.namespace = ? AND s.id = j.value AND s.ended_at_us IS NULL
)
"""


class Sessions:
    """Reads sessions of one namespace. Used by the writer only, so by one thread at a time."""

    def __init__(self, connection: sqlite3.Connection, *, namespace: str, domain: str) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._namespace = namespace
        self._domain = domain
        self._pid = current.pid

    def check(self, session: HostId, now_us: int) -> None:
        """Refuse a session that does not live.

        One of another clock domain lives until somebody ends it: its time cannot be compared.

        Raises:
            LeaseExpired: Its time had run out.
            Fenced: It has ended, or never was.
        """
        # All rows are fetched: a statement that is not at its end keeps its snapshot open, and
        # would not see what is written next.
        rows = self._cursor.execute(_FIND, (self._namespace, session)).fetchall()
        if not rows or rows[0][0] is not None:
            raise Fenced(session, message=f"the session {session} was closed or reaped")
        _, domain, expires_us = rows[0]
        if domain == self._domain and expires_us <= now_us:
            raise LeaseExpired(session, f"the session {session} expired before it was renewed")

    def gone(self, sessions: Sequence[str]) -> list[str]:
        """Those of ``sessions`` that have ended or are unknown."""
        if not sessions:
            return []
        values = (as_json(sessions), self._namespace)
        return [session for (session,) in self._cursor.execute(_GONE, values).fetchall()]

    def close(self) -> None:
        """Close the connection, unless it is another process's. Repeatable."""
        if current.pid == self._pid:
            self._connection.close()
