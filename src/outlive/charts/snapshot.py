"""Everything a machine is between two steps: where it stands, its data, its status.

A value: a step never changes a snapshot, it gives another one, so that whoever holds the old one
still sees what was. Kept small, because there may be a million: machines that stand in the same
place and have no data share one snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from outlive.charts.configuration import Configuration, StateValue
from outlive.charts.events import EventLike, as_event
from outlive.charts.frame import Child
from outlive.charts.selection import plan_of

Status = Literal["active", "done", "error", "stopped"]

# One for all machines without data. Writing to it raises, so that an action that changes its
# context in place is found out at once instead of changing every other machine.
EMPTY_CONTEXT: Mapping[str, Any] = MappingProxyType({})
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Rest:
    """The parts that most snapshots do not have."""

    __slots__ = ("children", "error", "history", "output")

    def __init__(
        self,
        children: Mapping[str, Child],
        history: Mapping[str, tuple[int, ...]],
        output: Any = None,
        error: BaseException | None = None,
    ) -> None:
        self.children = children
        self.history = history
        self.output = output
        self.error = error


class Snapshot:
    """Where a machine stands (``value``), its ``context``, its ``status``. Do not change it."""

    __slots__ = ("configuration", "context", "rest", "status")

    def __init__(
        self,
        configuration: Configuration,
        context: Any,
        status: Status = "active",
        rest: Rest | None = None,
    ) -> None:
        self.configuration = configuration
        self.context = context
        self.status: Status = status
        self.rest = rest

    def __repr__(self) -> str:
        return f"<Snapshot {self.value!r} {self.status} {dict(self.context)!r}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Snapshot):
            return NotImplemented
        mine, others = self.configuration, other.configuration
        return (
            mine.tables is others.tables
            and mine.active == others.active
            and self.status == other.status
            and self.context == other.context
            and self.children == other.children
            and self.history == other.history
            and self.output == other.output
            and self.error is other.error
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def value(self) -> StateValue:
        """The state value, as XState writes it. Shared with others: do not change it."""
        return self.configuration.value

    @property
    def output(self) -> Any:
        """What a finished machine came to."""
        return None if self.rest is None else self.rest.output

    @property
    def error(self) -> BaseException | None:
        """Why a machine failed."""
        return None if self.rest is None else self.rest.error

    @property
    def children(self) -> Mapping[str, Child]:
        """The services and machines that it started and did not stop, by id."""
        return _NOTHING if self.rest is None else self.rest.children

    @property
    def history(self) -> Mapping[str, tuple[int, ...]]:
        """What each history state remembers, by its id: numbers of nodes in document order."""
        return _NOTHING if self.rest is None else self.rest.history

    @property
    def tags(self) -> frozenset[str]:
        """The tags of all active states."""
        return self.configuration.tags

    @property
    def meta(self) -> Mapping[str, Any]:
        """The meta data of the active states, by id."""
        return self.configuration.meta

    @property
    def active_ids(self) -> tuple[str, ...]:
        """The ids of all active states, in document order."""
        return self.configuration.ids

    @property
    def next_events(self) -> tuple[str, ...]:
        """What some active state listens to, guards aside; forbidden events are left out."""
        return self.configuration.next_events if self.status == "active" else ()

    def matches(self, state: str | Mapping[str, Any]) -> bool:
        """Whether the machine is in ``state``: ``"a"``, ``"a.b"`` or a partial state value."""
        return self.configuration.matches(state)

    def has_tag(self, tag: str) -> bool:
        """Whether an active state carries ``tag``."""
        return tag in self.configuration.tags

    def can(self, event: EventLike, /, **data: Any) -> bool:
        """Whether ``event`` would do anything now. Asks guards, and changes nothing.

        Raises:
            Exception: Whatever a guard raises.
        """
        wanted = as_event({"type": event, **data} if data else event)
        plan = plan_of(self.configuration, wanted.type)
        return any(not each.inert for each in plan.choose(self.context, wanted))


def settle(
    configuration: Configuration, context: Any, status: Status, rest: Rest | None
) -> Snapshot:
    """The snapshot of these parts; the shared one where there is no data."""
    if context is EMPTY_CONTEXT and rest is None and status == "active":
        bare = configuration.bare
        if bare is None:
            bare = configuration.bare = Snapshot(configuration, EMPTY_CONTEXT)
        return bare
    return Snapshot(configuration, context, status, rest)
