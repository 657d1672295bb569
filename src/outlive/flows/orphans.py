"""Orphans: the jobs of flows that were ended from outside, for which nobody waits any more.

A termination is one step of the store for a flow and those below it. Their histories say which
steps were put into queues and had not ended: those jobs are cancelled then. Who dies in between
terminates again, which finds the same. Somebody else may retry such a flow meanwhile: what it
begins from then on is its own, and stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from outlive.errors import OutliveError
from outlive.flows.events import Retried, StepEnded, StepSent, decode_events
from outlive.flows.recording import read_rows
from outlive.model.instance import InstanceFilter, InstanceStatus
from outlive.names import InstanceId, JobId
from outlive.work.repeating import until_known

if TYPE_CHECKING:
    from outlive.flows.desk import FlowDesk

Item = TypeVar("Item")

# Histories that are read at once: enough to hide the way to the store, few enough for its pool.
_READ_MAX = 8

# Children of one page, and jobs that are cancelled in one step.
_PAGE = 500


async def cancel_jobs(desk: FlowDesk, flow: InstanceId, reason: str) -> None:
    """Cancel the jobs of a terminated flow, and of those that were terminated below it.

    Claimed ones hear of it as of any cancellation. A store that fails leaves a warning: the jobs
    run for nothing then, and what they bring is dropped.
    """
    jobs = desk.driver.jobs
    if jobs is None:
        return
    try:
        async for family in _family(desk, flow):
            found = await asyncio.gather(*(_open_jobs(desk, each) for each in family))
            for some in _batches([job for each in found for job in each], _PAGE):
                await until_known(desk.runtime, lambda _, ids=some: jobs.cancel(ids, reason=reason))
    except OutliveError as error:
        desk.log.warning(
            "could not cancel the queued jobs of the steps of flow %s; terminate the flow again: "
            "%s",
            *(flow, error),
            extra={"flow": flow},
        )


async def _family(desk: FlowDesk, flow: InstanceId) -> AsyncIterator[Sequence[InstanceId]]:
    """A flow and all terminated ones below it, a few at a time."""
    level: list[InstanceId] = [flow]
    while level:
        below: list[InstanceId] = []
        for few in _batches(level, _READ_MAX):
            yield few
            children = await asyncio.gather(*(_children(desk, each) for each in few))
            below += [child for each in children for child in each]
        level = below


def _batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[first : first + size] for first in range(0, len(items), size))


async def _children(desk: FlowDesk, parent: InstanceId) -> list[InstanceId]:
    wanted = InstanceFilter(kind="flow", parent=parent, statuses=(InstanceStatus.TERMINATED,))
    children: list[InstanceId] = []
    cursor = None
    while True:
        page = await desk.store.list(wanted, after=cursor, limit=_PAGE)
        children += [record.id for record in page]
        if len(page) < _PAGE:
            return children
        cursor = page[-1].cursor


async def _open_jobs(desk: FlowDesk, flow: InstanceId) -> list[JobId]:
    """The jobs whose end its history does not say, up to where it was ended."""
    record = await desk.store.get(flow)
    if record is None:
        return []
    ended = record.status is InstanceStatus.TERMINATED
    orphans: list[JobId] = []
    jobs: dict[str, JobId] = {}
    for row in await read_rows(desk.store, flow, after=0):
        if ended and row.version > record.version:
            break
        for event in decode_events(row.events):
            if isinstance(event, StepSent):
                jobs[event.step] = JobId(event.job)
            elif isinstance(event, StepEnded):
                jobs.pop(event.step, None)
            elif isinstance(event, Retried):
                # A retry waits for none of them: it begins them again, as jobs of other ids.
                orphans.extend(jobs.values())
                jobs.clear()
    return [*orphans, *(jobs.values() if ended else ())]
