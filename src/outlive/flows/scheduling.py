"""What middleware sees of a call before it is scheduled: its name and its arguments.

It runs inside flow code, again at each replay: it must not do what flow code must not do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from outlive.names import InstanceId


@dataclass(slots=True)
class Scheduling:
    """One call of a step or of a child flow; ``args`` and ``kwargs`` may be replaced."""

    flow: InstanceId
    kind: str
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class SchedulingMiddleware(Protocol):
    """``def around(scheduling, call): return call()``; what it raises, the flow's code sees."""

    def __call__(self, scheduling: Scheduling, call: Callable[[], Any], /) -> Any:
        """Let the call happen, or not."""
        ...


def scheduled(
    middlewares: tuple[SchedulingMiddleware, ...],
    scheduling: Scheduling,
    call: Callable[[tuple[Any, ...], dict[str, Any]], Any],
) -> Any:
    """Call through all middlewares; the first is the outermost."""

    def innermost() -> Any:
        return call(scheduling.args, scheduling.kwargs)

    layered: Callable[[], Any] = innermost
    for middleware in reversed(middlewares):
        layered = partial(middleware, scheduling, layered)
    return layered()
