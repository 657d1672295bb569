"""The working state of one macrostep. Made by ``stepping``, dropped when it ends or fails.

Everything a step may change is copied here first, so that a step that raises has changed nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outlive.charts.effects import Effect, Send
from outlive.charts.events import Event

if TYPE_CHECKING:
    from outlive.charts.configuration import Configuration
    from outlive.charts.guards import Guard


@dataclass(frozen=True, slots=True)
class Child:
    """What a snapshot remembers of a child: enough to start it again. ``done`` ones have ended."""

    src: str
    input: Any = None
    system_id: str | None = None
    watched: bool = False
    done: bool = False


class Frame:
    """Context, event, queues and effects of one macrostep."""

    __slots__ = (
        "changed",
        "chart_id",
        "children",
        "configuration",
        "context",
        "effects",
        "event",
        "expected",
        "held",
        "history",
        "output",
        "queue",
        "status",
    )

    def __init__(
        self,
        chart_id: str,
        configuration: Configuration,
        context: Any,
        event: Event,
    ) -> None:
        self.chart_id = chart_id
        self.configuration = configuration
        self.context = context
        self.event = event
        self.effects: list[Effect] = []
        self.queue: deque[Event] = deque()
        self.children: Mapping[str, Child] = _NOTHING
        self.history: Mapping[str, tuple[int, ...]] = _NOTHING
        self.expected: frozenset[str] = _NOBODY
        self.held: list[Send] = []
        self.status = "active"
        self.output: Any = None
        # Whether anything changed that a guard of an eventless transition could see.
        self.changed = False

    def holds(self, guard: Guard) -> bool:
        """Whether ``guard`` holds at this point of the step."""
        answer = guard.within(self.configuration)
        return answer if isinstance(answer, bool) else bool(answer(self.context, self.event))

    def free_name(self, src: str) -> str:
        """A name for a child that was given none."""
        number = 1
        while f"{src}:{number}" in self.children:
            number += 1
        return f"{src}:{number}"


_NOTHING: Mapping[str, Any] = {}
_NOBODY: frozenset[str] = frozenset()
