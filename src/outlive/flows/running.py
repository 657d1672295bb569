"""Which flow this code runs in: the one whose loop runs, and nothing else.

A step runs on its host's loop or in a thread, so that inside of it there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlive.errors import UsageError
from outlive.flows.loop import FlowLoop
from outlive.runtime.running_loop import running_loop

if TYPE_CHECKING:
    from outlive.flows.run import FlowRun


def running_flow() -> FlowRun | None:
    """The run whose code this is, if it is that of a flow."""
    loop = running_loop()
    return loop.owner if type(loop) is FlowLoop else None


def the_flow(what: str) -> FlowRun:
    """The same.

    Raises:
        UsageError: This is no flow code; ``what`` names what was asked for.
        Evicted: It is the code of a flow that is being dropped.
    """
    run = running_flow()
    if run is None:
        raise UsageError(
            f"outlive.{what} works only in the code of a flow, not in a step or elsewhere"
        )
    if run.loop.is_closed():
        run.loop.evict()
    return run
