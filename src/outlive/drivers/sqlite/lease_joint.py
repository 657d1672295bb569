"""Acquiring and releasing for many callers in one statement.

Owns the form in which keys and owners go into such a statement, and how its rows find back to
their callers. It does only what is plain: refusals, waiters and semaphores are left to be done one
by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outlive.drivers.sqlite import lease_sql as sql
from outlive.drivers.sqlite.joint import JOINT_LEAST, NOT_DONE, NotDone
from outlive.drivers.sqlite.lease_history import LeaseHistory
from outlive.drivers.sqlite.transaction import Turn
from outlive.model.lease import AcquireRequest, Grant

_encode = msgspec.json.Encoder().encode


class _SomeRefused(Exception):
    """Fewer grants were given up than there were; which is not known. Never leaves the driver."""


class LeaseJoint:
    """The statements of one namespace that take many leases at once."""

    def __init__(self, namespace: str, domain: str, history: LeaseHistory) -> None:
        self._namespace = namespace
        self._domain = domain
        self._history = history

    def acquire(self, turn: Turn, requests: Sequence[AcquireRequest]) -> Sequence[Grant | NotDone]:
        """Grant what is free. Those who ask with the same ttl and metadata share a statement."""
        # A row finds its caller by its owner, so that each owner joins once.
        places: dict[str, int] = {}
        alike: dict[tuple[str, int, str], dict[str, str]] = {}
        for place, request in enumerate(requests):
            owner = request.owner
            if (
                request.limit == 1
                and request.waiter is None
                and places.setdefault(owner, place) == place
            ):
                signature = (request.host, request.ttl_us, request.metadata)
                alike.setdefault(signature, {})[owner] = request.key
        results: list[Grant | NotDone] = [NOT_DONE] * len(requests)
        for (host, ttl_us, metadata), keys in alike.items():
            if len(keys) < JOINT_LEAST:
                continue
            now, wall = turn.now_us, turn.wall_us
            values = (
                *(self._namespace, host, self._domain, now + ttl_us, now),
                *(ttl_us, wall, wall, metadata, _encode(keys).decode()),
            )
            rows = turn.cursor.execute(sql.ACQUIRE_MANY, values).fetchall()
            for owner, token, version, state, previous, endings in rows:
                place = places[owner]
                key = keys[owner]
                results[place] = Grant(key, 0, owner, token, version, ttl_us, state, previous)
                self._history.look(turn, key, 0, endings)
        return results

    def release(self, turn: Turn, grants: Sequence[Grant]) -> Sequence[None]:
        """Give up all of them.

        Raises:
            _SomeRefused: One is owned by others by now, or was given twice. All of it is to be
                undone.
        """
        given = _encode(
            [(grant.key, grant.slot, grant.owner, grant.token) for grant in grants]
        ).decode()
        cursor, namespace = turn.cursor, self._namespace
        cursor.execute(sql.RELEASE_MANY, (given, turn.now_us, turn.wall_us, namespace))
        released, awaited = cursor.execute(sql.RELEASED_MANY, (namespace,)).fetchone()
        if released != len(grants):
            raise _SomeRefused
        if awaited:
            keys = cursor.execute(sql.AWAITED, (namespace, given)).fetchall()
            turn.freed += [key for (key,) in keys]
        return [None] * released
