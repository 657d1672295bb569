"""What owners and operators do to a grant: renew, release, break.

Owns those three. A renewal is a keep-alive of the grant's lease of etcd, with the live key read
beside it: a lease of etcd may outlast the grant that a break took off it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from outlive.drivers.etcd import changes
from outlive.drivers.etcd.connections import Connections
from outlive.drivers.etcd.folder import Folder, Live, Slot
from outlive.drivers.etcd.folders import Folders
from outlive.drivers.etcd.operations import CreatedAt, Put, Read, Stored, Term
from outlive.drivers.etcd.records import microseconds, record_of
from outlive.drivers.etcd.terms import Terms
from outlive.drivers.etcd.translate import LeaseGone
from outlive.errors import (
    Fenced,
    LeaseExpired,
    LeaseNotFound,
    OutcomeUnknown,
    StoreUnavailable,
)
from outlive.model.lease import Ended, Grant, LeaseRecord
from outlive.ports.driver import DriverContext

# How many grants a driver remembers; a forgotten one costs its next renewal a round trip.
_KNOWN_MAX = 10_000

_Identity = tuple[str, int, int]


@dataclass(slots=True)
class _Known:
    """What never changes of a grant, but for its lease of etcd and the versions given out."""

    live: Live
    ttl_s: int
    version: int


class Owners:
    """Grants of one namespace."""

    def __init__(
        self, connections: Connections, folders: Folders, terms: Terms, context: DriverContext
    ) -> None:
        self._connections = connections
        self._folders = folders
        self._names = folders.names
        self._terms = terms
        self._clock = context.clock
        self._known: OrderedDict[_Identity, _Known] = OrderedDict()

    def remember(self, grant: Grant, live: Live) -> None:
        """Note where a grant lives, so that its renewal need not look."""
        self._note(grant, live, grant.ttl_us // 1_000_000, grant.version)

    def _note(self, grant: Grant, live: Live, ttl_s: int, version: int) -> _Known:
        identity = (grant.key, grant.slot, grant.token)
        known = self._known[identity] = _Known(live, ttl_s, version)
        self._known.move_to_end(identity)
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        return known

    # -- renewing -------------------------------------------------------------------------------

    async def renew(self, grant: Grant, ttl_us: int, *, state: str | None) -> Grant:
        """Extend the grant; see the port."""
        ttl_s = self._terms.seconds(ttl_us)
        known = self._known.get((grant.key, grant.slot, grant.token))
        if known is not None and known.live.owner == grant.owner and known.ttl_s == ttl_s:
            renewed = await self._keep(grant, known, state)
            if renewed is not None:
                return renewed
        async for _ in self._folders.tries(grant.key):
            folder = await self._folders.read(grant.key)
            slot, live = await self._lasting(folder, grant)
            if slot.value.ttl_us == ttl_s * 1_000_000:
                version = max(slot.value.version, known.version if known is not None else 0)
                known = self._note(grant, live, ttl_s, version)
                renewed = await self._keep(grant, known, state)
            else:
                renewed = await self._move(grant, folder, slot, live, ttl_s=ttl_s, state=state)
            if renewed is not None:
                return renewed
        raise AssertionError("unreachable")

    async def _keep(self, grant: Grant, known: _Known, state: str | None) -> Grant | None:
        """Keep the lease of etcd alive and see that the grant still hangs on it, both at once.

        ``None`` where it does not, or not on this one: the folder must be read to say why.
        """
        live = known.live
        keeping = asyncio.ensure_future(self._connections.keep_alive(live.lease))
        try:
            shown = await self._look(grant.key, live, state)
        except BaseException:
            keeping.cancel()
            await asyncio.wait({keeping})
            raise
        try:
            ttl_s = await keeping
        except StoreUnavailable as error:
            if state is None:
                raise
            raise OutcomeUnknown(
                f"the state of lease {grant.key!r} may be kept, but the lease was not extended: "
                f"{error}"
            ) from error
        found = shown.get(live.name)
        if ttl_s <= 0 or found is None or (found.created, found.lease) != (live.token, live.lease):
            return None
        known.version = max(known.version, grant.version) + 1
        kept = shown.get(self._names.state(grant.key))
        text = None if kept is None else kept.value.decode()
        return _renewed(grant, known.version, ttl_s, text)

    async def _look(self, key: str, live: Live, state: str | None) -> Mapping[bytes, Stored]:
        """The live key and the state as they are at one revision; ``state`` is kept before that.

        Nothing is kept where the live key is another grant's by now.
        """
        name = self._names.state(key)
        if state is None:
            # One range from the one to the other, with the slots between them: of two answers, one
            # could be from the next owner's time.
            answer = await self._connections.read(Read(live.name, name + b"\0"))
        else:
            answer = await self._connections.transact(
                (CreatedAt(live.name, live.token),),
                (Put(name, state.encode()), Read(live.name), Read(name)),
            )
        return {item.key: item for items in answer.shown for item in items}

    async def _move(
        self,
        grant: Grant,
        folder: Folder,
        slot: Slot,
        live: Live,
        *,
        ttl_s: int,
        state: str | None,
    ) -> Grant | None:
        """Hang the grant on a lease of etcd with another ttl. ``None``: read and try again."""
        term: Term = await self._terms.fresh(ttl_s)
        change = changes.extend(self._names, folder, slot, live, term=term, state=state)
        try:
            committed = await self._folders.commit(grant.key, change)
        except LeaseGone:
            return None
        if not committed.succeeded:
            self._terms.revoke(term.id)
            return None
        self._terms.revoke(live.lease)
        known = self._note(
            grant,
            live._replace(lease=term.id),
            ttl_s,
            max(slot.value.version, grant.version) + 1,
        )
        return _renewed(grant, known.version, term.ttl_s, committed.folder.state)

    async def live_name(self, grant: Grant) -> bytes:
        """The key that lives as long as ``grant``, and whose creation is its token.

        Raises:
            LeaseExpired, Fenced: The grant does not last. Not certain: the key alone decides.
        """
        known = self._known.get((grant.key, grant.slot, grant.token))
        if known is not None and known.live.owner == grant.owner:
            return known.live.name
        _, live = await self._lasting(await self._folders.read(grant.key), grant)
        return live.name

    # -- ending ---------------------------------------------------------------------------------

    async def release(self, grant: Grant) -> None:
        """Give the key up; see the port. Whoever waits sees the live key go."""
        folder = await self._folders.known(grant.key)
        slot = _slot_of(folder, grant)
        if slot is None:
            folder = await self._folders.read(grant.key)
        async for _ in self._folders.tries(grant.key):
            slot = _slot_of(folder, grant)
            if slot is None:
                await self._refuse(grant)
            now_us = microseconds(self._clock.now())
            change = changes.release(self._names, folder, slot, now_us)
            committed = await self._folders.commit(grant.key, change)
            if committed.succeeded:
                self._known.pop((grant.key, grant.slot, grant.token), None)
                for item in committed.deleted:
                    self._terms.give_back(Term(item.lease, slot.value.ttl_us // 1_000_000))
                return
            folder = committed.folder
        raise AssertionError("unreachable")

    async def break_lease(self, key: str, *, reason: str) -> Sequence[LeaseRecord]:
        """End every grant of the key; see the port."""
        async for _ in self._folders.tries(key):
            folder = await self._folders.read(key)
            if folder.limit == 0:
                raise LeaseNotFound(key)
            left = {
                live.slot: await self._connections.seconds_left(live.lease) for live in folder.live
            }
            if not left:
                return []
            now = self._clock.now()
            change = changes.break_all(self._names, folder, now_us=microseconds(now), reason=reason)
            committed = await self._folders.commit(key, change)
            if committed.succeeded:
                for item in committed.deleted:
                    self._terms.revoke(item.lease)
                records = [
                    record_of(folder, folder.slots[number], seconds, now)
                    for number, seconds in left.items()
                ]
                return [record for record in records if record.active]
        raise AssertionError("unreachable")

    # -- refusals -------------------------------------------------------------------------------

    async def _lasting(self, folder: Folder, grant: Grant) -> tuple[Slot, Live]:
        """The slot and the live key of ``grant``, or why there is none."""
        slot = _slot_of(folder, grant)
        if slot is None:
            await self._refuse(grant)
        if slot.live is None:
            raise LeaseExpired(grant.key)
        return slot, slot.live

    async def _refuse(self, grant: Grant) -> NoReturn:
        _, ended = await self._folders.read_history(grant.key)
        for _, entry in ended:
            if entry.token == grant.token and entry.ended is Ended.BROKEN:
                raise Fenced.broken(grant.key, entry.detail)
        raise Fenced(grant.key)


def _renewed(grant: Grant, version: int, ttl_s: int, state: str | None) -> Grant:
    return Grant(
        grant.key,
        grant.slot,
        grant.owner,
        grant.token,
        version,
        ttl_s * 1_000_000,
        state,
        grant.previous_owner,
    )


def _slot_of(folder: Folder, grant: Grant) -> Slot | None:
    """The slot of ``grant``, unless it was ended: tokens are never given out twice."""
    slot = folder.slot(grant.slot)
    if slot is None or slot.token != grant.token or slot.value.owner != grant.owner:
        return None
    return slot
