"""Purging: ended flows are forgotten because somebody asked for it, before their retention ends.

Goes in batches, each one step of the store, so that it holds nobody up. What is purged stays so if
a later batch fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

from outlive.errors import FlowNotFound
from outlive.flows.desk import FlowDesk
from outlive.model.instance import (
    REMOVED_ROWS_MAX,
    InstanceFilter,
    InstanceRecord,
    Opened,
)
from outlive.names import InstanceId
from outlive.ports.instance_store import InstanceStore
from outlive.work.repeating import until_known

# Purged in one step: few enough to hold no lock for long.
_BATCH = 500


async def purge_one(desk: FlowDesk, id: InstanceId) -> int:  # noqa: A002 - it is one
    """Forget one flow if it has ended; how many were.

    Raises:
        FlowNotFound: There is no flow of this id.
    """
    (opened,) = await until_known(desk.runtime, lambda _: desk.store.purge([id]))
    if opened is Opened.NOT_FOUND:
        raise FlowNotFound(id)
    return int(opened is Opened.CHANGED)


async def purge_matching(store: InstanceStore, wanted: InstanceFilter) -> int:
    """Forget all flows that match and have ended; how many were."""
    purged = 0
    async for page in _pages(store, wanted):
        for some in _steps(page):
            outcomes = await store.purge([record.id for record in some])
            purged += sum(each is Opened.CHANGED for each in outcomes)
            await asyncio.sleep(0)
    return purged


def _steps(page: Sequence[InstanceRecord]) -> Iterator[Sequence[InstanceRecord]]:
    """The parts of a page that are purged in one step each: fewer of those with long histories."""
    some, rows = list[InstanceRecord](), 0
    for record in page:
        some.append(record)
        rows += record.version - record.base
        if rows >= REMOVED_ROWS_MAX:
            yield some
            some, rows = [], 0
    if some:
        yield some


async def _pages(
    store: InstanceStore, wanted: InstanceFilter
) -> AsyncIterator[Sequence[InstanceRecord]]:
    cursor = None
    while True:
        page = await store.list(wanted, after=cursor, limit=_BATCH)
        if page:
            yield page
        if len(page) < _BATCH:
            return
        cursor = page[-1].cursor
