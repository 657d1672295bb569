"""What goes wrong with charts and their machines."""

from __future__ import annotations

from typing import Any

from outlive.errors.families import OutliveError, UsageError
from outlive.errors.flows import FlowError


class InvalidChart(UsageError):
    """A chart's document or implementations are wrong; ``problems`` lists everything found.

    Each problem says where (``pointer``, a JSON pointer into the document) and what.
    """

    def __init__(self, chart: str, problems: tuple[Any, ...]) -> None:
        count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
        lines = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(f"chart {chart!r} has {count}:{lines}")
        self.chart, self.problems = chart, problems


class ChartError(OutliveError):
    """A chart could not do what was asked; the machine stays where it was."""


class MicrostepLimit(ChartError):
    """One event led to more microsteps than ``limit``: the chart goes in a circle."""

    def __init__(self, chart: str, limit: int) -> None:
        super().__init__(
            f"chart {chart!r} did not reach a stable state within {limit} microsteps; look for "
            "eventless transitions or raised events that form a cycle"
        )
        self.chart, self.limit = chart, limit


class UnknownTarget(ChartError):
    """An event was sent to somebody who does not exist; it was not delivered."""

    def __init__(self, target: str, detail: str = "") -> None:
        super().__init__(
            f"cannot send to {target!r}: unknown target" + (f": {detail}" if detail else "")
        )
        self.target = target


class EventUnhandled(ChartError):
    """No transition took the event, and the machine's policy calls that an error."""

    def __init__(self, event: str, state: object) -> None:
        super().__init__(f"no transition for event {event!r} in state {state!r}")
        self.event, self.state = event, state


class WaitTimeout(ChartError, TimeoutError):
    """A machine did not get to what was waited for in the time allowed. Nothing was changed."""

    def __init__(self, machine: str, timeout_s: float) -> None:
        super().__init__(
            f"machine {machine!r} did not reach the expected state within {timeout_s:g} s"
        )
        self.machine, self.timeout_s = machine, timeout_s


class RequestTimeout(ChartError, TimeoutError):
    """A machine did not answer in the time allowed.

    If ``begun`` is false the event was not handled and never will be, unless the request asked for
    that (``run_late``). If it is true the event is being handled, and goes on.
    """

    def __init__(self, machine: str, event: str, timeout_s: float, *, begun: bool) -> None:
        state = "is still being handled" if begun else "was not handled"
        super().__init__(
            f"machine {machine!r} did not reply to event {event!r} within {timeout_s:g} s; the "
            f"event {state}"
        )
        self.machine, self.event = machine, event
        self.timeout_s, self.begun = timeout_s, begun


class MailboxFull(ChartError, FlowError):
    """As much waits for the machine or the flow as is allowed: send more slowly. Not taken."""

    def __init__(self, receiver: str, limit: int, *, kind: str = "machine") -> None:
        super().__init__(
            f"the mailbox of {kind} {receiver!r} is full: {limit} events are already waiting; "
            "send more slowly"
        )
        self.receiver, self.limit = receiver, limit
        self.kind = kind


class GroupReleased(ChartError):
    """The group of machines is gone, and everything in it has ended: do not wait for it."""

    def __init__(self, group: str) -> None:
        super().__init__(f"the group {group!r} was released")
        self.group = group
