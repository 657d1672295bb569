"""What an action can do to its own machine, as descriptions: public, immutable, without behaviour.

A chart's ``actions`` map a name to one of these, to a function, or to a list of both. These are
pure and happen inside the step; a function is an effect and runs after it, unless it asks for
``enqueue``: then it is pure too, and decides which of these happen.

A value that may be computed is given as a function of ``context``, ``event`` and ``params``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from outlive.charts.effects import Scope
from outlive.charts.events import EventLike

Computed = Callable[..., Any]
Delay = float | str | timedelta | Computed | None
"""Milliseconds as in the document, a name, a timedelta, or a function that gives one of these."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Replace parts of the context."""

    updates: Mapping[str, Any] | Computed


@dataclass(frozen=True, slots=True)
class Raise:
    """Handle an event before any other that waits, or later if delayed."""

    event: EventLike | Computed
    delay: Delay = None
    id: str | Computed | None = None


@dataclass(frozen=True, slots=True)
class SendTo:
    """Send an event to another machine."""

    target: str | Computed | None
    event: EventLike | Computed
    delay: Delay = None
    id: str | Computed | None = None
    scope: Scope = "child"


@dataclass(frozen=True, slots=True)
class Cancel:
    """Forget a delayed event."""

    id: str | Computed


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Tell listeners outside."""

    event: EventLike | Computed


@dataclass(frozen=True, slots=True)
class LogValue:
    """Write to the log."""

    value: Any
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a child that lives until it ends, is stopped, or its parent ends."""

    src: str
    id: str | Computed | None = None
    system_id: str | None = None
    input: Any = None
    watched: bool = False


@dataclass(frozen=True, slots=True)
class StopChildNamed:
    """Stop a child."""

    id: str | Computed


@dataclass(frozen=True, slots=True)
class Choose:
    """The actions of the first branch whose guard holds; ``None`` always holds."""

    branches: tuple[tuple[Any, Any], ...]


Description = (
    Assign | Raise | SendTo | Cancel | EmitEvent | LogValue | Spawn | StopChildNamed | Choose
)


def assign(updates: Mapping[str, Any] | Computed | None = None, /, **values: Any) -> Assign:
    """Replace parts of the context: ``assign(count=lambda context: context["count"] + 1)``.

    A function instead of a mapping returns the parts to replace. The old context is never changed
    in place, so that whoever still holds it sees what was.
    """
    if callable(updates):
        return Assign(updates)
    return Assign({**(updates or {}), **values})


def raise_(
    event: EventLike | Computed,
    *,
    delay: Delay = None,
    id: str | None = None,  # noqa: A002
) -> Raise:
    """Handle ``event`` next, before any event from outside; with a delay, as one from outside."""
    return Raise(event, delay, id)


def send_to(
    target: str | Computed,
    event: EventLike | Computed,
    *,
    delay: Delay = None,
    id: str | None = None,  # noqa: A002
    scope: Scope = "child",
) -> SendTo:
    """Send ``event`` to the child ``target``, or to a system id with ``scope="system"``.

    A child that does not exist is an error of this step; one that has ended hears nothing.
    """
    return SendTo(target, event, delay, id, scope)


def send_self(
    event: EventLike | Computed,
    *,
    delay: Delay = None,
    id: str | None = None,  # noqa: A002
) -> SendTo:
    """Send ``event`` to the own machine, behind whatever waits already."""
    return SendTo(None, event, delay, id, "self")


def send_parent(
    event: EventLike | Computed,
    *,
    delay: Delay = None,
    id: str | None = None,  # noqa: A002
) -> SendTo:
    """Send ``event`` to the machine that invoked or spawned this one."""
    return SendTo(None, event, delay, id, "parent")


def cancel(id: str | Computed) -> Cancel:  # noqa: A002
    """Forget the delayed event ``id``; one that was delivered or never sent is no error."""
    return Cancel(id)


def emit(event: EventLike | Computed) -> EmitEvent:
    """Tell those who listen outside of the machine (``actor.on``)."""
    return EmitEvent(event)


def log(value: Any, *, label: str | None = None) -> LogValue:
    """Write ``value``, or what it computes, to the log of the machine."""
    return LogValue(value, label)


def spawn(
    src: str,
    *,
    id: str | Computed | None = None,  # noqa: A002
    system_id: str | None = None,
    input: Any = None,  # noqa: A002
    watched: bool = False,
) -> Spawn:
    """Start the service or chart ``src`` as a child that no state owns."""
    return Spawn(src, id, system_id, input, watched)


def stop_child(id: str | Computed) -> StopChildNamed:  # noqa: A002
    """Stop the child ``id``; one that does not exist is no error."""
    return StopChildNamed(id)


def choose(*branches: tuple[Any, Any]) -> Choose:
    """Do the actions of the first ``(guard, actions)`` whose guard holds; ``None`` always does."""
    return Choose(branches)
