"""What happens to a chart: events, and the names of those that the engine raises itself.

Owns the shape of an event. An event is data: it never holds code, and nobody changes it after it
was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, cast

from outlive.errors import UsageError

INIT = "xstate.init"
ERROR_ACTOR = "xstate.error.actor"
DONE_ACTOR = "xstate.done.actor"

_NO_DATA: Mapping[str, Any] = MappingProxyType({})


class Event:
    """A type and the data that came with it: ``event.type``, ``event["amount"]``.

    Two events are equal when type and data are. Events without data share one empty mapping.
    """

    __slots__ = ("data", "type")

    def __init__(self, type: str, data: Mapping[str, Any] = _NO_DATA) -> None:  # noqa: A002
        self.type = type
        self.data = data

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"an event has no {name!r}; its data is read as event[{name!r}]")

    def __contains__(self, key: object) -> bool:
        return key in self.data

    def get(self, key: str, default: Any = None) -> Any:
        """The datum named ``key``, or ``default``."""
        return self.data.get(key, default)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and self.type == other.type and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.type)

    def __repr__(self) -> str:
        return f"Event({self.type!r})" if not self.data else f"Event({self.type!r}, {self.data!r})"

    def to_json(self) -> dict[str, Any]:
        """The flat form of XState: the type among the data."""
        return {**self.data, "type": self.type}


EventLike = str | Event | Mapping[str, Any]
"""A type, an event, or a mapping with a ``type`` in it."""


def as_event(value: EventLike, what: str = "an event") -> Event:
    """The event that ``value`` means.

    Raises:
        UsageError: It is none, has no type, or its type is the wildcard.
    """
    if isinstance(value, Event):
        return value
    if isinstance(value, str):
        event = Event(value)
    elif isinstance(cast("object", value), Mapping) and isinstance(value.get("type"), str):
        data = {key: item for key, item in value.items() if key != "type"}
        event = Event(value["type"], data) if data else Event(value["type"])
    else:
        raise UsageError(
            f"{what} must be a type, an Event or a mapping with a 'type', not {value!r}"
        )
    if event.type in {"*", ""}:
        raise UsageError(
            f"{what} cannot have the type {event.type!r}, which is not the name of an event"
        )
    return event


def done_state(node_id: str) -> str:
    """What is raised when the state ``node_id`` has reached its final state."""
    return f"xstate.done.state.{node_id}"


def done_actor(child: str) -> str:
    """What is sent when the child ``child`` has finished; its result is ``event["output"]``."""
    return f"{DONE_ACTOR}.{child}"


def error_actor(child: str) -> str:
    """What is sent when the child ``child`` has failed; its error is ``event["error"]``."""
    return f"{ERROR_ACTOR}.{child}"


def snapshot_of(child: str) -> str:
    """What is sent when a watched child shows a new snapshot, in ``event["snapshot"]``."""
    return f"xstate.snapshot.{child}"


def after(delay: float | str, node_id: str) -> str:
    """What is sent when ``delay`` has passed in the state ``node_id``."""
    return f"xstate.after.{number(delay) if not isinstance(delay, str) else delay}.{node_id}"


def number(value: float) -> str:
    """``value`` as XState writes it: no decimal point on a whole number."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def matches(event_type: str, descriptor: str) -> bool:
    """Whether ``descriptor`` covers ``event_type``: the same, ``*``, or ``prefix.*``."""
    if descriptor in (event_type, "*"):
        return True
    if not descriptor.endswith(".*") or "*" in descriptor[:-1]:
        return False
    prefix = descriptor[:-2]
    return event_type == prefix or event_type.startswith(prefix + ".")
