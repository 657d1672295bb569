"""``client.flows``: flows over HTTP, under the names that ``host.flows`` has.

The server has no flow's code: arguments go by name, results are plain JSON, and queries and updates
are not offered. What users wrote is seen by a token with the scope ``payload:read``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec

from outlive.client.http import Answer
from outlive.errors import ConfigurationError, FlowCancelled, FlowFailed, FlowTerminated
from outlive.model.instance import FINAL, InstanceStatus
from outlive.model.options import Duration, seconds
from outlive.names import check_key
from outlive.runtime.runtime import Runtime

_ROOT = "/runtime/orchestrations"

# How long one request waits for the end of a flow: most of what a server allows.
_WAIT_S = 50.0

# Between two of them: a server that stops, or was told not to let requests wait, answers at once.
_PAUSE_S = 0.2

_NOTHING: Mapping[str, Any] = {}

Ask = Callable[..., Awaitable[Answer]]
"""Sends a request, and returns an answer that is no refusal; ``once`` lets it not be repeated."""


class FlowInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A flow as the server knew it; the fields are those of ``outlive.FlowInfo``."""

    id: str
    name: str
    status: InstanceStatus
    parent: str | None
    host: str | None
    token: int
    version: int
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    due_at: datetime | None
    input: Any = None
    outcome: Any = None
    custom: Any = None
    attributes: dict[str, Any] = {}


class FlowHandle:
    """One flow, by its id. ``entry`` is ``existing`` if a start of this id started nothing.

    Its methods raise ``NotFound`` if there is no such flow, ``Conflict`` if its status does not
    allow the request, and what ``Client.enqueue`` raises.
    """

    def __init__(
        self,
        flows: Flows,
        id: str,  # noqa: A002 - it is one
        entry: str | None = None,
    ) -> None:
        self._flows = flows
        self._path = _path_of(id)
        self.id = id
        self.entry = entry

    async def status(self) -> FlowInfo:
        """What the store knows of it now."""
        return msgspec.convert(await self._look(showInput="true"), FlowInfo)

    async def result(self, timeout: Duration | None = None) -> Any:
        """Wait for its end, and return what its code returned; needs ``payload:read``.

        Raises:
            FlowFailed, FlowCancelled, FlowTerminated: How else it ended.
            TimeoutError: It did not end in time. It goes on.
        """
        async with asyncio.timeout(None if timeout is None else seconds(timeout, "timeout")):
            while (found := await self._look(wait=_WAIT_S))["status"] not in FINAL:
                await self._flows.runtime.clock.sleep(_PAUSE_S)
        if "outcome" not in found:
            raise ConfigurationError("results of flows need a token with the scope payload:read")
        outcome = found["outcome"]
        if found["status"] == InstanceStatus.COMPLETED:
            return outcome
        message = str(outcome.get("message", ""))
        if found["status"] == InstanceStatus.CANCELLED:
            raise FlowCancelled(self.id, message)
        if found["status"] == InstanceStatus.TERMINATED:
            raise FlowTerminated(self.id, message)
        raise FlowFailed(self.id, str(outcome.get("type", "")), message)

    async def history(self, *, after: int = 0) -> list[dict[str, Any]]:
        """A page of its commits behind the version ``after``, the oldest first."""
        found = await self._look(showHistory="", showHistoryOutput="", historyAfter=after)
        return found["history"]

    async def signal(
        self,
        name: str,
        payload: object = None,
        *,
        id: str | None = None,  # noqa: A002 - it is one
    ) -> None:
        """Send a signal; sent again under the same ``id``, it is nothing."""
        path = f"{self._path}/raiseEvent/{quote(check_key(name), safe='')}"
        await self._flows.ask(
            "POST", path, {"payload": payload, "id": id or self._flows.runtime.new_id()}
        )

    async def cancel(self, reason: str = "cancelled") -> None:
        """Ask its code to stop; it may clean up. Repeatable."""
        await self._act("cancel", reason=reason)

    async def terminate(self, reason: str = "terminated") -> None:
        """End it without asking its code. Repeatable."""
        await self._act("terminate", reason=reason)

    async def suspend(self) -> None:
        """Let it begin nothing new until it is resumed. Repeatable."""
        await self._act("suspend")

    async def resume(self) -> None:
        """Let a suspended flow go on. Repeatable."""
        await self._act("resume")

    async def retry(self, *, rerun_unknown: bool = False) -> None:
        """Let it go on from before what ended it. Sent once: a repeat would be a ``Conflict``."""
        await self._act("retry", once=True, rerunUnknown=str(rerun_unknown).lower())

    async def fork(
        self,
        *,
        at: int | str,
        id: str | None = None,  # noqa: A002 - it is one
        input: Mapping[str, Any] | None = None,  # noqa: A002 - it is one
    ) -> FlowHandle:
        """Start a new flow from a part of this one's history."""
        document = {"at": at, "id": id or self._flows.runtime.new_id(), "input": input}
        found = (await self._flows.ask("POST", f"{self._path}/fork", document)).document
        return FlowHandle(self._flows, found["id"], found["entry"])

    async def _act(self, act: str, *, once: bool = False, **query: str) -> None:
        await self._flows.ask("POST", f"{self._path}/{act}", query=query, once=once)

    async def _look(self, **query: Any) -> Any:
        wait = query.get("wait", 0.0)
        return (await self._flows.ask("GET", self._path, query=query, wait=wait)).document


class Flows:
    """The flows of the namespace that the client's token belongs to."""

    def __init__(self, ask: Ask, runtime: Runtime) -> None:
        self.ask = ask
        self.runtime = runtime

    async def start(
        self,
        flow: str,
        arguments: Mapping[str, Any] = _NOTHING,
        /,
        *,
        id: str | None = None,  # noqa: A002 - it is one
        at: datetime | None = None,
        delay: Duration | None = None,
        attributes: Mapping[str, Any] = _NOTHING,
    ) -> FlowHandle:
        """Start the flow of this name, once for each id, with its arguments by name.

        Raises:
            Conflict: The id belongs to a run of another flow.
        """
        document: dict[str, Any] = {
            "input": arguments,
            "id": id or self.runtime.new_id(),
            "at": at,
            "delay": None if delay is None else seconds(delay, "delay"),
            "attributes": attributes,
        }
        path = f"{_ROOT}/start/{quote(check_key(flow), safe='')}"
        found = (await self.ask("POST", path, document)).document
        return FlowHandle(self, found["id"], found["entry"])

    def get(self, id: str) -> FlowHandle:  # noqa: A002 - it is one
        """A handle to the flow of this id; nothing is asked."""
        return FlowHandle(self, id)

    async def list(
        self,
        *,
        name: str | None = None,
        status: str | None = None,
        prefix: str | None = None,
        attributes: Mapping[str, Any] = _NOTHING,
        stuck: bool = False,
        after: FlowInfo | str | None = None,
        limit: int = 100,
    ) -> list[FlowInfo]:
        """A page of flows, the oldest first; ``after`` is the last one of the page before."""
        query = {
            "name": name,
            "status": status,
            "prefix": prefix,
            # Text in quotes, so that the server does not read it as a number.
            "attribute": [f"{key}={json.dumps(value)}" for key, value in attributes.items()],
            "stuck": "true" if stuck else None,
            "after": after.id if isinstance(after, FlowInfo) else after,
            "limit": limit,
        }
        found = (await self.ask("GET", _ROOT, query=query)).document
        return msgspec.convert(found["flows"], list[FlowInfo])

    async def purge(self, id: str) -> None:  # noqa: A002 - it is one
        """Forget a flow that has ended. Sent once: a repeat would be ``NotFound``."""
        await self.ask("DELETE", _path_of(id), once=True)


def _path_of(flow: str) -> str:
    return f"{_ROOT}/{quote(check_key(flow), safe='')}"
