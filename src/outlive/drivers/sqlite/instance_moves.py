"""What is done to instances from outside: by operators, and by those who look after the store.

Owns the moves that no owner makes. Each runs inside one write transaction, in bounded batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from outlive.drivers.sqlite import instance_desk_sql as desk
from outlive.drivers.sqlite import instance_sql as sql
from outlive.drivers.sqlite.bells import Bells
from outlive.drivers.sqlite.instance_mail import InstanceMail
from outlive.drivers.sqlite.sessions import Sessions
from outlive.drivers.sqlite.statements import as_json
from outlive.drivers.sqlite.transaction import Bell, Turn
from outlive.model.instance import (
    FINAL,
    REMOVED_ROWS_MAX,
    InstanceStatus,
    Message,
    Opened,
    ReclaimedInstance,
)
from outlive.names import HostId, InstanceId

# In place of a commit's id; no host gives it to a commit of its own.
_REOPENED = "outlive/reopened"


class _Standing(NamedTuple):
    number: int
    status: str
    suspended: int
    version: int
    host: str | None
    definition: str
    token: int

    @property
    def ended(self) -> bool:
        return self.status in FINAL


class InstanceMoves:
    """The moves of one namespace."""

    def __init__(
        self, mail: InstanceMail, bells: Bells, sessions: Sessions, *, namespace: str
    ) -> None:
        self._mail = mail
        self._bells = bells
        self._sessions = sessions
        self._namespace = namespace

    def terminate(
        self, turn: Turn, argument: tuple[InstanceId, str, Sequence[Message], str | None]
    ) -> Opened:
        """End a live instance at once, taking it from its owner, and those below it."""
        id_, outcome, sends, below = argument
        found = self._standing(turn, id_)
        if found is None:
            return Opened.NOT_FOUND
        if found.ended:
            again = found.status == InstanceStatus.TERMINATED
            return Opened.CHANGED if again else Opened.REFUSED
        turn.savepoint()
        if below is not None:
            self._terminate_below(turn, found.number, below)
        turn.cursor.execute(desk.TERMINATE, (outcome, *_now_thrice(turn), found.number))
        if sends:
            self._mail.put(turn, sends, room=None)
        self._tell_owner(turn, id_, found.host)
        self._mail.tell(turn, {found.number: id_}, ended=[found.number])
        return Opened.CHANGED

    def _terminate_below(self, turn: Turn, number: int, outcome: str) -> None:
        """End those that an instance takes with it, level by level."""
        level = [number]
        while level:
            rows = turn.cursor.execute(desk.BELOW, (as_json(level),)).fetchall()
            level = [number for number, _, _ in rows]
            values = [(outcome, *_now_thrice(turn), number) for number in level]
            turn.cursor.executemany(desk.TERMINATE, values)
            for _, id_, host in rows:
                self._tell_owner(turn, id_, host)
            self._mail.tell(turn, {number: id_ for number, id_, _ in rows}, ended=level)

    def suspend(self, turn: Turn, id_: InstanceId) -> Opened:
        """Let a live instance begin nothing new."""
        return self._flag(turn, id_, suspended=True)

    def resume(self, turn: Turn, id_: InstanceId) -> Opened:
        """Let it go on; without an owner it can be claimed at once."""
        return self._flag(turn, id_, suspended=False)

    def _flag(self, turn: Turn, id_: InstanceId, *, suspended: bool) -> Opened:
        found = self._standing(turn, id_)
        if found is None:
            return Opened.NOT_FOUND
        if found.ended:
            return Opened.REFUSED
        if bool(found.suspended) == suspended:
            return Opened.CHANGED
        turn.savepoint()
        if suspended:
            turn.cursor.execute(desk.SUSPEND, (turn.wall_us, found.number))
        else:
            turn.cursor.execute(desk.RESUME, (*_now_thrice(turn), found.number))
            if found.host is None:
                # It may be due, or have letters: whoever looks will see.
                self._bells.ring(turn, {found.definition: 1})
        self._tell_owner(turn, id_, found.host)
        return Opened.CHANGED

    def reopen(self, turn: Turn, argument: tuple[InstanceId, int, str]) -> Opened:
        """Let an ended instance live again, with one more history row."""
        id_, version, events = argument
        found = self._standing(turn, id_)
        if found is None:
            return Opened.NOT_FOUND
        if not found.ended or version != found.version + 1:
            # Asked again after a lost reply, it is as was wished.
            rows = turn.cursor.execute(desk.REOPENED, (found.number, version, _REOPENED)).fetchall()
            return Opened.CHANGED if rows == [(events,)] else Opened.REFUSED
        turn.savepoint()
        turn.cursor.execute(desk.REOPEN, (version, *_now_thrice(turn), found.number))
        row = (found.number, version, _REOPENED, found.token, None, turn.wall_us, events)
        turn.cursor.execute(sql.ADD_HISTORY, row)
        self._bells.ring(turn, {found.definition: 1})
        return Opened.CHANGED

    def purge(self, turn: Turn, ids: Sequence[InstanceId]) -> list[Opened]:
        """Forget instances that have ended."""
        values = (as_json(ids), self._namespace)
        rows = turn.cursor.execute(desk.ENDED, values).fetchall()
        gone = [number for _, number, ended in rows if ended]
        if gone:
            turn.cursor.execute(desk.REMOVE, (as_json(gone),))
        standing = {id_: Opened.CHANGED if ended else Opened.REFUSED for id_, _, ended in rows}
        return [standing.get(id_, Opened.NOT_FOUND) for id_ in ids]

    def tend(self, turn: Turn, limit: int) -> int:
        """Remove ended instances whose retention passed."""
        values = (self._namespace, turn.wall_us, max(0, limit), REMOVED_ROWS_MAX)
        return turn.cursor.execute(desk.PRUNE, values).rowcount

    def reclaim(self, turn: Turn, limit: int) -> list[ReclaimedInstance]:
        """Take instances from sessions that are gone."""
        cursor = turn.cursor
        owners = cursor.execute(desk.OWNERS, (self._namespace,)).fetchall()
        gone = self._sessions.gone([session for (session,) in owners])
        if not gone:
            return []
        turn.savepoint()
        values = (*_now_thrice(turn), self._namespace, as_json(gone), max(0, limit))
        rows: list[tuple[Any, ...]] = cursor.execute(desk.RECLAIM, values).fetchall()
        fresh = Counter(f"{kind}/{name}" for _, kind, name, suspended in rows if not suspended)
        self._bells.ring(turn, fresh)
        return [ReclaimedInstance(InstanceId(id_), kind, name) for id_, kind, name, _ in rows]

    def _standing(self, turn: Turn, id_: InstanceId) -> _Standing | None:
        rows = turn.cursor.execute(desk.STANDING, (id_, self._namespace)).fetchall()
        return _Standing(*rows[0]) if rows else None

    def _tell_owner(self, turn: Turn, id_: str, host: str | None) -> None:
        if host is not None:
            turn.freed.append(Bell(HostId(host), f"operate/{id_}"))


def _now_thrice(turn: Turn) -> tuple[int, int, int]:
    return turn.wall_us, turn.wall_us, turn.wall_us
