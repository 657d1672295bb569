"""Actions that a document writes out itself, as XState does: ``{"type": "xstate.raise", …}``.

Only constants: what would have to be computed needs an implementation in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from outlive.charts.actions import (
    Assign,
    Cancel,
    Description,
    EmitEvent,
    LogValue,
    Raise,
    SendTo,
    Spawn,
    StopChildNamed,
)
from outlive.charts.events import as_event
from outlive.errors import UsageError

Params = Mapping[str, Any]

_KNOWN: dict[str, Callable[[Params], Description]] = {
    "xstate.assign": lambda given: Assign(given.get("assignment", given)),
    "xstate.raise": lambda given: Raise(given["event"], given.get("delay"), given.get("id")),
    "xstate.sendTo": lambda given: SendTo(
        given["to"], given["event"], given.get("delay"), given.get("id")
    ),
    "xstate.sendParent": lambda given: SendTo(
        None, given["event"], given.get("delay"), given.get("id"), "parent"
    ),
    "xstate.cancel": lambda given: Cancel(given["id"] if "id" in given else given["sendId"]),
    "xstate.emit": lambda given: EmitEvent(given["event"]),
    "xstate.log": lambda given: LogValue(given.get("value"), given.get("label")),
    "xstate.spawnChild": lambda given: Spawn(
        given["src"],
        given.get("id"),
        given.get("systemId"),
        given.get("input"),
        bool(given.get("syncSnapshot")),
    ),
    "xstate.stopChild": lambda given: StopChildNamed(given["id"]),
}

_TEXTS = frozenset({"id", "sendId", "src", "systemId", "to"})


def written_out(name: str, params: Any, what: str) -> Description:
    """The action that ``name`` and ``params`` write out.

    Raises:
        UsageError: There is no such action, or it lacks what it needs.
    """
    if name not in _KNOWN:
        raise UsageError(f"{what}: unknown built-in action {name!r}")
    given: Params = cast("Any", params) if isinstance(params, Mapping) else {}
    for key in _TEXTS & given.keys() if name != "xstate.assign" else ():
        if not isinstance(given[key], str) and not callable(given[key]):
            raise UsageError(f"{what}: {key!r} of {name} must be text, not {given[key]!r}")
    if "event" in given and name != "xstate.assign" and not callable(given["event"]):
        as_event(given["event"], f"{what}: the event of {name}")
    try:
        return _KNOWN[name](given)
    except KeyError as error:
        raise UsageError(f"{what}: {name} needs {error.args[0]!r} in its params") from error
