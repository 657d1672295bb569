"""Routes of those who look at flows, and of those who wait for their end.

The server has no flow's code. What only the code could answer, a query, is not offered here.
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from outlive.errors import FlowError
from outlive.flows.flows import Flows
from outlive.flows.handle import FlowHandle
from outlive.flows.info import FlowInfo
from outlive.model.bearer import Scope
from outlive.model.instance import FINAL
from outlive.server import flow_answers, limits
from outlive.server import flow_schemas as schemas
from outlive.server.endpoints import Call, Endpoint, Reply
from outlive.server.flow_answers import ROOT
from outlive.server.spaces import Spaces
from outlive.server.waiting import disconnected


class FlowRoutes:
    """Flows, as they are seen."""

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces

    def endpoints(self) -> list[Endpoint]:
        """The routes; the one with a bare id is last, because ids may hold slashes."""
        return [
            Endpoint(
                method="GET",
                path=ROOT,
                name="flows",
                summary="A page of flows, the oldest first.",
                run=self.flows,
                scope=Scope.READ,
                query=schemas.FlowsQuery,
                answers={200: ("A page.", schemas.Flows)},
                problems=("not-found", "unsupported"),
            ),
            Endpoint(
                method="GET",
                path=ROOT + "/{flow:path}",
                name="flow",
                summary="One flow, as it is now; with wait, when it has ended.",
                run=self.flow,
                scope=Scope.READ,
                query=schemas.FlowQuery,
                answers={
                    200: ("It has ended.", schemas.Flow),
                    202: ("It has not ended.", schemas.Flow),
                },
                problems=("not-found", "unsupported"),
            ),
        ]

    async def flows(self, call: Call) -> Reply:
        """One page."""
        wanted: schemas.FlowsQuery = call.body
        shown = call.principal.may(Scope.PAYLOAD)
        if wanted.attribute:
            # Who may not read them must not guess them either.
            call.principal.require(Scope.PAYLOAD)
        flows = self._spaces.flows_of(call.principal)
        found, more = await _page(flows, wanted, shown=shown)
        return Reply(200, schemas.Flows(flows=found, next_after=found[-1].id if more else None))

    async def flow(self, call: Call) -> Reply:
        """One flow."""
        wanted: schemas.FlowQuery = call.body
        handle = self._spaces.flows_of(call.principal).get(call.path["flow"])
        if wanted.wait > 0:
            await self._ended(call, handle, min(wanted.wait, self._spaces.bounds.wait_s))
        shown = call.principal.may(Scope.PAYLOAD)
        info = await handle.status()
        flow = flow_answers.flow_of(info, shown=shown, with_input=wanted.show_input)
        flow.links = flow_answers.links_of(info.id)
        if wanted.show_history:
            output = shown and wanted.show_history_output
            flow.history, more = await _history(handle, wanted.history_after, shown=output)
            flow.next_history_after = flow.history[-1].version if more else None
        return Reply(200 if info.status in FINAL else 202, flow)

    async def _ended(self, call: Call, handle: FlowHandle[object], wait_s: float) -> None:
        """Return when the flow has ended, the time is over, or nobody waits any more.

        Raises:
            Problem: As many wait as are allowed, or the bearer was refused meanwhile.
            FlowNotFound: There is no such flow.
        """
        waiters, principal = self._spaces.waiters, call.principal
        with waiters.waiting(principal.id, principal.namespace, ()):
            ending = asyncio.create_task(_end(handle), name="outlive-flow-end")
            others = (
                asyncio.create_task(disconnected(call.request), name="outlive-disconnect"),
                asyncio.create_task(waiters.stopping.wait(), name="outlive-stopping"),
            )
            try:
                await asyncio.wait(
                    (ending, *others), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                for task in (ending, *others):
                    task.cancel()
                await asyncio.wait((ending, *others))
        if not ending.cancelled():
            ending.result()
        await call.authorise()


async def _end(handle: FlowHandle[object]) -> None:
    # How it ended stands in its status.
    with contextlib.suppress(FlowError):
        await handle.result()


async def _page(
    flows: Flows, wanted: schemas.FlowsQuery, *, shown: bool
) -> tuple[list[schemas.Flow], bool]:
    """The flows of one page, and whether there may be more behind it.

    Read a few at a time, whoever asks: a store brings inputs and outcomes along.
    """
    found: list[schemas.Flow] = []
    after: FlowInfo | str | None = wanted.after
    size = 0
    while len(found) < wanted.limit and size < limits.PAGE_BYTES_MAX:
        most = min(wanted.limit - len(found), limits.PAGE_READ)
        part = await flows.list(
            name=wanted.name,
            status=wanted.status or None,
            prefix=wanted.prefix,
            attributes=_attributes(wanted.attribute),
            stuck=wanted.stuck,
            after=after,
            limit=most,
        )
        for info in part:
            flow = flow_answers.flow_of(info, shown=shown, with_input=wanted.show_input)
            found.append(flow)
            size += flow_answers.size_of(flow)
        if len(part) < most:
            return found, False
        # Not by its id: it may be purged before the next part is read.
        after = part[-1]
    return found, True


async def _history(
    handle: FlowHandle[object], after: int, *, shown: bool
) -> tuple[list[schemas.FlowCommit], bool]:
    """A page of commits, and whether there may be more behind it."""
    found: list[schemas.FlowCommit] = []
    size = 0
    while len(found) < limits.PAGE_MAX and size < limits.PAGE_BYTES_MAX:
        part = await handle.history(after=after, limit=limits.PAGE_READ)
        for commit in part:
            answer = flow_answers.commit_of(commit, shown=shown)
            found.append(answer)
            size += flow_answers.size_of(answer)
        if len(part) < limits.PAGE_READ:
            return found, False
        after = part[-1].version
    return found, True


def _attributes(given: list[str]) -> dict[str, object]:
    pairs = (text.partition("=") for text in given)
    return {name: _value(text) for name, _, text in pairs}


def _value(text: str) -> object:
    """A JSON scalar as what it is, and everything else as text."""
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return text
    return value if isinstance(value, str | int | float) else text
