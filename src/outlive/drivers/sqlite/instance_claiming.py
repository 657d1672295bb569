"""Claiming: which instances a session gets, and giving them back.

Owns the order of claims. Runs inside one write transaction. What sleeps is never looked at: what is
due stands at the beginning of an index, and what has letters is known by its mailbox.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from outlive.drivers.sqlite import instance_sql as sql
from outlive.drivers.sqlite.bells import Bells
from outlive.drivers.sqlite.instance_mail import InstanceMail
from outlive.drivers.sqlite.sessions import Sessions
from outlive.drivers.sqlite.statements import as_json
from outlive.drivers.sqlite.transaction import Turn
from outlive.model.instance import (
    CLAIM_MAX,
    ClaimedInstance,
    ClaimedInstances,
    Handback,
    InstanceClaimRequest,
)
from outlive.names import HostId, InstanceId

_Rows = list[tuple[Any, ...]]


class InstanceClaiming:
    """Claims of one namespace, asked for by one host."""

    def __init__(
        self,
        mail: InstanceMail,
        bells: Bells,
        sessions: Sessions,
        *,
        namespace: str,
        host: HostId,
    ) -> None:
        self._mail = mail
        self._bells = bells
        self._sessions = sessions
        self._namespace = namespace
        self._host = host

    def claim(self, turn: Turn, request: InstanceClaimRequest) -> ClaimedInstances:
        """Claim up to ``request.limit`` instances for a living session."""
        self._sessions.check(request.session, turn.now_us)
        rows: _Rows = []
        if request.again:
            values = (self._namespace, request.session, request.request)
            rows = turn.cursor.execute(sql.CLAIMED_BEFORE, values).fetchall()
        limit = min(request.limit, CLAIM_MAX)
        known = bool(rows)
        new = frozenset[int]()
        if not known and limit > 0:
            rows, new = self._take(turn, request, limit)
        claimed = self._described(turn, rows, new)
        values = (self._namespace, request.session, as_json([row[0] for row in rows]))
        letters = tuple(
            InstanceId(id_) for (id_,) in turn.cursor.execute(sql.OWN_MAIL, values).fetchall()
        )
        if known or len(rows) >= request.limit:
            return ClaimedInstances(claimed, turn.wall_us, None, letters)
        return ClaimedInstances(claimed, turn.wall_us, self._wait(turn, request), letters)

    def _take(
        self, turn: Turn, request: InstanceClaimRequest, limit: int
    ) -> tuple[_Rows, frozenset[int]]:
        """Rows that are this session's now, and the numbers of those that nobody had before."""
        names = as_json(request.names)
        values = (names, self._namespace, request.kind, turn.wall_us, limit)
        found = turn.cursor.execute(sql.CLAIMABLE, (*values, *values)).fetchall()
        if not found:
            return [], frozenset()
        turn.savepoint()
        order = {number: place for place, (number, _) in enumerate(found)}
        who = (request.session, self._host, request.worker, request.request, turn.wall_us)
        rows = turn.cursor.execute(sql.TAKE, (*who, turn.wall_us, as_json(list(order)))).fetchall()
        rows.sort(key=lambda row: order[row[0]])
        return rows, frozenset([number for number, token in found if not token])

    def _described(
        self, turn: Turn, rows: _Rows, new: frozenset[int]
    ) -> tuple[ClaimedInstance, ...]:
        if not rows:
            return ()
        numbers = as_json([row[0] for row in rows])
        with_mail = [n for (n,) in turn.cursor.execute(sql.HAVE_MAIL, (numbers,)).fetchall()]
        letters = self._mail.first_letters(turn, with_mail)
        return tuple(
            [
                ClaimedInstance(*row[1:], letters=letters.get(row[0], ()), first=row[0] in new)
                for row in rows
            ]
        )

    def _wait(self, turn: Turn, request: InstanceClaimRequest) -> float | None:
        """Leave a note for what comes later, and say when the next one is due."""
        if request.wait_us > 0:
            turn.savepoint()
            places = [f"{request.kind}/{name}" for name in request.names]
            self._bells.leave(turn, places, request.wait_us)
        values = (self._namespace, request.kind, as_json(request.names))
        ((due,),) = turn.cursor.execute(sql.NEXT_DUE, values).fetchall()
        return None if due is None else max(0, due - turn.wall_us) / 1e6

    def release(self, turn: Turn, batches: Sequence[Sequence[Handback]]) -> list[list[bool]]:
        """Give instances of many callers up, and ring for those that others can have now."""
        turn.savepoint()
        handbacks = [item for batch in batches for item in batch]
        asked = [(item.id, item.token, item.due) for item in handbacks]
        values = (*(turn.wall_us,) * 3, as_json(asked), self._namespace)
        rows = turn.cursor.execute(sql.RELEASE, values).fetchall()
        if rows:
            self._ring(turn, rows)
        given = {(row[0], row[4]) for row in rows}
        answers: list[list[bool]] = []
        for batch in batches:
            # Of two who give up the same claim, one did.
            answers.append([(item.id, item.token) in given for item in batch])
            given.difference_update([(item.id, item.token) for item in batch])
        return answers

    def _ring(self, turn: Turn, rows: _Rows) -> None:
        numbers = as_json([number for _, number, suspended, *_ in rows if not suspended])
        with_mail = turn.cursor.execute(sql.HAVE_MAIL, (numbers,)).fetchall()
        claimable = {number for (number,) in with_mail}
        claimable |= {
            number
            for _, number, suspended, due, _ in rows
            if not suspended and due is not None and due <= turn.wall_us
        }
        if claimable:
            values = (as_json(list(claimable)),)
            found = turn.cursor.execute(sql.DEFINITIONS, values).fetchall()
            self._bells.ring(turn, Counter(definition for _, definition in found))
