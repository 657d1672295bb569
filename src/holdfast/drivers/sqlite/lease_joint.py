"""Acquiring and releasing for many callers in one statement.

Owns the form in which keys and owners go into such a statement, and how its rows find back to
their callers. It does only what is plain: refusals, waiters and semaphores are left to be done one
by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.drivers.sqlite import lease_sql as sql
from holdfast.drivers.sqlite.joint import JOINT_LEAST, NOT_DONE, NotDone
from holdfast.drivers.sqlite.transaction import Turn
from holdfast.model.lease import AcquireRequest, Grant

_encode = msgspec.json.Encoder().encode


class LeaseJoint:
    """The statements of one namespace that take many leases at once."""

    def __init__(
        self, namespace: str, domain: str, prune: Callable[[Turn, str, int], None]
    ) -> None:
        self._namespace = namespace
        self._domain = domain
        self._prune = prune

    def acquire(self, turn: Turn, requests: Sequence[AcquireRequest]) -> Sequence[Grant | NotDone]:
        """Grant what is free. Those who ask with the same ttl and metadata share a statement."""
        alike: dict[tuple[str, int, str], dict[str, AcquireRequest]] = {}
        joined: dict[str, AcquireRequest] = {}
        for request in requests:
            # A row finds its caller by its owner, so that each owner joins once.
            if request.limit == 1 and request.waiter is None and request.owner not in joined:
                joined[request.owner] = request
                signature = (request.host, request.ttl_us, request.metadata)
                alike.setdefault(signature, {})[request.owner] = request
        grants: dict[str, Grant] = {}
        for members in alike.values():
            if len(members) >= JOINT_LEAST:
                self._grant(turn, members, grants)
        return [
            grants.get(request.owner, NOT_DONE)
            if joined.get(request.owner) is request
            else NOT_DONE
            for request in requests
        ]

    def _grant(
        self, turn: Turn, members: dict[str, AcquireRequest], grants: dict[str, Grant]
    ) -> None:
        first = next(iter(members.values()))
        ttl_us, now, wall = first.ttl_us, turn.now_us, turn.wall_us
        keys = {owner: request.key for owner, request in members.items()}
        rows = turn.cursor.execute(
            sql.ACQUIRE_MANY,
            (
                *(self._namespace, first.host, self._domain, now + ttl_us, now),
                *(ttl_us, wall, first.metadata, _encode(keys).decode()),
            ),
        ).fetchall()
        for owner, token, version, state, previous, endings in rows:
            request = members[owner]
            key = request.key
            grants[owner] = Grant(key, 0, request.owner, token, version, ttl_us, state, previous)
            if previous is not None and endings % sql.PRUNE_EVERY == 0:
                self._prune(turn, key, 0)

    def release(self, turn: Turn, grants: Sequence[Grant]) -> Sequence[NotDone | None]:
        """Give up what is still owned."""
        # A row finds its caller by key, slot and token; a second release of one grant is refused.
        places: dict[tuple[str, int, int], int] = {}
        given: list[tuple[str, int, str, int]] = []
        for place, grant in enumerate(grants):
            if places.setdefault((grant.key, grant.slot, grant.token), place) == place:
                given.append((grant.key, grant.slot, grant.owner, grant.token))
        rows = turn.cursor.execute(
            sql.RELEASE_MANY,
            (turn.now_us, turn.wall_us, self._namespace, _encode(given).decode()),
        ).fetchall()
        results: list[NotDone | None] = [NOT_DONE] * len(grants)
        for key, slot, token, awaited, endings in rows:
            results[places[key, slot, token]] = None
            if awaited:
                turn.freed.append(key)
            if endings % sql.PRUNE_EVERY == 0:
                self._prune(turn, key, slot)
        return results
