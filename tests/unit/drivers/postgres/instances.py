"""What tests of instances on PostgreSQL share: short words for the port."""

from __future__ import annotations

import itertools
from typing import Any

from outlive.model.instance import (
    ClaimedInstance,
    Commit,
    InstanceClaimRequest,
    Message,
    NewInstance,
    Started,
)
from outlive.names import HostId, InstanceId

_numbers = itertools.count(1)


def new(id_: str | None = None, **more: Any) -> NewInstance:
    """An instance with an id and a request of its own."""
    number = next(_numbers)
    fields = {"kind": "flow", "name": "f", "input": "1", "request": f"s{number}", **more}
    return NewInstance(id=InstanceId(id_ or f"i{number}"), **fields)


def news(count: int, **more: Any) -> list[NewInstance]:
    """Several instances."""
    return [new(**more) for _ in range(count)]


def mine(id_: str | None = None, *, host: str = "h", **more: Any) -> NewInstance:
    """An instance that the host owns from its start."""
    return new(id_, session=HostId(host), worker=host, **more)


def ask(limit: int = 10, *names: str, host: str = "h", **more: Any) -> InstanceClaimRequest:
    """A claim of a host that nobody made before."""
    fields = {"request": f"c{next(_numbers)}", "kind": "flow", "names": names or ("f",), **more}
    return InstanceClaimRequest(session=HostId(host), worker=host, limit=limit, **fields)


def step(of: ClaimedInstance | Started | Commit, **more: Any) -> Commit:
    """The next commit of something that was claimed, started or committed."""
    version = 0 if isinstance(of, Started) else of.version
    fields = {"version": version + 1, "commit": f"k{next(_numbers)}", "events": "[]", **more}
    return Commit(id=of.id, token=of.token, **fields)


def letter(to: str, id_: str | None = None, **more: Any) -> Message:
    """A message with an id of its own."""
    fields = {"kind": "signal", "name": "go", "payload": "{}", **more}
    return Message(InstanceId(to), id_ or f"m{next(_numbers)}", **fields)
