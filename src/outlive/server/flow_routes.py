"""Routes of flows: start, signal, look, wait for their end, and what admins do to them.

The server has no flow's code: it stores what is to be run, and hosts that have the code run it.
What only the code could answer, a query, is not offered here. Owns the record of what admins did.
An act is recorded before it is done, so that none is done unseen; one that was refused then stands
there as well.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from outlive.errors import Conflict, FlowError, FlowExists, FlowNotFound, RetryRefused, UsageError
from outlive.flows.flows import Flows
from outlive.flows.handle import FlowHandle
from outlive.flows.info import FlowInfo
from outlive.model.bearer import Act, Scope
from outlive.model.instance import FINAL, InstanceStatus
from outlive.server import flow_answers, limits
from outlive.server import flow_schemas as schemas
from outlive.server.access import Principal
from outlive.server.endpoints import Call, Endpoint, Reply
from outlive.server.flow_answers import ROOT, check_reachable, started
from outlive.server.problems import Problem
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


Run = Callable[[FlowHandle[object], Any], Awaitable[None]]
"""What is done to a flow, by the request."""


class FlowActs:
    """Flows, to be started, sent to and operated."""

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces

    def endpoints(self) -> list[Endpoint]:
        """The routes; the one with a bare id is last, because ids may hold slashes."""
        begun = {202: ("Stored; a host will run the flow.", schemas.StartedFlow)}
        return [
            Endpoint(
                method="POST",
                path=ROOT + "/start/{name:path}",
                name="startFlow",
                summary="Start a flow, once for each id.",
                run=self.start,
                scope=Scope.ENQUEUE,
                names={"name": schemas.FlowName},
                body=schemas.StartFlow,
                body_optional=True,
                answers=begun,
                problems=("conflict", "unsupported"),
            ),
            # Before the acts, so that a signal may be called as one of them is.
            Endpoint(
                method="POST",
                path=ROOT + "/{flow:path}/raiseEvent/{event:path}",
                name="signalFlow",
                summary="Send a signal to a live flow.",
                run=self.signal,
                scope=Scope.ENQUEUE,
                body=schemas.Signal,
                body_optional=True,
                answers={202: ("Stored; the flow reads it once.", None)},
                problems=("not-found", "unsupported"),
            ),
            *self._acts(),
            Endpoint(
                method="POST",
                path=ROOT + "/{flow:path}/fork",
                name="forkFlow",
                summary="Start a new flow from a part of the history of this flow.",
                run=self.fork,
                scope=Scope.ADMIN,
                body=schemas.Fork,
                answers=begun,
                problems=("not-found", "conflict", "unsupported"),
            ),
            Endpoint(
                method="DELETE",
                path=ROOT + "/{flow:path}",
                name="purgeFlow",
                summary="Delete a flow that has ended.",
                run=self.purge,
                scope=Scope.ADMIN,
                answers={204: ("Deleted.", None)},
                problems=("not-found", "conflict", "unsupported"),
            ),
        ]

    def _acts(self) -> list[Endpoint]:
        """What admins do to a flow without a body."""
        reason, retry = schemas.WithReason, schemas.RetryFlow
        return [
            self._act("cancel", "Request the cancellation of a flow.", _cancel, query=reason),
            self._act(
                "terminate",
                "End a flow immediately, without running its code.",
                _terminate,
                query=reason,
            ),
            self._act("suspend", "Suspend a flow: nothing new begins.", _suspend),
            self._act("resume", "Resume a flow.", _resume),
            self._act(
                "retry",
                "Continue an ended flow from before the failure or cancellation.",
                _retry,
                query=retry,
            ),
        ]

    def _act(self, name: str, summary: str, run: Run, *, query: Any = None) -> Endpoint:
        return Endpoint(
            method="POST",
            path=f"{ROOT}/{{flow:path}}/{name}",
            name=f"{name}Flow",
            summary=summary,
            run=partial(self._operate, name, run),
            scope=Scope.ADMIN,
            query=query,
            answers={202: ("Stored.", None)},
            problems=("not-found", "conflict", "unsupported"),
        )

    async def start(self, call: Call) -> Reply:
        """Start a flow that any host may claim."""
        wanted: schemas.StartFlow = call.body
        at, delay = wanted.at, wanted.delay
        if at is not None and delay is not None:
            at, delay = max(at, self._spaces.clock.now() + timedelta(seconds=delay)), None
        try:
            handle = await self._spaces.flows_of(call.principal).start(
                call.path["name"],
                wanted.input,
                id=check_reachable(wanted.id),
                at=at,
                delay=delay,
                attributes=wanted.attributes,
            )
        except FlowExists:
            raise _taken(wanted.id) from None
        return started(handle)

    async def signal(self, call: Call) -> Reply:
        """Send a signal."""
        wanted: schemas.Signal = call.body
        handle = self._spaces.flows_of(call.principal).get(call.path["flow"])
        try:
            await handle.signal(call.path["event"], wanted.payload, id=wanted.id)
        except FlowNotFound:
            raise _not_live(handle.id) from None
        return Reply(202)

    async def fork(self, call: Call) -> Reply:
        """Start a flow from another's history."""
        wanted: schemas.Fork = call.body
        handle = self._spaces.flows_of(call.principal).get(call.path["flow"])
        at = wanted.at if isinstance(wanted.at, str) else round(wanted.at)
        new = check_reachable(wanted.id)
        await self._record(call.principal, "fork", handle.id)
        try:
            forked = await handle.fork(at=at, id=new, input=wanted.input)
        except FlowExists:
            raise _taken(new) from None
        except UsageError:
            # All else that it could mean was looked at before.
            raise Problem(
                "not-found", f"The history of flow {handle.id!r} has no version or step {at!r}."
            ) from None
        return started(forked)

    async def purge(self, call: Call) -> Reply:
        """Forget a flow."""
        flows = self._spaces.flows_of(call.principal)
        handle = flows.get(call.path["flow"])
        await self._record(call.principal, "purge", handle.id)
        if not await flows.purge(handle.id):
            raise Problem("conflict", f"Flow {handle.id!r} has not ended: terminate it first.")
        return Reply(204)

    async def _operate(self, name: str, run: Run, call: Call) -> Reply:
        handle = self._spaces.flows_of(call.principal).get(call.path["flow"])
        await self._record(call.principal, name, handle.id)
        try:
            await run(handle, call.body)
        except Conflict:
            raise _not_allowed(name, handle.id, (await handle.status()).status) from None
        return Reply(202)

    async def _record(self, principal: Principal, action: str, flow: str) -> None:
        actor = f"{principal.name} ({principal.id})"
        act = Act(actor=actor, action=f"flow {action}", subject=flow)
        await self._spaces.of(principal).tokens.record(act)


async def _cancel(handle: FlowHandle[object], wanted: schemas.WithReason) -> None:
    try:
        await handle.cancel(wanted.reason or "cancelled")
    except FlowNotFound:
        raise _not_live(handle.id) from None


async def _terminate(handle: FlowHandle[object], wanted: schemas.WithReason) -> None:
    await handle.terminate(wanted.reason or "terminated")


async def _suspend(handle: FlowHandle[object], _: None) -> None:
    await handle.suspend()


async def _resume(handle: FlowHandle[object], _: None) -> None:
    await handle.resume()


async def _retry(handle: FlowHandle[object], wanted: schemas.RetryFlow) -> None:
    try:
        await handle.retry(rerun_unknown=wanted.rerun_unknown)
    except RetryRefused as refused:
        raise Problem("conflict", _NOT_RETRIED[refused.reason]) from None


_NOT_RETRIED = {
    "undone": "Steps were undone after the failure: start a new flow, or fork this one.",
    "heard": "The parent has acted on the end of this child, or may have before it continued as "
    "new: retry the parent, or fork this flow.",
    "stopped": "This child was stopped by its parent or with it, and a retry of the parent starts "
    "it again: retry the parent, or fork this flow.",
    "unknown": "The outcome of a step with once=True is unknown: check its effects, and send "
    "rerunUnknown=true if it may run again.",
}


def _not_allowed(act: str, flow: str, status: InstanceStatus) -> Problem:
    """The refusal of an act that the status does not allow, as it is now."""
    allowed = "only a failed, cancelled or terminated flow can be retried"
    if act != "retry":
        allowed = "an ended flow can only be retried, forked or purged"
    elif status in FINAL and status is not InstanceStatus.COMPLETED:
        allowed = "it was changed meanwhile, so read it again, then decide"
    return Problem("conflict", f"Flow {flow!r} is {status.value}: {allowed}.")


def _taken(flow: str | None) -> Problem:
    return Problem(
        "conflict", f"The id {flow!r} belongs to a run of another flow: choose another id."
    )


def _not_live(flow: str) -> Problem:
    return Problem("not-found", f"No live flow {flow!r} in this namespace.")
