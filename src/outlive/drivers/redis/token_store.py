"""Bearer tokens in Redis: one script, which reads the server's clock.

Owns the names of the keys and what the answers mean. All keys share their namespace's hash tag.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from outlive.drivers.redis.link import Link
from outlive.drivers.redis.records import instant_of
from outlive.drivers.redis.scripts import load_scripts
from outlive.model.bearer import (
    ACTS_MAX,
    ENDED_KEPT_US,
    PAGE_MAX,
    Act,
    BearerRecord,
    NewBearer,
    Scope,
)
from outlive.names import BearerId


class RedisTokenStore:
    """The ``TokenStore`` of one namespace in one database."""

    def __init__(self, link: Link, keys: str) -> None:
        self._link = link
        self._script = load_scripts().tokens
        self._acts = f"{keys}acts"
        self._keys = (f"{keys}bearers", f"{keys}bearer-digests", self._acts, f"{keys}bearer:")

    async def create(self, bearer: NewBearer, *, actor: str) -> None:
        """Keep a token; see the port."""
        await self._run(
            "create",
            bearer.id,
            bearer.name,
            bearer.digest,
            " ".join(bearer.scopes),
            "" if bearer.ttl_us is None else bearer.ttl_us,
            actor,
            ENDED_KEPT_US,
            ACTS_MAX,
        )

    async def find(self, digest: str) -> BearerRecord | None:
        """The token with this digest; see the port."""
        rows = await self._run("find", digest)
        return _record_of(rows[0]) if rows else None

    async def list(self, *, limit: int) -> Sequence[BearerRecord]:
        """Tokens, newest first; see the port."""
        # An end of -1 would mean the last of all.
        most = min(limit, PAGE_MAX)
        return [] if most < 1 else [_record_of(row) for row in await self._run("list", most)]

    async def revoke(self, id: BearerId, *, actor: str) -> BearerRecord | None:  # noqa: A002
        """End a token; see the port."""
        rows = await self._run("revoke", id, actor, ACTS_MAX)
        return _record_of(rows[0]) if rows else None

    async def record(self, act: Act) -> None:
        """Add to the log; see the port."""
        await self._run("record", act.actor, act.action, act.subject, ACTS_MAX)

    async def acts(self, *, limit: int) -> Sequence[Act]:
        """The log, newest first; see the port."""
        most = min(limit, PAGE_MAX)
        if most < 1:
            return []
        found = await self._link.call("LRANGE", self._acts, 0, most - 1, write=False)
        return [_act_of(text) for text in found]

    async def _run(self, op: str, *args: Any) -> Any:
        return await self._link.run(self._script, len(self._keys), *self._keys, op, *args)


def _act_of(text: str) -> Act:
    at, actor, action, subject = json.loads(text)
    return Act(at=instant_of(at), actor=actor, action=action, subject=subject)


def _record_of(row: list[Any]) -> BearerRecord:
    bearer, name, digest, scopes, created, expires, revoked, active = row
    return BearerRecord(
        id=BearerId(bearer),
        name=name,
        digest=digest,
        scopes=tuple(Scope(scope) for scope in scopes.split()),
        created_at=instant_of(created),
        expires_at=None if expires is None else instant_of(expires),
        revoked_at=None if revoked is None else instant_of(revoked),
        active=bool(active),
    )
