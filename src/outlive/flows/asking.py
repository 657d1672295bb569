"""What the code of a flow may decide, and within which limits.

Everything that flow code asks of Outlive passes here, before anything is put into the outbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from msgspec import structs

from outlive.errors import HistoryTooLong, UsageError
from outlive.flows.calls import ChildCall, StepCall
from outlive.flows.ending import Restart
from outlive.flows.events import Patched, SignalSent
from outlive.flows.letters import signal
from outlive.names import InstanceId

if TYPE_CHECKING:
    from outlive.flows.flow import Flow
    from outlive.flows.run import FlowRun
    from outlive.flows.step import Step

# A run is read and replayed as a whole when its host dies. Ten thousand events take a good part of
# a second; five times that are more than a take-over may cost.
EVENTS_WARNED = 10_000
EVENTS_MAX = 50_000

# What undoes a saga may be recorded beyond that: a flow that is too long ends in order.
UNDOING_MAX = 1_000

# What is refused is raised where it is asked for. Code that swallows it so often in one activation
# asks in a loop that never comes to wait.
REFUSALS_MAX = 1_000

# Each call is a row, a job or a task; more at once would hold up everything else of the host.
FAN_OUT_MAX = 10_000


class Asking:
    """The requests of one run's code."""

    def __init__(self, run: FlowRun) -> None:
        self._run = run
        self.calls_made = 0
        self.refused = 0
        self.undoing = 0
        # The last step or child that was called while a saga undid something; empty if it was
        # neither.
        self.undid: str | None = None
        self.patches_recorded: frozenset[str] = frozenset()
        self._patches: dict[str, bool] = {}
        self._signals_sent = 0
        # How often each was sent in this run: the same one, decided again after a retry, is one.
        self._said: dict[str, int] = {}

    def check(self) -> None:
        """Look whether flow code may decide something now.

        Raises:
            Evicted: It is being dropped.
            UsageError: It answers a query, or calls too much at once.
            HistoryTooLong: The run has recorded too much.
        """
        run = self._run
        if run.loop.shut:
            if run.loop.looking:
                raise UsageError(
                    "a query or a validator is read-only: it cannot start steps, children or "
                    "timers, or send signals"
                )
            run.loop.evict()
            return
        events = run.out.events
        if events >= EVENTS_MAX and not (self.undoing and events < EVENTS_MAX + UNDOING_MAX):
            self._refuse(HistoryTooLong(run.id, EVENTS_MAX))
        self.calls_made += 1
        if self.calls_made > FAN_OUT_MAX:
            self._refuse(
                UsageError(
                    f"the flow made more than {FAN_OUT_MAX} calls without waiting; await some first"
                )
            )

    def _refuse(self, error: Exception) -> None:
        """Raise ``error``; too often, let the flow end with it as soon as its code waits."""
        self.refused += 1
        if self.refused <= REFUSALS_MAX:
            raise error
        self._run.code.spins(error)

    def step(
        self, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> StepCall[Any]:
        """Call a step."""
        self.check()
        return self._run.calling.step(step, args, kwargs)

    def child(
        self,
        flow: Flow[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        id: str | None = None,  # noqa: A002 - it is one
        abandon: bool = False,
    ) -> ChildCall[Any]:
        """Start a child."""
        self.check()
        return self._run.children.call(flow, args, kwargs, id=id, abandon=abandon)

    def signal(self, to: InstanceId, name: str, payload: object) -> None:
        """Send a signal."""
        self.check()
        run, number = self._run, self._signals_sent
        message = signal(to, name, payload, id="")
        said = blake2b(f"{to}\t{name}\t{message.payload}".encode(), digest_size=16).hexdigest()
        times = self._said.get(said, 0)
        message = structs.replace(message, id=f"signal/{run.id}{run.lap}/{said}.{times}")
        self._said[said] = times + 1
        self._signals_sent = number + 1
        run.out.put(SignalSent(at=run.at_us, number=number, to=to, name=name), message)

    def patched(self, patch: str) -> bool:
        """Whether code that is new goes this way: one answer for the whole run."""
        self.check()
        run, known = self._run, self._patches.get(patch)
        if known is None:
            known = not run.replaying or patch in self.patches_recorded
            self._patches[patch] = known
            if known and run.replaying:
                run.out.events += 1
            elif known:
                run.out.put(Patched(at=run.at_us, id=patch))
        return known

    def restart(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Restart:
        """What ends this run, so that a new one begins."""
        run = self._run
        if asyncio.current_task() is not run.code.main:
            raise UsageError(
                "outlive.continue_as_new() must be called in the main task of the flow, not in "
                "another task"
            )
        arguments = run.flow.arguments
        return Restart(arguments.checked(arguments.encode(args, kwargs)))
