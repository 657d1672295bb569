"""What a client is shown of a flow, and where it is reached.

Owns what stays hidden: whatever users wrote, from who lacks ``payload:read``.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import msgspec

from outlive.clock import instant
from outlive.flows.events import encode_events
from outlive.flows.handle import FlowHandle
from outlive.flows.info import FlowCommit, FlowInfo
from outlive.names import check_key
from outlive.server import flow_schemas
from outlive.server.endpoints import Reply
from outlive.server.problems import Problem

ROOT = "/runtime/orchestrations"

# What may be done to a flow, by the last part of the path.
ACTS = ("cancel", "terminate", "suspend", "resume", "retry", "fork")

_UNREACHABLE = re.compile(rf"start(?:/.*)?|.*/(?:{'|'.join(ACTS)})|.*/raiseEvent/.*", re.DOTALL)
# Of an event, everything that no user wrote. What a later release adds is hidden until it is named.
_PLAIN = frozenset(
    {
        *("event", "at", "step", "attempt", "due", "timer", "name", "id", "child"),
        *("job", "number", "to", "status", "version", "base"),
    }
)


def path_of(flow: str) -> str:
    """Where the flow is reached. A slash in its id is escaped, so that no client shortens it."""
    return f"{ROOT}/{quote(flow, safe='')}"


def links_of(flow: str) -> dict[str, str]:
    """What can be done with a flow; paths, because a server does not know its name outside."""
    path = path_of(flow)
    return {
        "status": path,
        "signal": f"{path}/raiseEvent/{{event}}",
        **{act: f"{path}/{act}" for act in ACTS},
        "purge": path,
    }


def started(handle: FlowHandle[object]) -> Reply:
    """The answer to who has started a flow."""
    assert handle.entry is not None
    answer = flow_schemas.StartedFlow(
        id=handle.id, entry=handle.entry.value, links=links_of(handle.id)
    )
    return Reply(202, answer, {"Location": path_of(handle.id)})


def check_reachable(flow: str | None) -> str | None:
    """``flow`` if what is started under this id can be reached here.

    Raises:
        InvalidName: Nothing can have this id.
        Problem: The paths of this server mean something else by it.
    """
    if flow is not None and _UNREACHABLE.fullmatch(check_key(flow)) is not None:
        raise Problem(
            "invalid-request",
            "A flow id must not be 'start', begin with 'start/', contain '/raiseEvent/', or end "
            "with '/' and an action such as 'cancel': its path would be ambiguous.",
        )
    return flow


def flow_of(info: FlowInfo, *, shown: bool, with_input: bool) -> flow_schemas.Flow:
    """One flow; with what users wrote if ``shown``."""
    flow = flow_schemas.Flow(
        id=info.id,
        name=info.name,
        status=info.status.value,
        parent=info.parent,
        host=info.host,
        token=info.token,
        version=info.version,
        created_at=info.created_at,
        updated_at=info.updated_at,
        ended_at=info.ended_at,
        due_at=info.due_at,
    )
    if shown:
        flow.outcome = info.outcome
        flow.custom = info.custom
        flow.attributes = info.attributes
        if with_input:
            flow.input = info.input
    return flow


def commit_of(commit: FlowCommit, *, shown: bool) -> flow_schemas.FlowCommit:
    """One commit of a history; with what users wrote if ``shown``."""
    events: list[dict[str, Any]] = msgspec.json.decode(encode_events(commit.events))
    return flow_schemas.FlowCommit(
        version=commit.version,
        token=commit.token,
        host=commit.host,
        at=commit.at,
        events=[_event(event, shown=shown) for event in events],
    )


def size_of(answer: flow_schemas.Flow | flow_schemas.FlowCommit) -> int:
    """How much it adds to a page, in bytes."""
    return len(msgspec.json.encode(answer))


def _event(event: dict[str, Any], *, shown: bool) -> dict[str, Any]:
    found = event if shown else {name: event[name] for name in event if name in _PLAIN}
    if not shown and "error" in event:
        # That it failed, and how, is no secret; what it said may be.
        found["error"] = {"type": event["error"]["type"]}
    for name in ("at", "due"):
        if name in found:
            found[name] = instant(found[name])
    return found
