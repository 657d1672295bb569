"""What a step asks the world to do, as plain data.

The seam between the pure core and those who run charts. ``Chart.step`` returns effects in the
order in which they are to be done, after the new snapshot is in place; an interpreter (the
in-memory actor, the orchestrator, a durable host) executes them. Nothing here acts.

They are not frozen, because freezing costs as much as all the rest of a step; treat them as if
they were. Equal effects compare equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from outlive.charts.events import Event

Scope = Literal["child", "parent", "self", "system", "machine"]
"""Where a target is looked up: a child's id, the parent, oneself, a system id, or a peer."""


@dataclass(slots=True)
class RunAction:
    """Run the user's function for an action. ``function`` is ``None`` if it has none.

    ``function`` takes ``(context, event, params, actor)``, whatever the user's own parameters
    are, and returns an awaitable exactly if ``awaitable`` is true.
    """

    name: str
    function: Callable[[Any, Event, Any, Any], Any] | None
    awaitable: bool
    context: Any
    event: Event
    params: Any = None


@dataclass(slots=True)
class StartTimer:
    """Deliver ``event`` after ``delay_ms``; a timer of the same ``id`` is replaced.

    Without an id nobody can cancel it, and the interpreter names it. Without a target it comes
    back to the machine itself.
    """

    id: str | None
    event: Event
    delay_ms: float
    target: str | None = None
    scope: Scope = "self"


@dataclass(slots=True)
class StopTimer:
    """Forget the timer ``id``, if it still runs. Its event is never delivered afterwards."""

    id: str


@dataclass(slots=True)
class StartChild:
    """Start the service, activity or child chart named ``src`` under ``id``.

    ``watched`` children report each of their snapshots as ``xstate.snapshot.<id>``.
    """

    id: str
    src: str
    input: Any = None
    system_id: str | None = None
    watched: bool = False


@dataclass(slots=True)
class StopChild:
    """Stop the child ``id``; it reports nothing afterwards. One that ended needs nothing."""

    id: str


@dataclass(slots=True)
class Send:
    """Deliver ``event`` to another machine, behind everything that was sent to it before."""

    target: str | None
    event: Event
    scope: Scope = "child"


@dataclass(slots=True)
class Emit:
    """Tell listeners outside; nobody has to listen."""

    event: Event


@dataclass(slots=True)
class Log:
    """Write ``value`` to the log."""

    value: Any
    label: str | None = None


@dataclass(slots=True)
class Unhandled:
    """No transition took ``event``. The interpreter's policy says what becomes of it."""

    event: Event


@dataclass(slots=True)
class Finish:
    """The machine has ended: its status is ``done`` (with an output) or ``error``."""

    status: Literal["done", "error"]
    output: Any = None
    error: BaseException | None = None


Effect = (
    RunAction
    | StartTimer
    | StopTimer
    | StartChild
    | StopChild
    | Send
    | Emit
    | Log
    | Unhandled
    | Finish
)
Effects = tuple[Effect, ...] | list[Effect]
