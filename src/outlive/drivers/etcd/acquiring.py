"""Acquiring: from a request to a grant or a refusal, and places in the queue.

Owns ``acquire`` and ``leave``. Every attempt is one transaction on the folder it was decided from;
a refusal that queues is shown the folder *after* its place was made, so that no release falls in
between.
"""

from __future__ import annotations

import asyncio

from outlive.drivers.etcd import changes
from outlive.drivers.etcd.changes import SLOTS_MAX, Change
from outlive.drivers.etcd.connections import Connections
from outlive.drivers.etcd.decide import Take, Wait, decide
from outlive.drivers.etcd.folder import Folder, Place
from outlive.drivers.etcd.folders import Committed, Folders
from outlive.drivers.etcd.interest import Interest
from outlive.drivers.etcd.operations import CreatedAt, Delete, Read, Term
from outlive.drivers.etcd.owning import Owners
from outlive.drivers.etcd.records import microseconds, remaining_s
from outlive.drivers.etcd.terms import Terms
from outlive.drivers.etcd.translate import LeaseGone
from outlive.errors import OutcomeUnknown, StoreError, StoreUnavailable, UnsupportedByDriver
from outlive.model.lease import AcquireRequest, Grant, Held
from outlive.names import Owner, Token, WaiterId
from outlive.ports.driver import DriverContext

# Every attempt reads all places of its key. More of them would make that the main cost; a crowd of
# this size is served better by a queue of work.
PLACES_MAX = 5_000

# What is told when an owner has just run out and its key is about to go: ask again soon.
_SOON_S = 0.05


class Acquirer:
    """Acquires keys of one namespace; ``waiting`` is told who waits here for which key."""

    def __init__(
        self,
        connections: Connections,
        folders: Folders,
        terms: Terms,
        owners: Owners,
        context: DriverContext,
        waiting: Interest,
    ) -> None:
        self._connections = connections
        self._folders = folders
        self._names = folders.names
        self._terms = terms
        self._owners = owners
        self._clock = context.clock
        self._waiting = waiting

    async def acquire(self, request: AcquireRequest) -> Grant | Held:
        """Own the key, or learn why not; see the port."""
        if request.limit > SLOTS_MAX:
            raise UnsupportedByDriver(
                f"a semaphore has at most {SLOTS_MAX} slots on etcd, which commits at most 128 "
                f"operations at once; {request.limit} were asked for"
            )
        folder = self._folders.sightings.folder(request.key)
        # A refusal must be true now; a grant from memory proves itself.
        current, queued = folder is None, request.queue_us <= 0
        if folder is None:
            folder = await self._folders.read(request.key)
        async for _ in self._folders.tries(request.key):
            decided = self._decide(folder, request)
            if isinstance(decided, Take):
                taken = await self._take(folder, request, decided)
                if isinstance(taken, Grant):
                    self._waiting.end(request.key, request.owner)
                    return taken
                folder, current = taken, True
            elif not current:
                folder, current = await self._folders.read(request.key), True
            elif not queued:
                folder, queued = await self._queue(folder, request)
            else:
                return await self._held(folder, request, decided)
        raise AssertionError("unreachable")

    def _decide(self, folder: Folder, request: AcquireRequest) -> Take | Wait:
        now_us = round(self._clock.monotonic() * 1e6)
        since_us = now_us
        if folder.places:
            since_us = self._folders.sightings.free_since_us(folder, now_us)
        return decide(folder, request, now_us, since_us)

    # -- taking ---------------------------------------------------------------------------------

    async def _take(self, folder: Folder, request: AcquireRequest, decided: Take) -> Grant | Folder:
        """The grant, or the folder as it is instead."""
        ttl_s = self._terms.seconds(request.ttl_us)
        idle = self._terms.idle(ttl_s)
        term = idle or await self._terms.fresh(ttl_s)
        now_us = microseconds(self._clock.now())
        change = changes.take(self._names, folder, request, decided, term=term, now_us=now_us)
        try:
            if idle is None:
                committed, alive = await self._folders.commit(request.key, change), True
            else:
                committed, alive = await self._commit_alive(request.key, change, term)
        except LeaseGone:
            return await self._folders.read(request.key)
        if not committed.succeeded:
            self._terms.give_back(term)
            return committed.folder
        for item in committed.deleted:
            # What the grant replaced: the place of its owner, or its former self.
            self._terms.revoke(item.lease)
        if decided.again and decided.former is not None and decided.former.live is not None:
            self._terms.revoke(decided.former.live.lease)
        if not alive:
            # The lease ran out under the grant. The same owner gets the same slot again.
            return committed.folder
        return self._granted(committed.folder, request, decided, term)

    async def _commit_alive(self, key: str, change: Change, term: Term) -> tuple[Committed, bool]:
        """Make the change and keep its lease alive, at the same time.

        Both are asked for after the attempt began, so that its ttl counts from there at least.
        """
        keeping = asyncio.ensure_future(self._terms.keep_alive(term))
        try:
            committed = await self._folders.commit(key, change)
        except BaseException:
            keeping.cancel()
            await asyncio.wait({keeping})
            raise
        try:
            return committed, await keeping
        except StoreError as error:
            if not committed.succeeded:
                return committed, False
            raise OutcomeUnknown(
                f"lease {key!r} was written, but whether it lasts is unknown: {error}"
            ) from error

    def _granted(
        self, folder: Folder, request: AcquireRequest, decided: Take, term: Term
    ) -> Grant | Folder:
        slot = folder.slot(decided.number)
        if slot is None or slot.live is None or slot.value.owner != request.owner:
            # It ended between the write and its reply, which show the same revision: impossible,
            # but a grant must never be told that is not there.
            return folder
        previous = None
        if decided.ending is not None and decided.former is not None:
            former = decided.former.value.owner
            previous = former if former != request.owner else None
        grant = Grant(
            request.key,
            decided.number,
            request.owner,
            Token(slot.token),
            slot.value.version,
            term.ttl_s * 1_000_000,
            folder.state,
            previous,
        )
        self._owners.remember(grant, slot.live)
        return grant

    # -- waiting --------------------------------------------------------------------------------

    async def _queue(self, folder: Folder, request: AcquireRequest) -> tuple[Folder, bool]:
        """Have a place, or keep it; the folder afterwards, and whether the place is settled."""
        self._waiting.begin(request.key, request.owner)
        try:
            return await self._place(folder, request)
        except StoreUnavailable:
            if folder.place_of(request.owner) is None:
                # Nobody leaves a place that never was.
                self._waiting.end(request.key, request.owner)
            raise
        except LeaseGone:
            # This process slept for so long that the place had run out before it was taken.
            return await self._folders.read(request.key), False

    async def _place(self, folder: Folder, request: AcquireRequest) -> tuple[Folder, bool]:
        ttl_s = self._terms.seconds(request.queue_us)
        place = folder.place_of(request.owner)
        if place is None:
            if len(folder.places) >= PLACES_MAX:
                raise StoreUnavailable(
                    f"{PLACES_MAX} wait for key {request.key!r} already: come back later"
                )
            term = await self._terms.fresh(ttl_s)
            change = changes.queue(
                self._names, request.key, request.owner, host=request.host, term=term
            )
            committed = await self._folders.commit(request.key, change)
            if not committed.succeeded:
                self._terms.revoke(term.id)
            return committed.folder, committed.succeeded
        if place.id in folder.passed:
            change = changes.count_again(self._names, folder, place)
            folder = (await self._folders.commit(request.key, change)).folder
            return folder, False
        return await self._refresh(folder, place, ttl_s)

    async def _refresh(self, folder: Folder, place: Place, ttl_s: int) -> tuple[Folder, bool]:
        if place.ttl_s == ttl_s:
            if await self._connections.keep_alive(place.lease) > 0:
                return folder, True
            return await self._folders.read(folder.key), False
        term = await self._terms.fresh(ttl_s)
        change = changes.requeue(self._names, folder.key, place, term=term)
        committed = await self._folders.commit(folder.key, change)
        self._terms.revoke(place.lease if committed.succeeded else term.id)
        return committed.folder, committed.succeeded

    async def _held(self, folder: Folder, request: AcquireRequest, wait: Wait) -> Held:
        owner, left_s = None, 0.0
        if wait.live:
            left = [
                (await self._left_s(folder, live.slot, live.lease), live.owner)
                for live in wait.live
            ]
            left_s, owner = min(left)
        place = folder.place_of(request.owner)
        return Held(
            request.key,
            owner,
            left_s + wait.turn_us / 1e6,
            WaiterId(place.id) if place is not None else None,
            wait.ahead,
            folder.limit,
        )

    async def _left_s(self, folder: Folder, number: int, lease: int) -> float:
        slot = folder.slots[number]
        seconds = await self._connections.seconds_left(lease)
        return remaining_s(seconds, slot.value.ttl_us / 1e6) or _SOON_S

    async def leave(self, key: str, waiter: WaiterId, owner: Owner) -> None:
        """Give up a place; see the port. The others hear it, and look who is next."""
        self._waiting.end(key, owner)
        name = self._names.place(key, owner)
        if not waiter:
            answer = await self._connections.transact((), (Delete(name),))
        else:
            condition = CreatedAt(name, waiter)
            answer = await self._connections.transact((condition,), (Delete(name),), (Read(name),))
        if answer.succeeded:
            for item in answer.shown[0]:
                self._terms.revoke(item.lease)
