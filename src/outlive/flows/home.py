"""What a flow in memory needs of the host that owns it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from outlive.flows.decision import StepTask
from outlive.flows.executing import Executor
from outlive.flows.run import FlowRun
from outlive.flows.store_clock import StoreClock
from outlive.model.instance import Commit, Committed, InstanceStatus, NewInstance
from outlive.names import JobId
from outlive.telemetry import Telemetry

if TYPE_CHECKING:
    from outlive.flows.activation import LiveFlow


class Home(Protocol):
    """What a flow needs of the host that owns it."""

    clock: StoreClock
    executor: Executor
    telemetry: Telemetry

    def new_run(self, live: LiveFlow, input: str, began_at_us: int) -> FlowRun:  # noqa: A002
        """A run of its definition, not begun."""
        ...

    def commit(
        self, live: LiveFlow, commit: Commit, done: Callable[[Committed | None], None]
    ) -> None:
        """Write it, and call ``done`` once it is known what became of it."""
        ...

    def transact(self, live: LiveFlow, call: StepTask) -> None:
        """Run a step inside a transaction of the store; ``transacted`` is called at its end."""
        ...

    def read_mail(self, live: LiveFlow, *, after: int) -> None:
        """Read its mailbox from behind that letter; ``delivered`` is called with what was there."""
        ...

    def heed(self, live: LiveFlow) -> None:
        """Look for children of it that may have ended unheard; their ends happen to it then."""
        ...

    def stop_jobs(self, jobs: Sequence[JobId]) -> None:
        """Nobody waits for these any more: let them be cancelled."""
        ...

    def rested(self, live: LiveFlow) -> None:
        """It only waits now."""
        ...

    def woke(self, live: LiveFlow) -> None:
        """Something happened to it while it rested."""
        ...

    def hand_back(self, live: LiveFlow, how: str = ...) -> None:
        """It can do nothing here now: let it go."""
        ...

    def not_started(self, live: LiveFlow, starts: Sequence[NewInstance]) -> None:
        """These were to be started, but others have their ids."""
        ...

    def ended(self, live: LiveFlow, status: InstanceStatus, outcome: str | None) -> None:
        """It has ended, and its end is stored."""
        ...

    def lost(self, live: LiveFlow, *, fenced: bool) -> None:
        """It is not ours any more."""
        ...

    def stuck(self, live: LiveFlow, error: Exception) -> None:
        """Its code and its history do not go together: it cannot go on here."""
        ...

    def stopwatch(self) -> float:
        """When its code begins to run."""
        ...

    def activated(self, began: float) -> None:
        """Its code has run since ``began``."""
        ...

    def fired(self, late_us: int) -> None:
        """A timer was fired so late."""
        ...
