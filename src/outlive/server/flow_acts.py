"""Routes that change flows: start, signal, and what admins do to them.

The server has no flow's code: it stores what is to be run, and hosts that have the code run it.
Owns the record of what admins did. An act is recorded before it is done, so that none is done
unseen; one that was refused then stands there as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

from outlive.errors import Conflict, FlowExists, FlowNotFound, RetryRefused, UsageError
from outlive.flows.handle import FlowHandle
from outlive.model.bearer import Act, Scope
from outlive.model.instance import FINAL, InstanceStatus
from outlive.server import flow_schemas as schemas
from outlive.server.access import Principal
from outlive.server.endpoints import Call, Endpoint, Reply
from outlive.server.flow_answers import ROOT, check_reachable, started
from outlive.server.problems import Problem
from outlive.server.spaces import Spaces

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
