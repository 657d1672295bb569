"""Reading: one key, pages of many, history, and the stored values.

Owns the questions that change nothing. A listing is read at one revision, in pages of keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from outlive.drivers.etcd.connections import COMPACTED_TRIES, Connections
from outlive.drivers.etcd.folder import Folder, read_folder
from outlive.drivers.etcd.folders import Folders
from outlive.drivers.etcd.operations import Stored
from outlive.drivers.etcd.records import raw_of, record_of, tenancies_of
from outlive.drivers.etcd.translate import Compacted
from outlive.errors import StoreUnavailable
from outlive.model.lease import LIST_LIMIT_MAX, LeaseRecord, Tenancy
from outlive.names import host_of
from outlive.ports.driver import DriverContext

# Keys of one answer: a lease that is owned has three or four, of some hundred bytes each.
_PAGE = 1_000

# Questions about leases of etcd under way at once: each is answered by the leader alone.
_ASKING_MAX = 32


class Reader:
    """Reads of one namespace."""

    def __init__(self, connections: Connections, folders: Folders, context: DriverContext) -> None:
        self._connections = connections
        self._folders = folders
        self._names = folders.names
        self._clock = context.clock

    async def get(self, key: str) -> Sequence[LeaseRecord]:
        """The records of one key; see the port."""
        return await self._records([await self._folders.read(key)])

    async def raw(self, key: str) -> Sequence[Mapping[str, object]]:
        """The stored values of one key; see the port."""
        folder, stored = await self._folders.read_raw(key)
        return raw_of(self._names, folder, stored)

    async def history(self, key: str, *, limit: int) -> Sequence[Tenancy]:
        """The newest entries of the key's history; see the port."""
        folder, ended = await self._folders.read_history(key)
        return tenancies_of(folder, ended)[:limit]

    async def list(
        self, *, prefix: str, owner: str | None, active: bool, after: str | None, limit: int
    ) -> Sequence[LeaseRecord]:
        """A page of records; see the port."""
        limit = min(limit, LIST_LIMIT_MAX)
        for _ in range(COMPACTED_TRIES):
            try:
                return await self._list(prefix, owner, after, active=active, limit=limit)
            except Compacted:
                continue
        raise StoreUnavailable("etcd compacts its history faster than a listing can be read")

    async def _list(
        self, prefix: str, owner: str | None, after: str | None, *, active: bool, limit: int
    ) -> list[LeaseRecord]:
        start, end = self._names.listing(prefix, after)
        records: list[LeaseRecord] = []
        revision, held = 0, list[Stored]()
        while len(records) < limit:
            answer = await self._connections.page(start, end, limit=_PAGE, revision=revision)
            revision, page = answer.revision, answer.shown[0]
            held += page
            whole, held = self._whole(held, last=answer.succeeded)
            wanted = [folder for folder in self._folders_of(whole, revision) if folder.slots]
            if owner is not None or active:
                wanted = [folder for folder in wanted if _may_match(folder, owner, active=active)]
            while wanted and len(records) < limit:
                some = limit - len(records)
                found = await self._records(wanted[:some])
                records += [record for record in found if _matches(record, owner, active=active)]
                del wanted[:some]
            if answer.succeeded:
                break
            start = page[-1].key + b"\0"
        return records

    def _whole(self, stored: list[Stored], *, last: bool) -> tuple[list[Stored], list[Stored]]:
        """Those of folders that were read to their end, and the rest."""
        if last or not stored:
            return stored, []
        part = self._names.part(stored[-1].key)
        if part is None:
            return stored, []
        begin = self._names.folder(part.key)[0]
        cut = next(index for index, item in enumerate(stored) if item.key.startswith(begin))
        return stored[:cut], stored[cut:]

    def _folders_of(self, stored: list[Stored], revision: int) -> Iterator[Folder]:
        together: dict[str, list[Stored]] = {}
        for item in stored:
            part = self._names.part(item.key)
            if part is not None:
                together.setdefault(part.key, []).append(item)
        for key, items in together.items():
            yield read_folder(self._names, key, items, revision)

    async def _records(self, folders: Sequence[Folder]) -> list[LeaseRecord]:
        """All records of ``folders``, with what etcd says their grants have left."""
        gate = asyncio.Semaphore(_ASKING_MAX)

        async def left(lease: int) -> int:
            async with gate:
                return await self._connections.seconds_left(lease)

        leases = [live.lease for folder in folders for live in folder.live]
        seconds = dict(zip(leases, await asyncio.gather(*map(left, leases)), strict=True))
        now = self._clock.now()
        return [
            record_of(folder, slot, -1 if slot.live is None else seconds[slot.live.lease], now)
            for folder in folders
            for slot in folder.slots
        ]


def _may_match(folder: Folder, owner: str | None, *, active: bool) -> bool:
    """Whether asking etcd about the folder's grants is worth while."""
    owners = [
        slot.value.owner
        for slot in folder.slots
        if slot.value.owner is not None and (slot.live is not None or not active)
    ]
    return bool(owners) if owner is None else any(_owned_by(name, owner) for name in owners)


def _matches(record: LeaseRecord, owner: str | None, *, active: bool) -> bool:
    if active and not record.active:
        return False
    return owner is None or (record.owner is not None and _owned_by(record.owner, owner))


def _owned_by(owner: str, wanted: str) -> bool:
    return owner == wanted or host_of(owner) == wanted
